"""From models to a step function: what a search asks, with a cache so that nothing is read twice.

Axis legend: B batch, N hypotheses of a sentence side by side, S source length, V vocabulary.
"""

from collections.abc import Sequence

import tensorflow as tf

from nmt.decoding.search import StepFunction
from nmt.model.attention import KeysValues
from nmt.model.transformer import Transformer


def cached_step(
    models: Sequence[Transformer], source_ids, paths: int, room: int | None = None
) -> tuple[StepFunction, tuple]:
    """Read the sources; return the step function of their translations, and its first state.

    Args:
      models: one, or several that vote: the mean of their probabilities.
      source_ids: (B, S) int32, each row closed by EOS, then PAD.
      paths: N.
      room: positions that the cache has from the start, in shapes that never change, for a
        compiler; None: it grows with every step, which computes less.
    """
    sources = [model.encode(source_ids) for model in models]
    memories = [model.project_memory(source) for model, source in zip(models, sources, strict=True)]
    batch = source_ids.shape[0] or tf.shape(source_ids)[0]  # a compiler wants to know

    def empty(keys_values):
        heads, depth = keys_values.keys.shape[1], keys_values.keys.shape[3]
        nothing = tf.zeros([batch, paths, heads, room or 0, depth], keys_values.keys.dtype)
        return KeysValues(nothing, nothing)

    def step(newest_BN, state):
        position, pasts = state
        votes, new_pasts = [], []
        for model, source, memory, past in zip(models, sources, memories, pasts, strict=True):
            decoded = model.decode(
                tf.reshape(newest_BN, [-1, 1]),
                memory,
                source.may_attend,
                tf.nest.map_structure(_joined, past),
                None if room is None else position[0, 0],
            )
            log_probs = tf.nn.log_softmax(model.project(decoded.hidden[:, 0]))  # (B·N, V)
            votes.append(tf.reshape(log_probs, [batch, paths, log_probs.shape[-1]]))
            new_pasts.append(
                tf.nest.map_structure(lambda x: _parted(x, batch, paths), decoded.past)
            )
        return mean_probability(votes), (position + 1, new_pasts)

    position = tf.zeros([batch, paths], tf.int32)
    return step, (position, [[empty(layer) for layer in memory] for memory in memories])


def mean_probability(votes: Sequence[tf.Tensor]):
    """Return the log of the mean of the probabilities whose logs are `votes`, all (..., V)."""
    if len(votes) == 1:
        return votes[0]
    return tf.reduce_logsumexp(tf.stack(votes), axis=0) - tf.math.log(float(len(votes)))


def _joined(tensor):
    """Return (B, N, ...) as the model takes it: (B·N, ...)."""
    return tf.reshape(tensor, tf.concat([[-1], tf.shape(tensor)[2:]], axis=0))


def _parted(tensor, batch, paths):
    return tf.reshape(tensor, tf.concat([[batch, paths], tf.shape(tensor)[1:]], axis=0))
