"""From models to a step function: what a search asks, with a cache so that nothing is read twice.

Axis legend: B batch, N hypotheses of a sentence side by side, S source length, V vocabulary.
"""

from collections.abc import Sequence

import tensorflow as tf

from nmt.config import ModelConfig
from nmt.decoding.arranged import Arranged, read_source, read_token
from nmt.decoding.search import StepFunction
from nmt.model.attention import KeysValues


def cached_step(
    models: Sequence[tuple[Arranged, ModelConfig]], source_ids, paths: int, room: int | None = None
) -> tuple[StepFunction, tuple]:
    """Read the sources; return the step function of their translations, and its first state.

    Args:
      models: arranged weights and shape of one model, or of several that vote: the mean of their
        probabilities.
      source_ids: (B, S) int32, each row closed by EOS, then PAD.
      paths: N.
      room: positions that the cache has from the start, in shapes that never change, for a
        compiler; None: it grows with every step, which computes less.
    """
    memories = [
        read_source(weights, config, source_ids, fixed_shapes=room is not None)
        for weights, config in models
    ]
    batch = source_ids.shape[0] or tf.shape(source_ids)[0]  # a compiler wants to know

    def nothing(config):
        depth = config.d_model // config.num_heads
        empty = tf.zeros([batch, paths, config.num_heads, room or 0, depth])
        return [KeysValues(empty, empty) for _ in range(config.num_layers)]

    def step(newest_BN, state):
        position, pasts = state
        votes, new_pasts = [], []
        for (weights, config), memory, past in zip(models, memories, pasts, strict=True):
            logits, new_past = read_token(
                *(weights, config, newest_BN, position[0, 0], memory, past, room is not None)
            )
            votes.append(tf.nn.log_softmax(logits))
            new_pasts.append(new_past)
        return mean_probability(votes), (position + 1, new_pasts)

    position = tf.zeros([batch, paths], tf.int32)
    return step, (position, [nothing(config) for _, config in models])


def mean_probability(votes: Sequence[tf.Tensor]):
    """Return the log of the mean of the probabilities whose logs are `votes`, all (..., V)."""
    if len(votes) == 1:
        return votes[0]
    return tf.reduce_logsumexp(tf.stack(votes), axis=0) - tf.math.log(float(len(votes)))
