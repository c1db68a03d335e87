"""Attention masks: boolean, True = may attend, broadcastable to (B, H, Q, K). Made only here."""

import tensorflow as tf

from nmt.text.tokenizer import PAD


def padding_mask(ids_BK):
    """Return which positions hold a token, so that nobody attends to padding.

    Args:
      ids_BK: (B, K) int32 token ids.

    Returns:
      (B, 1, 1, K) bool.
    """
    return (ids_BK != PAD)[:, None, None, :]


def look_ahead_mask(query_length, key_length):
    """Return which keys each query may see when none may see what comes after it.

    The queries are the last `query_length` of the `key_length` positions: in training these are
    all of them, in cached decoding just the newest.

    Args:
      query_length: Q, int or scalar tensor.
      key_length: K >= Q.

    Returns:
      (1, 1, Q, K) bool; for Q = K the lower triangle. Source: section 3.2.3.
    """
    queries = tf.range(key_length - query_length, key_length)
    keys = tf.range(key_length)
    return (keys[None, :] <= queries[:, None])[None, None]
