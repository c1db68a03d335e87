"""Search over a step function. Knows no model and no text.

Axis legend: B batch, T target length, V vocabulary.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

# Given the newest token of each hypothesis (B,) int32 and a state (any nest of tensors), returns
# log-probabilities (B, V) float32 of the next token, and the state that goes with them.
StepFunction = Callable[[tf.Tensor, Any], tuple[tf.Tensor, Any]]


class Hypotheses(NamedTuple):
    """What a search found for each sentence of the batch."""

    ids: tf.Tensor  # (B, T) int32: tokens EOS PAD..., without BOS
    lengths: tf.Tensor  # (B,) int32: tokens, EOS included
    scores: tf.Tensor  # (B,) float32: sum of the log-probabilities of the tokens
    truncated: tf.Tensor  # (B,) bool: stopped by the length limit, not by EOS


def greedy(step: StepFunction, state, max_lengths, *, bos: int, eos: int, pad: int) -> Hypotheses:
    """Take the most likely token at every step until EOS or the maximum length.

    Args:
      step: the step function; never called for sentences alone, so a finished one goes on being
        computed until all are done, but nothing of it is used.
      state: the state before the first token.
      max_lengths: (B,) int32, most tokens of each sentence, EOS included, >= 1. A sentence's
        limit is its own, so its translation does not depend on its neighbours.
      bos: id that begins a sentence.
      eos: id that ends one.
      pad: id behind the end. Neither BOS nor PAD is ever chosen.

    Returns:
      Hypotheses.
    """
    batch = tf.shape(max_lengths)[0]
    longest = tf.reduce_max(max_lengths)
    # Written once, left-to-right; what stays unwritten is padding.
    written = tf.TensorArray(tf.int32, size=longest, element_shape=[None])
    forbidden = tf.constant([bos, pad])

    def not_done(position, ids, finished, *_):
        return (position < longest) & ~tf.reduce_all(finished)

    def body(position, ids, finished, lengths, scores, written, state):
        log_probs, state = step(ids, state)
        never = tf.reduce_any(tf.range(tf.shape(log_probs)[1])[:, None] == forbidden, axis=1)
        log_probs = tf.where(never[None], log_probs.dtype.min, log_probs)
        ids = tf.argmax(log_probs, axis=-1, output_type=tf.int32)
        chosen = tf.gather(log_probs, ids, batch_dims=1)
        scores += tf.where(finished, 0.0, chosen)
        lengths += tf.cast(~finished, tf.int32)
        ids = tf.where(finished, pad, ids)
        written = written.write(position, ids)
        finished |= (ids == eos) | (lengths >= max_lengths)
        return position + 1, ids, finished, lengths, scores, written, state

    start = (
        tf.constant(0),
        tf.fill([batch], bos),
        tf.zeros([batch], tf.bool),
        tf.zeros([batch], tf.int32),
        tf.zeros([batch], tf.float32),
        written,
        state,
    )
    # A cache grows from step to step, so its shape is not fixed.
    free = tf.nest.map_structure(lambda tensor: tf.TensorShape([None] * len(tensor.shape)), state)
    shapes = (tf.TensorShape([]), *[tf.TensorShape([None])] * 4, tf.TensorShape(None), free)
    _, _, _, lengths, scores, written, _ = tf.while_loop(
        not_done, body, start, shape_invariants=shapes
    )
    ids = tf.transpose(written.stack())[:, : tf.reduce_max(lengths)]
    last = tf.gather(ids, tf.maximum(lengths - 1, 0), batch_dims=1)
    return Hypotheses(ids, lengths, scores, last != eos)
