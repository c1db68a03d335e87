"""The training loop."""

import logging
import math
from collections.abc import Callable

import tensorflow as tf

from nmt.config import ConfigError, TrainingConfig
from nmt.data.batches import batches_from, plan_epoch
from nmt.data.prepared import encode_pairs, load_held_out, load_train
from nmt.decoding.translator import Translator
from nmt.model.transformer import Transformer, build_transformer
from nmt.model.weights import load_weights, save_weights
from nmt.run_folder import RunFolder
from nmt.training.checkpoints import Checkpoints, mean_weights, steps_in
from nmt.training.interrupts import Interrupts
from nmt.training.metrics import Meter, Metrics, Report
from nmt.training.optimizer import make_optimizer
from nmt.training.schedule import WarmupSchedule
from nmt.training.step import make_train_step, move_averages
from nmt.training.strategy import keras_policy
from nmt.training.validation import Validation, make_predict, translation_bleu, validate
from nmt.training.workers import Workers, one_device

log = logging.getLogger(__name__)

# Updates between two reports; each report is one line in metrics.jsonl.
REPORT_STEPS = 20


class TrainingError(RuntimeError):
    """Training cannot go on; the last good checkpoint is untouched."""


def train(
    run: RunFolder,
    on_report: Callable[[Report], None],
    workers: Workers | None = None,
    optimizer_for: Callable | None = None,
) -> Validation | None:
    """Train a prepared run up to the first of its limits, going on from its last checkpoint.

    Args:
      run: gets checkpoints, metrics and model.weights.h5: with `validation_sentences` the
        weights of the best BLEU so far, otherwise those of the last checkpoint.
      on_report: called every REPORT_STEPS steps.
      workers: who trains together, all with the same run folder; None: this process alone.
      optimizer_for: from a learning-rate schedule to a Keras optimizer; None: the configuration's.

    Returns:
      The validation of the final weights, on the chief; None on the other workers.

    Raises:
      TrainingError: loss or gradient are no longer finite numbers, or the workers disagree.
      KeyboardInterrupt: Ctrl-C or SIGTERM, after a checkpoint has been written.
    """
    workers = workers or one_device()
    config = run.config().training
    if config.deterministic:
        tf.config.experimental.enable_op_determinism()
    data = load_train(run)
    epoch_steps = len(plan_epoch(data, config.batch_tokens, config.seed, epoch=0))
    schedule = WarmupSchedule(
        run.config().model.d_model, config.warmup_steps, config.peak_learning_rate
    )
    with workers.strategy.scope():
        model = build_transformer(run.model_config(), config.seed, keras_policy(config.precision))
        optimizer = optimizer_for(schedule) if optimizer_for else make_optimizer(config, schedule)
        optimizer.build(model.trainable_variables)
    # What is validated and kept: a moving average of the weights, or the weights themselves.
    averaged = build_transformer(run.model_config()) if config.weight_average else model
    averaged.set_weights(model.get_weights())
    checkpoints = Checkpoints(
        *(run.checkpoints, model, optimizer, averaged),
        keep=config.keep_checkpoints,
        fingerprint=run.fingerprint(),
    )
    state = checkpoints.restore() or {}
    step = checkpoints.step
    if state:
        log.info("going on from step %s", f"{step:,}")
    meter = Meter(state.get("minutes", 0.0), state.get("sums", (0.0, 0.0, 0.0)))
    keeper = _Keeper(run, averaged, state)
    if workers.is_chief:
        keeper.start(step)
    train_step = make_train_step(model, optimizer, config, workers.strategy)

    def save_state():
        check_weights(step, model)
        checkpoints.save({"minutes": meter.minutes(), "sums": meter.sums, **keeper.state()})

    saved_at = meter.minutes()
    with Interrupts() as interrupts:
        for batch in batches_from(data, config.batch_tokens, config.seed, step):
            # What the chief says of time and patience holds for all; anyone may be interrupted.
            minutes, patience_lost, interrupted, steps = workers.sum(
                [meter.minutes(), keeper.patience_lost, interrupts.asked, step]
                if workers.is_chief
                else [0.0, 0.0, interrupts.asked, step]
            )
            if steps != step * workers.size:
                raise TrainingError(
                    f"step {step:,}: another worker is at another step: all workers need the same "
                    f"run folder, on storage that they share"
                )
            done = share_done(config, step, step / epoch_steps, minutes)
            if interrupted or patience_lost or (done is not None and done >= 1):
                break
            sums, gradient_norm = train_step(*batch)
            step += 1
            check_finite(step, schedule, loss=float(sums.loss), gradient_norm=float(gradient_norm))
            meter.add(sums, batch)
            if config.weight_average:
                move_averages(averaged, model, step, config.weight_average)
            if not workers.is_chief:
                continue
            if step % REPORT_STEPS == 0:
                report = meter.report(step, step / epoch_steps, float(schedule(step - 1)), done)
                keeper.metrics.write(report)
                on_report(report)
            if checkpoint_due(config, step, meter.minutes() - saved_at):
                keeper.validate(step, schedule)
                save_state()
                saved_at = meter.minutes()
        if workers.is_chief:
            if not interrupted:
                keeper.validate(step, schedule)
            save_state()
            keeper.complete()
    if interrupted:
        raise KeyboardInterrupt
    return keeper.validation if workers.is_chief else None


class _Keeper:
    """On the chief: validates, remembers the best, and keeps its weights."""

    metrics: Metrics

    def __init__(self, run: RunFolder, averaged: Transformer, state: dict):
        self._run = run
        self._averaged = averaged
        self._config = run.config()
        tokenizers = run.tokenizers()
        self._pairs = load_held_out(run, "validation")
        self._encoded = encode_pairs(self._pairs, *tokenizers)
        self._predict = make_predict(averaged)
        self._translator = Translator([averaged], *tokenizers)
        # Of the best so far: BLEU, then loss, which tells early weights of BLEU 0 apart.
        self._best: tuple[float, float] = tuple(state.get("best", (-1.0, 0.0)))
        self._worse: int = state.get("worse", 0)  # validations since the best
        last = state.get("validation")
        self.validation = Validation(*last) if last else None

    def start(self, step: int) -> None:
        """Open the files that only one process may write, at `step`."""
        self.metrics = Metrics(self._run, step)

    @property
    def patience_lost(self) -> bool:
        """Whether as many validations as `patience` brought no better BLEU."""
        patience = self._config.training.patience
        return patience is not None and self._worse >= patience

    def state(self) -> dict:
        """Return what has to survive a stop."""
        return {
            "best": self._best,
            "worse": self._worse,
            "validation": self.validation,
        }

    def validate(self, step: int, schedule: WarmupSchedule) -> None:
        """Validate, log it, and keep the weights if none before were better; once for a step."""
        if self.validation and self.validation.step == step:
            return
        validation = validate(self._predict, self._encoded, step)
        # A wrecked model must not take the place of a good one: look first, then save.
        check_finite(step, schedule, validation_loss=validation.validation_loss)
        sentences = self._config.training.validation_sentences
        if sentences:
            language = self._config.data.target_language
            bleu = translation_bleu(self._translator, self._pairs[:sentences], language)
            validation = validation._replace(validation_bleu=bleu)
            quality = bleu, -validation.validation_loss
            self._worse = 0 if quality > self._best else self._worse + 1
            self._best = max(quality, self._best)
        self.metrics.write(validation)
        self.validation = validation
        # Before the checkpoint: killed between the two, the training does this step over again.
        if not sentences or self._worse == 0:
            save_weights(self._averaged, self._run.weights_file)

    def complete(self) -> None:
        """Leave weights to translate with, whenever the training was stopped."""
        if not self._run.weights_file.is_file() or not self._config.training.validation_sentences:
            save_weights(self._averaged, self._run.weights_file)


def checkpoint_due(config: TrainingConfig, step: int, minutes: float) -> bool:
    """Say whether it is time for a checkpoint, `minutes` after the last one."""
    if config.checkpoint_steps:
        return step % config.checkpoint_steps == 0
    return minutes >= config.checkpoint_minutes


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


def average_checkpoints(run: RunFolder, last: int) -> tuple[list[int], Validation, Validation]:
    """Make model.weights.h5 the mean of the weights in the `last` checkpoints of a run.

    Returns:
      The steps, and the validation loss of the weights file before and after.

    Raises:
      ConfigError: there are not so many checkpoints, or one cannot be read.
    """
    steps = steps_in(run.checkpoints)[:last]
    if len(steps) < last:
        raise ConfigError(
            f"{run.checkpoints}: has {len(steps)} checkpoints, not {last}; "
            f"training.keep_checkpoints says how many are kept"
        )
    model = build_transformer(run.model_config())
    predict = make_predict(model)
    pairs = encode_pairs(load_held_out(run, "validation"), *run.tokenizers())
    load_weights(model, run.weights_file)
    before = validate(predict, pairs, steps[0])
    weights = mean_weights(run.checkpoints, steps)
    for variable, value in zip(model.trainable_variables, weights, strict=True):
        variable.assign(value)
    save_weights(model, run.weights_file)
    return steps, before, validate(predict, pairs, steps[0])
