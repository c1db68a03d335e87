"""Sinusoidal positions (section 3.5), computed for whatever length is asked."""

import tensorflow as tf


def sinusoidal_positions(length, d_model, start=0):
    """Return the encodings of positions start .. start + length - 1.

    PE(pos, 2i) = sin(pos / 10000^(2i/d_model)) and PE(pos, 2i+1) the cosine of the same, so that
    PE(pos + k) is a linear function of PE(pos): a rotation in each pair.

    Args:
      length: number of positions, int or scalar tensor.
      d_model: M, even.
      start: first position, int or scalar tensor.

    Returns:
      (length, M) float32, sines and cosines interleaved. Source: Vaswani et al. 2017, section 3.5.
    """
    positions = tf.cast(start + tf.range(length), tf.float32)[:, None]  # (length, 1)
    exponents = tf.range(0, d_model, 2, dtype=tf.float32) / d_model  # (M/2,)
    angles = positions / 10000.0**exponents  # (length, M/2)
    return tf.reshape(tf.stack([tf.sin(angles), tf.cos(angles)], axis=-1), [-1, d_model])
