"""Feed-forward, encoder layer and decoder layer. Axis legend: see the package."""

from typing import NamedTuple

import keras
import tensorflow as tf

from nmt.model.attention import Attended, KeysValues, MultiHeadAttention
from nmt.model.keras_layers import Dense, Dropout

LAYER_NORM_EPSILON = 1e-6


def spread(inner_kernel, inner_bias, outer_kernel):
    """Return weights of two dense layers with a ReLU between, laid out for fast products.

    Rows of a matrix that lie a multiple of 2 KiB apart compete for the same few places of a
    processor's cache: with AVX2 and 1,024 columns the product takes twice as long as with 1,040.
    So 16 columns of zeros are added; they stay zero behind the ReLU, and meet rows of zeros.

    Args:
      inner_kernel: (M, F).
      inner_bias: (F,).
      outer_kernel: (F, M).

    Returns:
      The three, with F + 16 instead of F where F is a multiple of 512.
    """
    extra = 16 if inner_kernel.shape[1] % 512 == 0 else 0
    return (
        tf.pad(inner_kernel, [[0, 0], [0, extra]]),
        tf.pad(inner_bias, [[0, extra]]),
        tf.pad(outer_kernel, [[0, extra], [0, 0]]),
    )


def layer_norm(x, gamma, beta):
    """Return x with mean 0 and variance 1 over the last axis, times gamma, plus beta.

    Args:
      x: (..., M), any float dtype; computed in float32, as half precision has too few digits.
      gamma: (M,) float32.
      beta: (M,) float32.

    Returns:
      (..., M) in the dtype of x. Source: Ba et al. 2016, equation 4.
    """

    # The gradient by hand: TensorFlow's own chain passes over the memory more often.
    @tf.custom_gradient
    def norm(x, gamma, beta):
        x32 = tf.cast(x, tf.float32)
        centered = x32 - tf.reduce_mean(x32, -1, keepdims=True)
        variance = tf.reduce_mean(centered * centered, -1, keepdims=True)
        scale = tf.math.rsqrt(variance + LAYER_NORM_EPSILON)
        normed = centered * scale

        def gradient(upstream):
            upstream = tf.cast(upstream, tf.float32)
            inner = upstream * gamma
            inner -= tf.reduce_mean(inner, -1, keepdims=True) + normed * tf.reduce_mean(
                inner * normed, -1, keepdims=True
            )
            others = list(range(x.shape.rank - 1))
            return (
                tf.cast(scale * inner, x.dtype),
                tf.reduce_sum(upstream * normed, others),
                tf.reduce_sum(upstream, others),
            )

        return tf.cast(normed * gamma + beta, x.dtype), gradient

    return norm(x, gamma, beta)


@keras.saving.register_keras_serializable("nmt")
class LayerNorm(keras.layers.Layer):
    """`layer_norm` with its weights; the same as Keras' LayerNormalization, only faster."""

    def build(self, input_shape):
        """Create gamma and beta for the size of the last axis."""
        size = (input_shape[-1],)
        self.gamma = self.add_weight(shape=size, initializer="ones", autocast=False, name="gamma")
        self.beta = self.add_weight(shape=size, initializer="zeros", autocast=False, name="beta")
        self.built = True

    def call(self, x):
        """Normalize (..., M) over its last axis."""
        return layer_norm(x, tf.convert_to_tensor(self.gamma), tf.convert_to_tensor(self.beta))


class DecoderLayerOutput(NamedTuple):
    """What a decoder layer returns, always."""

    output: tf.Tensor  # (B, Q, M)
    self_weights: tf.Tensor  # (B, H, Q, K): to target positions
    cross_weights: tf.Tensor  # (B, H, Q, S): to source positions
    keys_values: KeysValues  # self-attention's, past ones included: the next step's `past`


@keras.saving.register_keras_serializable("nmt")
class FeedForward(keras.layers.Layer):
    """Two dense layers with a ReLU between, the same at every position (section 3.3)."""

    def __init__(self, d_model, dff, dropout_rate=0.0, **kwargs):
        super().__init__(**kwargs)
        self.d_model = d_model
        self.dff = dff
        self.dropout_rate = dropout_rate
        self.dropout = Dropout(dropout_rate, dtype=self.dtype_policy)
        self.inner = Dense(dff, "relu", name="inner", dtype=self.dtype_policy)
        self.outer = Dense(d_model, name="outer", dtype=self.dtype_policy)

    def build(self, input_shape=None):
        """Build both dense layers."""
        self.inner.build((None, None, self.d_model))
        self.outer.build((None, None, self.dff))
        self.built = True

    def call(self, x, training=False):
        """Map (B, T, M) to (B, T, M)."""
        weights = (self.inner.kernel, self.inner.bias, self.outer.kernel, self.outer.bias)
        weights = [tf.cast(weight, self.compute_dtype) for weight in weights]
        inner_kernel, inner_bias, outer_kernel = spread(*weights[:3])
        x_RM = tf.reshape(x, [-1, self.d_model])
        inner_RF = tf.nn.relu(tf.nn.bias_add(tf.matmul(x_RM, inner_kernel), inner_bias))
        inner_RF = self.dropout(inner_RF, training=training)
        output_RM = tf.nn.bias_add(tf.matmul(inner_RF, outer_kernel), weights[3])
        return tf.reshape(output_RM, tf.shape(x))

    def get_config(self):
        """Return the arguments that make this layer again."""
        return {
            **super().get_config(),
            "d_model": self.d_model,
            "dff": self.dff,
            "dropout_rate": self.dropout_rate,
        }


class _Residual(keras.layers.Layer):
    """What encoder and decoder layers share: two sub-layers, and how a sub-layer is wrapped.

    Post-norm, the paper's: LayerNorm(x + Dropout(Sublayer(x))).
    Pre-norm: x + Dropout(Sublayer(LayerNorm(x))), which trains without a careful warm-up
    (Xiong et al. 2020); the stack then ends with a LayerNorm of its own.
    """

    def __init__(
        self,
        d_model,
        num_heads,
        dff,
        dropout_rate=0.1,
        norm="post",
        attention_dropout_rate=0.0,
        activation_dropout_rate=0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if norm not in ("pre", "post"):
            raise ValueError(f"norm must be 'pre' or 'post'; received {norm!r}")
        self.d_model = d_model
        self.num_heads = num_heads
        self.dff = dff
        self.dropout_rate = dropout_rate
        self.norm = norm
        self.attention_dropout_rate = attention_dropout_rate
        self.activation_dropout_rate = activation_dropout_rate
        policy = self.dtype_policy
        self.dropout = Dropout(dropout_rate, dtype=policy)
        self.self_attention = self._attention("self_attention")
        self.self_attention_norm = LayerNorm(name="self_attention_norm", dtype=policy)
        self.feed_forward = FeedForward(
            *(d_model, dff, activation_dropout_rate), name="feed_forward", dtype=policy
        )
        self.feed_forward_norm = LayerNorm(name="feed_forward_norm", dtype=policy)

    def build(self, input_shape=None):
        """Build the sub-layers."""
        self.self_attention.build()
        self.feed_forward.build()
        self.self_attention_norm.build((None, None, self.d_model))
        self.feed_forward_norm.build((None, None, self.d_model))
        self.built = True

    def before(self, x, norm_layer):
        """Return what the sub-layer reads."""
        return norm_layer(x) if self.norm == "pre" else x

    def after(self, x, sublayer_output, norm_layer, training):
        """Return the residual stream after the sub-layer."""
        x = x + self.dropout(sublayer_output, training=training)
        return x if self.norm == "pre" else norm_layer(x)

    def get_config(self):
        """Return the arguments that make this layer again."""
        return {
            **super().get_config(),
            "d_model": self.d_model,
            "num_heads": self.num_heads,
            "dff": self.dff,
            "dropout_rate": self.dropout_rate,
            "norm": self.norm,
            "attention_dropout_rate": self.attention_dropout_rate,
            "activation_dropout_rate": self.activation_dropout_rate,
        }

    def _attention(self, name):
        return MultiHeadAttention(
            *(self.d_model, self.num_heads, self.attention_dropout_rate),
            name=name,
            dtype=self.dtype_policy,
        )


@keras.saving.register_keras_serializable("nmt")
class EncoderLayer(_Residual):
    """Self-attention, then feed-forward (section 3.1, figure 1 left)."""

    def call(self, x, may_attend=None, training=False) -> Attended:
        """Let every position look at every other that it may attend to.

        Args:
          x: (B, S, M).
          may_attend: bool, broadcastable to (B, H, S, S), True = may attend; None: everything.
          training: whether dropout is on.

        Returns:
          Attended with output (B, S, M) and weights (B, H, S, S).
        """
        read = self.before(x, self.self_attention_norm)
        attended, weights = self.self_attention(read, read, may_attend, training=training)
        x = self.after(x, attended, self.self_attention_norm, training)

        read = self.before(x, self.feed_forward_norm)
        x = self.after(
            x, self.feed_forward(read, training=training), self.feed_forward_norm, training
        )
        return Attended(x, weights)


@keras.saving.register_keras_serializable("nmt")
class DecoderLayer(_Residual):
    """Self-attention, attention to the encoder, feed-forward (section 3.1, figure 1 right)."""

    def __init__(self, *args, **kwargs):
        """Take the arguments of an EncoderLayer."""
        super().__init__(*args, **kwargs)
        self.cross_attention = self._attention("cross_attention")
        self.cross_attention_norm = LayerNorm(name="cross_attention_norm", dtype=self.dtype_policy)

    def build(self, input_shape=None):
        """Build the sub-layers."""
        super().build(input_shape)
        self.cross_attention.build()
        self.cross_attention_norm.build((None, None, self.d_model))

    def call(
        self, x, memory, past=None, self_may_attend=None, cross_may_attend=None, training=False
    ) -> DecoderLayerOutput:
        """Let target positions look at earlier ones and at the source.

        Args:
          x: (B, Q, M), the newest Q target positions: in training all of them.
          memory: KeysValues of the source, from `cross_attention.project(encoder output)`.
          past: KeysValues of the target positions before these; None: there are none.
          self_may_attend: bool, broadcastable to (B, H, Q, K), K counting past and new positions.
          cross_may_attend: bool, broadcastable to (B, H, Q, S).
          training: whether dropout is on.

        Returns:
          DecoderLayerOutput.
        """
        read = self.before(x, self.self_attention_norm)
        keys_values = self.self_attention.project(read)
        if past is not None:
            keys_values = KeysValues(
                tf.concat([past.keys, keys_values.keys], axis=2),
                tf.concat([past.values, keys_values.values], axis=2),
            )
        attended, self_weights = self.self_attention.attend(
            read, keys_values, self_may_attend, training
        )
        x = self.after(x, attended, self.self_attention_norm, training)

        read = self.before(x, self.cross_attention_norm)
        attended, cross_weights = self.cross_attention.attend(
            read, memory, cross_may_attend, training
        )
        x = self.after(x, attended, self.cross_attention_norm, training)

        read = self.before(x, self.feed_forward_norm)
        x = self.after(
            x, self.feed_forward(read, training=training), self.feed_forward_norm, training
        )
        return DecoderLayerOutput(x, self_weights, cross_weights, keys_values)
