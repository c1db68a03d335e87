"""Attention: the function without weights, and the multi-head layer around it."""

from typing import NamedTuple

import keras
import tensorflow as tf

from nmt.model.keras_layers import Dense, Dropout


class Attended(NamedTuple):
    """What attention returns, always: its output and the weights that made it."""

    output: tf.Tensor  # (B, Q, M), or (B, H, Q, D) before the heads are joined
    weights: tf.Tensor  # (B, H, Q, K) float32, each row sums to 1


class KeysValues(NamedTuple):
    """What can be attended to; kept between decoding steps as the cache."""

    keys: tf.Tensor  # (B, H, K, D)
    values: tf.Tensor  # (B, H, K, D)


def attention_weights(query_BHQD, keys_BHKD, may_attend=None):
    """Return softmax(Q Kᵀ / √d_k) over the keys that may be attended to.

    Scores are masked and normalised in float32 whatever the inputs are: half precision has no
    number low enough. Masked keys get exactly 0. A query that may see nothing gets uniform
    weights, not NaN; whatever it computes is padding and must not be used.

    Args:
      query_BHQD: (B, H, Q, D).
      keys_BHKD: (B, H, K, D).
      may_attend: bool, broadcastable to (B, H, Q, K), True = may attend; None: everything.

    Returns:
      (B, H, Q, K) float32. Source: Vaswani et al. 2017, equation 1.
    """
    depth = query_BHQD.shape[-1]
    scores_BHQK = tf.matmul(query_BHQD * depth**-0.5, keys_BHKD, transpose_b=True)
    scores_BHQK = tf.cast(scores_BHQK, tf.float32)
    if may_attend is not None:
        scores_BHQK = tf.where(may_attend, scores_BHQK, scores_BHQK.dtype.min)
    return tf.nn.softmax(scores_BHQK)


def scaled_dot_product_attention(
    query_BHQD, keys_BHKD, values_BHKD, may_attend=None, dropout=lambda weights: weights
):
    """Return Attended: softmax(Q Kᵀ / √d_k) V as (B, H, Q, D), and the weights (equation 1).

    `dropout` is applied to the weights that make the output; those returned are without it.
    """
    weights_BHQK = attention_weights(query_BHQD, keys_BHKD, may_attend)
    dropped_BHQK = dropout(tf.cast(weights_BHQK, values_BHKD.dtype))
    return Attended(tf.matmul(dropped_BHQK, values_BHKD), weights_BHQK)


@keras.saving.register_keras_serializable("nmt")
class MultiHeadAttention(keras.layers.Layer):
    """Attention by several heads, each in its own projection of the same vectors (section 3.2.2).

    `project` makes keys and values, `attend` uses them: the decoder can so keep what it projected
    before. The layer itself remembers nothing between calls.
    """

    def __init__(self, d_model, num_heads, dropout_rate=0.0, **kwargs):
        super().__init__(**kwargs)
        if d_model % num_heads:
            raise ValueError(
                f"d_model must be divisible by num_heads; received d_model={d_model}, "
                f"num_heads={num_heads}"
            )
        self.d_model = d_model
        self.num_heads = num_heads
        self.dropout_rate = dropout_rate
        self.dropout = Dropout(dropout_rate, dtype=self.dtype_policy)
        # The projections have biases, as in Keras and the tutorials; the paper writes none.
        dense = dict(units=d_model, dtype=self.dtype_policy)
        self.query = Dense(name="query", **dense)
        self.key = Dense(name="key", **dense)
        self.value = Dense(name="value", **dense)
        self.output_projection = Dense(name="output", **dense)

    def build(self, input_shape=None):
        """Build the four projections; their shapes do not depend on the input's."""
        for projection in (self.query, self.key, self.value, self.output_projection):
            projection.build((None, None, self.d_model))
        self.built = True

    def project(self, memory_BKM) -> KeysValues:
        """Return the keys and values of (B, K, M) vectors to attend to."""
        return KeysValues(
            self._split_heads(self.key(memory_BKM)), self._split_heads(self.value(memory_BKM))
        )

    def attend(
        self, query_BQM, keys_values: KeysValues, may_attend=None, training=False
    ) -> Attended:
        """Attend from (B, Q, M) vectors to what `project` returned.

        Args:
          query_BQM: (B, Q, M) vectors that ask.
          keys_values: from `project`.
          may_attend: bool, broadcastable to (B, H, Q, K), True = may attend; None: everything.
          training: whether dropout of the weights is on.

        Returns:
          Attended with output (B, Q, M) and weights (B, H, Q, K).
        """
        query_BHQD = self._split_heads(self.query(query_BQM))
        output_BHQD, weights_BHQK = scaled_dot_product_attention(
            query_BHQD,
            keys_values.keys,
            keys_values.values,
            may_attend,
            lambda weights: self.dropout(weights, training=training),
        )
        joined_BQM = self._join_heads(output_BHQD)
        return Attended(self.output_projection(joined_BQM), weights_BHQK)

    def call(self, query, memory, may_attend=None, training=False) -> Attended:
        """Project `memory` (B, K, M) and attend to it from `query` (B, Q, M)."""
        return self.attend(query, self.project(memory), may_attend, training)

    def _split_heads(self, x_BKM):
        shape = tf.shape(x_BKM)
        depth = self.d_model // self.num_heads
        x_BKHD = tf.reshape(x_BKM, [shape[0], shape[1], self.num_heads, depth])
        return tf.transpose(x_BKHD, [0, 2, 1, 3])

    def _join_heads(self, x_BHQD):
        shape = tf.shape(x_BHQD)
        return tf.reshape(tf.transpose(x_BHQD, [0, 2, 1, 3]), [shape[0], shape[2], self.d_model])

    def get_config(self):
        """Return the arguments that make this layer again."""
        return {
            **super().get_config(),
            "d_model": self.d_model,
            "num_heads": self.num_heads,
            "dropout_rate": self.dropout_rate,
        }
