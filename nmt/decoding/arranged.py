"""The model again, its weights laid out for decoding: the same numbers, fewer and faster products.

Decoding multiplies few rows at a time, so what counts is how the weights lie in memory, and how
many operations there are. `arrange` does once what need not be done at every step: queries, keys
and values in one product, embeddings that are scaled already, the output matrix the way round in
which it is used. The layers in `nmt.model` are the ones to read first.

Axis legend: B batch, N hypotheses of a sentence side by side, R = B·N rows, S source length,
W source tokens of a batch, K key length, H heads, D depth per head, M model width, V vocabulary.
"""

from functools import partial
from typing import NamedTuple

import tensorflow as tf

from nmt.config import ModelConfig
from nmt.decoding.search import GROUP, NEVER
from nmt.model.attention import KeysValues, scaled_dot_product_attention
from nmt.model.layers import layer_norm, spread
from nmt.model.masks import padding_mask
from nmt.model.positions import sinusoidal_positions
from nmt.model.transformer import Transformer
from nmt.text.tokenizer import PAD


class Dense(NamedTuple):
    """A dense layer."""

    kernel: tf.Tensor  # (in, out)
    bias: tf.Tensor  # (out,)


class Norm(NamedTuple):
    """A layer norm."""

    gamma: tf.Tensor  # (M,)
    beta: tf.Tensor  # (M,)


class Layer(NamedTuple):
    """An encoder layer; or a decoder layer, which has the second part too."""

    query_key_value: Dense  # (M, 3M)
    attention_output: Dense
    attention_norm: Norm
    inner: Dense
    outer: Dense
    feed_forward_norm: Norm

    cross_query: Dense | tuple[()] = ()
    cross_key_value: Dense | tuple[()] = ()  # (M, 2M)
    cross_output: Dense | tuple[()] = ()
    cross_norm: Norm | tuple[()] = ()


class Arranged(NamedTuple):
    """All weights of a model, float32."""

    source_embedding: tf.Tensor  # (V, M), times √M
    target_embedding: tf.Tensor  # (V, M), times √M
    encoder: list[Layer]
    encoder_norm: Norm | tuple[()]  # pre-norm only
    decoder: list[Layer]
    decoder_norm: Norm | tuple[()]
    output: Dense  # (M, V'): V and as many impossible tokens as make a multiple of GROUP


class Memory(NamedTuple):
    """Source sentences, as the decoder looks at them."""

    layers: list[KeysValues]  # of each decoder layer, (B, H, S, D)
    may_attend: tf.Tensor  # (B, 1, 1, S) bool


def arrange(model: Transformer) -> Arranged:
    """Return the weights of `model` in this order. They are copies: see `Searcher.refresh`."""
    config = model.config
    scale, vocabulary = config.d_model**0.5, config.target_vocab_size
    if config.tie_embeddings:
        kernel, bias = tf.transpose(model.target_embedding.embeddings), tf.zeros([vocabulary])
    else:
        kernel, bias = _dense(model.output_projection)
    beyond = [[0, 0], [0, -vocabulary % GROUP]]
    pre = config.norm == "pre"
    return Arranged(
        source_embedding=model.source_embedding.embeddings * scale,
        target_embedding=model.target_embedding.embeddings * scale,
        encoder=[_layer(layer) for layer in model.encoder_layers],
        encoder_norm=_norm(model.encoder_norm) if pre else (),
        decoder=[_decoder_layer(layer) for layer in model.decoder_layers],
        decoder_norm=_norm(model.decoder_norm) if pre else (),
        output=Dense(tf.pad(kernel, beyond), tf.pad(bias, beyond[1:], constant_values=NEVER)),
    )


def read_source(
    weights: Arranged, config: ModelConfig, source_ids, fixed_shapes: bool = False
) -> Memory:
    """Return what the decoder needs of (B, S) int32 source ids.

    All but attention looks at one token at a time, and is spared the padding: only the real tokens
    are among the W; with `fixed_shapes`, as a compiler wants them, all are.
    """
    batch, length = _size(source_ids, 0), _size(source_ids, 1)
    heads, depth = config.num_heads, config.d_model // config.num_heads
    ids = tf.reshape(source_ids, [-1])
    places_W = rows = tf.range(batch * length)
    if not fixed_shapes:
        places_W = tf.boolean_mask(places_W, ids != PAD)
        # At padding, which is masked, the row of the token before it.
        rows = tf.maximum(tf.cumsum(tf.cast(ids != PAD, tf.int32)) - 1, 0)
    rows_B1S = tf.reshape(rows, [batch, 1, length])
    heads_H = tf.range(heads)
    heads_WH = (places_W // length)[:, None] * heads + heads_H
    heads_WH = heads_WH * length + (places_W % length)[:, None]

    # Gathering the heads is sooner than transposing them.
    def parted(x, parts):  # (W, parts·M) → parts times (B, H, S, D)
        x = tf.reshape(x, [-1, depth])
        first_BHS = rows_B1S * (parts * heads) + heads_H[:, None]
        return [tf.gather(x, first_BHS + part * heads) for part in range(parts)]

    def joined(x):  # (B, H, S, D) → (W, M)
        return tf.reshape(tf.gather(tf.reshape(x, [-1, depth]), heads_WH), [-1, config.d_model])

    may_attend = padding_mask(source_ids)
    x = tf.gather(weights.source_embedding, source_ids)
    x += sinusoidal_positions(length, config.d_model)
    x = tf.gather(tf.reshape(x, [-1, config.d_model]), places_W)
    for layer in weights.encoder:

        def attend(x, layer=layer):
            query, keys, values = parted(_apply(layer.query_key_value, x), 3)
            output, _ = scaled_dot_product_attention(query, keys, values, may_attend)
            return _apply(layer.attention_output, joined(output))

        x = _residual(x, attend, layer.attention_norm, config)
        x = _residual(x, partial(_feed_forward, layer), layer.feed_forward_norm, config)
    if weights.encoder_norm:
        x = layer_norm(x, *weights.encoder_norm)
    keys_values = [parted(_apply(layer.cross_key_value, x), 2) for layer in weights.decoder]
    return Memory([KeysValues(*each) for each in keys_values], may_attend)


def read_token(
    weights: Arranged, config: ModelConfig, ids_BN, position, memory: Memory, past, room
):
    """Read the newest token of each hypothesis.

    Args:
      weights: of the model.
      config: of the model.
      ids_BN: (B, N) int32.
      position: scalar int32, how many tokens came before.
      memory: from `read_source`.
      past: KeysValues (B, N, H, K, D) of the tokens before, for each decoder layer.
      room: whether `past` has a place for this token already, and its shape stays; otherwise it
        grows, which computes less.

    Returns:
      Logits (B, N, V') float32, -inf from V on, and the next `past`.
    """
    batch, paths = _size(ids_BN, 0), _size(ids_BN, 1)
    heads, depth = config.num_heads, config.d_model // config.num_heads
    here = seen = None
    if room:
        places = tf.range(tf.shape(past[0].keys)[3])
        here, seen = (places == position)[:, None], places <= position
    x = tf.gather(weights.target_embedding, tf.reshape(ids_BN, [-1]))  # (R, M)
    x += sinusoidal_positions(1, config.d_model, position)
    new_past = []
    for layer, source, before in zip(weights.decoder, memory.layers, past, strict=True):

        def attend(x, layer=layer, before=before):
            x = tf.reshape(_apply(layer.query_key_value, x), [batch, paths, 3 * heads, 1, depth])
            query, keys, values = (x[:, :, i * heads : (i + 1) * heads] for i in range(3))
            if room:
                keys = tf.where(here, keys, before.keys)
                values = tf.where(here, values, before.values)
            else:
                keys = tf.concat([before.keys, keys], axis=3)
                values = tf.concat([before.values, values], axis=3)
            new_past.append(KeysValues(keys, values))
            output, _ = scaled_dot_product_attention(query, keys, values, seen)
            return _apply(layer.attention_output, tf.reshape(output, [-1, config.d_model]))

        def attend_source(x, layer=layer, source=source):
            # The hypotheses of a sentence ask the source together.
            query = tf.reshape(_apply(layer.cross_query, x), [batch, paths, heads, depth])
            output, _ = scaled_dot_product_attention(
                *(tf.transpose(query, [0, 2, 1, 3]), *source, memory.may_attend)
            )
            output = tf.reshape(tf.transpose(output, [0, 2, 1, 3]), [-1, config.d_model])
            return _apply(layer.cross_output, output)

        x = _residual(x, attend, layer.attention_norm, config)
        x = _residual(x, attend_source, layer.cross_norm, config)
        x = _residual(x, partial(_feed_forward, layer), layer.feed_forward_norm, config)
    if weights.decoder_norm:
        x = layer_norm(x, *weights.decoder_norm)
    logits = _apply(weights.output, x)
    return tf.reshape(logits, [batch, paths, logits.shape[1]]), new_past


def _apply(dense, x):
    return tf.nn.bias_add(tf.matmul(x, dense.kernel), dense.bias)


def _feed_forward(layer, x):
    return _apply(layer.outer, tf.nn.relu(_apply(layer.inner, x)))


def _residual(x, sublayer, norm, config):
    if config.norm == "pre":
        return x + sublayer(layer_norm(x, *norm))
    return layer_norm(x + sublayer(x), *norm)


def _size(tensor, axis):
    """Return the size of an axis: a number if it is known, which a compiler wants."""
    return tensor.shape[axis] or tf.shape(tensor)[axis]


def _layer(layer):
    attention, feed_forward = layer.self_attention, layer.feed_forward
    inner_kernel, inner_bias, outer_kernel = spread(
        *_dense(feed_forward.inner), _dense(feed_forward.outer).kernel
    )
    return Layer(
        query_key_value=_joined(attention.query, attention.key, attention.value),
        attention_output=_dense(attention.output_projection),
        attention_norm=_norm(layer.self_attention_norm),
        inner=Dense(inner_kernel, inner_bias),
        outer=Dense(outer_kernel, _dense(feed_forward.outer).bias),
        feed_forward_norm=_norm(layer.feed_forward_norm),
    )


def _decoder_layer(layer):
    attention = layer.cross_attention
    return _layer(layer)._replace(
        cross_query=_dense(attention.query),
        cross_key_value=_joined(attention.key, attention.value),
        cross_output=_dense(attention.output_projection),
        cross_norm=_norm(layer.cross_attention_norm),
    )


def _joined(*layers):
    return Dense(
        tf.concat([layer.kernel for layer in layers], axis=1),
        tf.concat([layer.bias for layer in layers], axis=0),
    )


def _dense(layer):
    return Dense(tf.convert_to_tensor(layer.kernel), tf.convert_to_tensor(layer.bias))


def _norm(layer):
    return Norm(tf.convert_to_tensor(layer.gamma), tf.convert_to_tensor(layer.beta))
