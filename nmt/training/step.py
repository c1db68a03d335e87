"""One update: from a batch to new weights, on one replica or on many."""

import tensorflow as tf

from nmt.config import TrainingConfig
from nmt.model.transformer import Transformer
from nmt.text.tokenizer import PAD
from nmt.training.losses import TokenSums, token_sums
from nmt.training.optimizer import updater
from nmt.training.strategy import rows_of, split_rows

# Updates between two steps of the averaged weights: a pass over the memory is worth sparing.
AVERAGE_STEPS = 10


def make_train_step(
    model: Transformer, optimizer, config: TrainingConfig, strategy: tf.distribute.Strategy = None
):
    """Return a tf.function that makes one update from a batch, traced once for all shapes.

    The batch is the whole, global one on every replica; each takes its share of the rows. So a
    last batch of fewer sentences than replicas needs no special case, and the update is that of
    one machine: the sum of all gradients, over the number of all target tokens.

    Args:
      model: built under `strategy`, as is the optimizer.
      optimizer: a Keras optimizer; it only updates, what comes before is done here.
      config: parts, accumulation, smoothing and clipping.
      strategy: of tf.distribute; None: this one device.

    Returns:
      A function of the fields of a Batch, that gives the TokenSums of the batch and the global
      norm of its gradient before clipping.
    """
    strategy = strategy or tf.distribute.get_strategy()
    ids = tf.TensorSpec([None, None], tf.int32)
    weights = [weight.value for weight in model.trainable_variables]

    def sums_of(source_ids, target_in_ids, target_out_ids):
        encoded = model.encode(source_ids, training=True)
        memory = model.project_memory(encoded)
        decoded = model.decode(target_in_ids, memory, encoded.may_attend, training=True)
        # The final layer is a third of the work: it is spared the padding.
        real = tf.where(target_out_ids != PAD)
        logits = model.project(tf.gather_nd(decoded.hidden, real))  # (real tokens, V)
        labels = tf.gather_nd(target_out_ids, real)
        return token_sums(logits, labels, config.label_smoothing)

    def side_by_side(batch, tokens):
        with tf.GradientTape() as tape:
            parts = [sums_of(*part) for part in split_rows(batch, config.batch_parts)]
            sums = TokenSums(*(tf.add_n(values) for values in zip(*parts, strict=True)))
            loss = sums.loss / tokens
        # Embedding gradients come as slices; made whole, Adam treats all weights alike.
        return sums, [tf.convert_to_tensor(g) for g in tape.gradient(loss, weights)]

    def one_after_another(batch, tokens):
        if config.accumulation == 1:
            return side_by_side(batch, tokens)

        def add_piece(piece, total):
            new = side_by_side(rows_of(batch, piece, config.accumulation), tokens)
            return piece + 1, tf.nest.map_structure(tf.add, total, new)

        nothing = TokenSums(0.0, 0.0, 0.0), [tf.zeros(weight.shape) for weight in weights]
        # A loop in the graph, one turn at a time: each uses the memory of the one before.
        _, total = tf.while_loop(
            lambda piece, _: piece < config.accumulation,
            *(add_piece, (0, nothing)),
            parallel_iterations=1,
        )
        return total

    # Autograph would rewrite every function on the way: a third of the time until the first step.
    @tf.function(input_signature=[ids, ids, ids], autograph=False)
    def train_step(*batch):
        # Of the whole batch, so that the shares of the loss add up to its mean.
        tokens = tf.math.count_nonzero(batch[-1] != PAD, dtype=tf.float32)

        def on_replica():
            replica = tf.distribute.get_replica_context()
            share = rows_of(batch, replica.replica_id_in_sync_group, replica.num_replicas_in_sync)
            sums, gradients = replica.all_reduce("sum", one_after_another(share, tokens))
            norm = tf.linalg.global_norm(gradients)
            if config.clip_norm:
                # All replicas clip the same sum: each clipping its own would be another gradient.
                gradients, _ = tf.clip_by_global_norm(gradients, config.clip_norm, norm)
            apply_summed(optimizer, gradients, weights)
            return sums, norm

        results = strategy.run(on_replica)
        return tf.nest.map_structure(lambda r: strategy.experimental_local_results(r)[0], results)

    return train_step


def apply_summed(optimizer, gradients, weights) -> None:
    """Update `weights` on every replica from gradients that are summed over the replicas already.

    (The `apply` of a Keras optimizer would sum them once more, and its clipping comes before.)
    """
    update = updater(optimizer)
    if not tf.distribute.has_strategy():
        for gradient, weight in zip(gradients, weights, strict=True):
            update(gradient, weight)
        optimizer.iterations.assign_add(1)
        return

    def update_all(strategy, gradients):
        for gradient, weight in zip(gradients, weights, strict=True):
            strategy.extended.update(weight, lambda w, g: update(g, w), (gradient,), group=False)

    tf.__internal__.distribute.interim.maybe_merge_call(
        update_all, tf.distribute.get_strategy(), gradients
    )
    optimizer.iterations.assign_add(1)


def move_averages(averaged: Transformer, model: Transformer, step: int, decay: float) -> None:
    """Move each averaged weight: average = d · average + (1 - d) · weight.

    Every AVERAGE_STEPS updates only. The decay d rises from 0 to `decay`, a decay per update, to
    the power of AVERAGE_STEPS: the random start is forgotten at once.
    """
    moves, rest = divmod(step, AVERAGE_STEPS)
    if rest and moves:
        return
    decay = min(decay**AVERAGE_STEPS, moves / (moves + 9))
    _move_towards(
        [average.value for average in averaged.trainable_variables],
        [weight.value for weight in model.trainable_variables],
        tf.constant(1 - decay),
    )


@tf.function
def _move_towards(averages, weights, share):
    # One graph: as single operations from Python, it took a sixth of the training time.
    for average, weight in zip(averages, weights, strict=True):
        average.assign_add(share * (weight - average))
