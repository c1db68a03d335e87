"""The training loop, and the few things it is made of."""

import json
import logging
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from nmt.config import TrainingConfig
from nmt.data.batches import Batch, batches_from, make_batch, plan_epoch
from nmt.data.prepared import Prepared, encode_pairs, load_held_out, load_train
from nmt.model.transformer import Transformer, build_transformer
from nmt.model.weights import save_weights
from nmt.run_folder import RunFolder, write_text
from nmt.text.tokenizer import PAD
from nmt.training.checkpoints import Checkpoints
from nmt.training.losses import TokenSums, token_sums
from nmt.training.optimizer import FusedAdam
from nmt.training.schedule import WarmupSchedule
from nmt.training.strategy import keras_policy, split_rows

log = logging.getLogger(__name__)

# Updates between two reports; each report is one line in metrics.jsonl.
REPORT_STEPS = 20

# Updates between two steps of the averaged weights: a pass over the memory is worth sparing.
AVERAGE_STEPS = 10


class TrainingError(RuntimeError):
    """Training cannot go on; the last good checkpoint is untouched."""


class Report(NamedTuple):
    """Where the training stands; loss, accuracy and speed are means since the report before."""

    step: int
    epoch: float  # passes over the training pairs so far
    minutes: float  # spent training, all starts together
    loss: float  # nats a target token, label smoothing included
    token_accuracy: float  # share of target tokens whose most likely prediction is right
    learning_rate: float
    tokens_per_second: float  # source and target tokens, padding not counted
    done: float | None  # share of the way to the nearest limit, 0 to 1; None without a limit


class Validation(NamedTuple):
    """How well the held-out validation pairs are predicted, given the reference so far."""

    step: int
    validation_loss: float  # nats a target token, without label smoothing
    validation_accuracy: float


def train(run: RunFolder, on_report: Callable[[Report], None]) -> Validation:
    """Train a prepared run up to the first of its limits, going on from its last checkpoint.

    Args:
      run: gets checkpoints, metrics.jsonl and, with every checkpoint, model.weights.h5.
      on_report: called every REPORT_STEPS steps.

    Returns:
      The validation of the final weights.

    Raises:
      TrainingError: loss or gradient are no longer finite numbers.
      KeyboardInterrupt: passed on after a checkpoint has been written.
    """
    config = run.config().training
    data = load_train(run)
    model = build_transformer(run.model_config(), config.seed, keras_policy(config.precision))
    # Section 5.3 of the paper.
    schedule = WarmupSchedule(model.config.d_model, config.warmup_steps, config.peak_learning_rate)
    optimizer = FusedAdam(schedule, beta_1=0.9, beta_2=0.98, epsilon=1e-9)
    optimizer.build(model.trainable_variables)
    # What is validated and kept: a moving average of the weights, or the weights themselves.
    averaged = build_transformer(run.model_config()) if config.weight_average else model
    averaged.set_weights(model.get_weights())
    checkpoints = Checkpoints(
        run.checkpoints, model, optimizer, averaged, keep=config.keep_checkpoints
    )
    if checkpoints.restore():
        log.info("going on from step %s", f"{checkpoints.step:,}")
    step = checkpoints.step
    metrics = Metrics(run.metrics_file, step)
    meter = Meter(checkpoints.minutes)
    train_step = make_train_step(model, optimizer, config)
    predict = make_predict(averaged)
    validation_pairs = encode_pairs(load_held_out(run, "validation"), *run.tokenizers())
    epoch_steps = len(plan_epoch(data, config.batch_tokens, config.seed, epoch=0))

    def save():
        check_weights(step, model)
        checkpoints.save(meter.minutes())
        save_weights(averaged, run.weights_file)

    def validate_and_save():
        validation = validate(predict, validation_pairs, step)
        # A wrecked model must not take the place of a good one: look first, then save.
        check_finite(step, schedule, validation_loss=validation.validation_loss)
        save()
        metrics.write(validation)
        return validation

    saved_at = meter.minutes()
    try:
        for batch in batches_from(data, config.batch_tokens, config.seed, step):
            done = share_done(config, step, step / epoch_steps, meter.minutes())
            if done is not None and done >= 1:
                break
            sums, gradient_norm = train_step(*batch)
            step += 1
            check_finite(step, schedule, loss=float(sums.loss), gradient_norm=float(gradient_norm))
            meter.add(sums, batch)
            if config.weight_average:
                move_averages(averaged, model, step, config.weight_average)
            if step % REPORT_STEPS == 0:
                report = meter.report(step, step / epoch_steps, float(schedule(step - 1)), done)
                metrics.write(report)
                on_report(report)
            if meter.minutes() - saved_at >= config.checkpoint_minutes:
                validate_and_save()
                saved_at = meter.minutes()
    except KeyboardInterrupt:
        save()
        raise
    return validate_and_save()


def make_train_step(model: Transformer, optimizer: FusedAdam, config: TrainingConfig):
    """Return a tf.function that makes one update from a batch, traced once for all shapes.

    Its arguments are the fields of a Batch; it returns TokenSums and the gradient's global norm.
    """
    ids = tf.TensorSpec([None, None], tf.int32)
    weights = model.trainable_variables

    def sums_of(source_ids, target_in_ids, target_out_ids):
        encoded = model.encode(source_ids, training=True)
        memory = model.project_memory(encoded)
        decoded = model.decode(target_in_ids, memory, encoded.may_attend, training=True)
        # The final layer is a third of the work: it is spared the padding.
        real = tf.where(target_out_ids != PAD)
        logits = model.project(tf.gather_nd(decoded.hidden, real))  # (real tokens, V)
        labels = tf.gather_nd(target_out_ids, real)
        return token_sums(logits, labels, config.label_smoothing)

    @tf.function(input_signature=[ids, ids, ids])
    def train_step(*batch):
        with tf.GradientTape() as tape:
            parts = [sums_of(*part) for part in split_rows(batch, config.batch_parts)]
            sums = TokenSums(*(tf.add_n(values) for values in zip(*parts, strict=True)))
            loss = sums.loss / sums.tokens
        # Embedding gradients come as slices; made whole, Adam treats all weights alike.
        gradients = [tf.convert_to_tensor(g) for g in tape.gradient(loss, weights)]
        optimizer.apply_gradients(zip(gradients, weights, strict=True))
        return sums, tf.linalg.global_norm(gradients)

    return train_step


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


def make_predict(model: Transformer):
    """Return a tf.function from source and target-in ids to logits, traced once for all shapes."""
    ids = tf.TensorSpec([None, None], tf.int32)
    return tf.function(lambda *inputs: model(inputs), input_signature=[ids, ids])


def validate(predict: Callable, pairs: Prepared, step: int) -> Validation:
    """Predict every token of `pairs` from the reference before it."""
    loss = correct = tokens = 0.0
    sources, targets = pairs.source.split(), pairs.target.split()
    for indices in plan_epoch(pairs, batch_tokens=4096, seed=0, epoch=0):
        batch = make_batch([sources[i] for i in indices], [targets[i] for i in indices])
        logits = predict(batch.source_ids, batch.target_in_ids)
        sums = token_sums(logits, batch.target_out_ids)
        loss += float(sums.loss)
        correct += float(sums.correct)
        tokens += float(sums.tokens)
    return Validation(step, loss / tokens, correct / tokens)


def share_done(config: TrainingConfig, step: int, epoch: float, minutes: float) -> float | None:
    """Return how much of the way to the nearest limit is done; None without a limit."""
    limits = [
        (step, config.max_steps),
        (epoch, config.max_epochs),
        (minutes, config.max_minutes),
    ]
    return max((spent / limit for spent, limit in limits if limit), default=None)


def check_finite(step: int, schedule: WarmupSchedule, **values: float) -> None:
    """Raise TrainingError if one of `values` is not a finite number, before anything is saved."""
    if not all(map(math.isfinite, values.values())):
        found = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in values.items())
        raise TrainingError(
            f"step {step}: {found} at learning rate {float(schedule(step - 1)):.3g}; the "
            f"checkpoints before it are untouched. Try a lower training.peak_learning_rate or a "
            f"longer training.warmup_steps"
        )


def check_weights(step: int, model: Transformer) -> None:
    """Raise TrainingError if a weight is no longer a finite number."""
    for variable in model.trainable_variables:
        if not tf.reduce_all(tf.math.is_finite(variable.value)):
            raise TrainingError(
                f"step {step}: {variable.path} is no longer finite; nothing is saved, and the "
                f"checkpoints before it are untouched"
            )


class Meter:
    """Adds up what happens between two reports."""

    def __init__(self, minutes_before: float):
        self._started = time.perf_counter() - 60 * minutes_before
        self._sums = TokenSums(0.0, 0.0, 0.0)
        self._source_and_target = 0.0
        self._since = time.perf_counter()

    def minutes(self) -> float:
        """Return the minutes spent training, all starts together."""
        return (time.perf_counter() - self._started) / 60

    def add(self, sums: TokenSums, batch: Batch) -> None:
        """Count one update."""
        self._sums = TokenSums(
            *(so_far + float(new) for so_far, new in zip(self._sums, sums, strict=True))
        )
        real = np.count_nonzero(batch.source_ids != PAD) + float(sums.tokens)
        self._source_and_target += real

    def report(self, step: int, epoch: float, rate: float, done: float | None) -> Report:
        """Return the means since the last report, and begin again."""
        seconds = time.perf_counter() - self._since
        report = Report(
            step=step,
            epoch=epoch,
            minutes=self.minutes(),
            loss=self._sums.loss / self._sums.tokens,
            token_accuracy=self._sums.correct / self._sums.tokens,
            learning_rate=rate,
            tokens_per_second=self._source_and_target / seconds,
            done=done,
        )
        self._sums = TokenSums(0.0, 0.0, 0.0)
        self._source_and_target = 0.0
        self._since = time.perf_counter()
        return report


class Metrics:
    """metrics.jsonl: one JSON object a line, appended."""

    def __init__(self, path: Path, step: int):
        """Open the file for a training that is at `step`: later lines belong to a lost future."""
        self._path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        kept = [line for line in lines if line.endswith("}") and json.loads(line)["step"] <= step]
        write_text(path, "".join(line + "\n" for line in kept))

    def write(self, record: Report | Validation) -> None:
        """Append a record."""
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(record._asdict()) + "\n")
