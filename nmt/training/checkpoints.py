"""Training states on disk: everything that a stopped training needs to go on."""

import logging
from pathlib import Path

import keras
import tensorflow as tf

from nmt.config import ConfigError

log = logging.getLogger(__name__)


class Checkpoints:
    """Saves and restores model, optimizer, averaged model and time spent.

    The position in the data is not among them: it follows from the optimizer's step count.
    """

    def __init__(
        self,
        folder: Path,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        averaged: keras.Model,
        keep: int,
    ):
        self._optimizer = optimizer
        self._minutes = tf.Variable(0.0, dtype=tf.float64)
        # Explicit lists, so that nothing is left out: a Checkpoint of the model itself would
        # silently miss the state of the dropout generators.
        self._checkpoint = tf.train.Checkpoint(
            model=[variable.value for variable in model.variables],
            optimizer=[variable.value for variable in optimizer.variables],
            averaged=[variable.value for variable in averaged.trainable_variables],
            minutes=self._minutes,
        )
        self._manager = tf.train.CheckpointManager(
            self._checkpoint, str(folder), max_to_keep=keep, checkpoint_name="step"
        )

    @property
    def step(self) -> int:
        """Updates made so far."""
        return int(self._optimizer.iterations.numpy())

    @property
    def minutes(self) -> float:
        """Minutes of training as of the last save or restore."""
        return float(self._minutes.numpy())

    def save(self, minutes: float) -> None:
        """Write a checkpoint named after the step; older ones beyond `keep` go."""
        self._minutes.assign(minutes)
        self._manager.save(checkpoint_number=self.step)

    def restore(self) -> bool:
        """Restore the newest checkpoint that is whole; say whether there is any checkpoint.

        Raises:
          ConfigError: there are checkpoints, but none fits. To start again from step 0 would
            throw work away, so that is left to the user.
        """
        found = list(reversed(self._manager.checkpoints))
        for path in found:
            try:
                # Without the assertion a checkpoint of another model "restores" successfully.
                self._checkpoint.restore(path).assert_existing_objects_matched()
                return True
            except (tf.errors.OpError, ValueError, AssertionError) as error:
                reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
                log.warning("%s: cannot restore, trying the one before: %s", path, reason)
        if found:
            raise ConfigError(
                f"{Path(found[0]).parent}: none of the {len(found)} checkpoints can be restored; "
                f"delete the folder to train again from the start"
            )
        return False
