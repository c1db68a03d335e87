"""The loss. Sums and token counts travel together and are divided once, at the end."""

from typing import NamedTuple

import tensorflow as tf

from nmt.text.tokenizer import PAD


class TokenSums(NamedTuple):
    """Sums over real target tokens; add up those of several batches, then divide."""

    loss: tf.Tensor  # scalar float32, nats
    correct: tf.Tensor  # scalar float32, tokens whose most likely prediction is right
    tokens: tf.Tensor  # scalar float32


def smoothed_cross_entropy(logits, labels, smoothing=0.0):
    """Return the cross-entropy of each label against the smoothed target distribution.

    The target puts 1 - smoothing on the label and spreads `smoothing` evenly over all V tokens,
    the label included. Its own entropy is the least the loss can be: 1.22 for V = 8,000 and 0.1,
    so a loss that stays there is perfect, not stuck.

    Args:
      logits: (N, V) float32.
      labels: (N,) int32.
      smoothing: epsilon_ls, 0 <= smoothing < 1.

    Returns:
      (N,) float32, nats. Source: Szegedy et al. 2016, section 7; Vaswani et al. 2017, 5.4.
    """
    vocab_size = tf.cast(tf.shape(logits)[-1], logits.dtype)
    index = tf.stack([tf.range(tf.size(labels)), labels], axis=1)  # (N, 2)

    # The gradient by hand, probabilities - target, in one (N, V) array: TensorFlow's own chain
    # makes several, and takes four times as long.
    @tf.custom_gradient
    def loss_of(logits):
        probabilities = tf.nn.softmax(logits)
        # Relative to the largest logit, so that no digits are lost; its probability is at least
        # 1/V, so the logarithm is safe.
        largest = tf.reduce_max(logits, -1)
        loss = -tf.math.log(tf.reduce_max(probabilities, -1))
        loss -= (1 - smoothing) * (tf.gather_nd(logits, index) - largest)
        if smoothing:
            loss -= smoothing * (tf.reduce_mean(logits, -1) - largest)

        def gradient(upstream):
            spread = upstream[:, None] * (probabilities - smoothing / vocab_size)
            return tf.tensor_scatter_nd_sub(spread, index, (1 - smoothing) * upstream)

        return loss, gradient

    return loss_of(logits)


def token_sums(logits, labels, smoothing=0.0) -> TokenSums:
    """Sum loss and hits over the labels that are not padding.

    Args:
      logits: (..., V) float32.
      labels: (...) int32; PAD counts nothing, and if all are PAD every sum is 0.
      smoothing: see `smoothed_cross_entropy`.
    """
    labels = tf.reshape(labels, [-1])
    logits = tf.reshape(logits, [-1, logits.shape[-1]])
    real = labels != PAD
    losses = smoothed_cross_entropy(logits, labels, smoothing)
    # A hit: nothing is more likely than the label.
    hits = tf.gather(logits, labels, batch_dims=1) >= tf.reduce_max(logits, axis=-1)
    return TokenSums(
        # where, not times: were padding's own loss not a number, 0 times it would not be 0.
        tf.reduce_sum(tf.where(real, losses, 0.0)),
        tf.reduce_sum(tf.cast(hits & real, tf.float32)),
        tf.reduce_sum(tf.cast(real, tf.float32)),
    )
