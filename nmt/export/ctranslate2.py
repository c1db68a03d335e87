"""From our Keras weights to a model of CTranslate2, a C++ engine that translates on CPUs.

CTranslate2 keeps dense weights as (out, in), Keras as (in, out). Its self-attention projects
queries, keys and values by one matrix; its attention to the source by one for the queries and one
for keys and values.
"""

from pathlib import Path
from typing import Literal

import numpy as np
from ctranslate2.specs import TransformerSpec

from nmt.decoding.sentences import EXTRA_TARGET_TOKENS, MAX_SOURCE_TOKENS
from nmt.model.layers import LAYER_NORM_EPSILON
from nmt.model.positions import sinusoidal_positions
from nmt.model.transformer import Transformer
from nmt.text.tokenizer import BOS, EOS, UNK, Tokenizer

# CTranslate2 has positions for as many tokens as the file lists, and fails on the next. The
# longest target: a prefix, then as many tokens as the limit allows, both from the longest text.
POSITIONS = 2 * (MAX_SOURCE_TOKENS + 1) + EXTRA_TARGET_TOKENS


def write_model(
    model: Transformer,
    source: Tokenizer,
    target: Tokenizer,
    folder: Path,
    quantization: Literal["int8"] | None = None,
) -> None:
    """Write model.bin, config.json and the vocabularies into `folder`, which exists.

    Args:
      model: the trained model.
      source: its source tokenizer.
      target: its target tokenizer.
      folder: where to.
      quantization: None: float32 as it is. "int8": a quarter of the size, not quite the same.
    """
    spec = to_spec(model, source, target)
    spec.validate()
    spec.optimize(quantization)
    spec.save(str(folder))


def to_spec(model: Transformer, source: Tokenizer, target: Tokenizer) -> TransformerSpec:
    """Return the specification that CTranslate2 writes to disk, filled with our weights."""
    config = model.config
    spec = TransformerSpec.from_config(
        config.num_layers,
        config.num_heads,
        pre_norm=config.norm == "pre",
        alignment_heads=config.num_heads,  # what attention it returns is the mean of all heads
    )
    # One array for both sides is written once.
    positions = sinusoidal_positions(POSITIONS, config.d_model).numpy()
    spec.encoder.embeddings[0].weight = _array(model.source_embedding.embeddings)
    spec.decoder.embeddings.weight = _array(model.target_embedding.embeddings)
    for side in (spec.encoder, spec.decoder):
        side.scale_embeddings = True
        side.position_encodings.encodings = positions
    for layer, ours in zip(spec.encoder.layer, model.encoder_layers, strict=True):
        _fill_layer(layer, ours)
    for layer, ours in zip(spec.decoder.layer, model.decoder_layers, strict=True):
        _fill_layer(layer, ours)
        _fill_cross_attention(layer.attention, ours)
    if config.norm == "pre":
        _fill_norm(spec.encoder.layer_norm, model.encoder_norm)
        _fill_norm(spec.decoder.layer_norm, model.decoder_norm)
    if config.tie_embeddings:
        spec.decoder.projection.weight = spec.decoder.embeddings.weight
    else:
        _fill_linear(spec.decoder.projection, model.output_projection)
    _fill_vocabularies(spec, source, target)
    return spec


def _fill_vocabularies(spec, source, target):
    pieces = target.pieces(range(target.vocab_size))
    spec.register_source_vocabulary(source.pieces(range(source.vocab_size)))
    spec.register_target_vocabulary(pieces)
    spec.config.bos_token = spec.config.decoder_start_token = pieces[BOS]
    spec.config.eos_token = pieces[EOS]
    spec.config.unk_token = pieces[UNK]
    spec.config.add_source_eos = False  # we give it the sentence with its EOS
    spec.config.layer_norm_epsilon = LAYER_NORM_EPSILON


def _fill_layer(spec, layer):
    """Fill what encoder and decoder layers share."""
    attention = layer.self_attention
    _fill_linear(spec.self_attention.linear[0], attention.query, attention.key, attention.value)
    _fill_linear(spec.self_attention.linear[1], attention.output_projection)
    _fill_norm(spec.self_attention.layer_norm, layer.self_attention_norm)
    _fill_linear(spec.ffn.linear_0, layer.feed_forward.inner)
    _fill_linear(spec.ffn.linear_1, layer.feed_forward.outer)
    _fill_norm(spec.ffn.layer_norm, layer.feed_forward_norm)


def _fill_cross_attention(spec, layer):
    attention = layer.cross_attention
    _fill_linear(spec.linear[0], attention.query)
    _fill_linear(spec.linear[1], attention.key, attention.value)
    _fill_linear(spec.linear[2], attention.output_projection)
    _fill_norm(spec.layer_norm, layer.cross_attention_norm)


def _fill_linear(spec, *dense):
    """Fill one linear layer from one or several dense layers of ours that read the same."""
    spec.weight = np.concatenate([_array(layer.kernel).T for layer in dense])
    spec.bias = np.concatenate([_array(layer.bias) for layer in dense])


def _fill_norm(spec, norm):
    spec.gamma, spec.beta = _array(norm.gamma), _array(norm.beta)


def _array(variable):
    return np.array(variable, np.float32)
