"""Training states on disk: everything that a stopped training needs to go on."""

import logging
import re
import shutil
from pathlib import Path

import keras
import tensorflow as tf

from nmt.config import ConfigError
from nmt.model.transformer import Transformer
from nmt.model.weights import architecture, check_architecture

log = logging.getLogger(__name__)


class Checkpoints:
    """Saves and restores model, optimizer, averaged model and time spent.

    The position in the data is not among them: it follows from the optimizer's step count.
    A checkpoint is found by its name, `step-N`. (tf.train.CheckpointManager would look into a
    list kept beside them, and start from step 0 without a word if that is lost.)
    """

    def __init__(
        self,
        folder: Path,
        model: Transformer,
        optimizer: keras.optimizers.Optimizer,
        averaged: Transformer,
        keep: int,
    ):
        self._folder = folder
        self._model = model
        self._optimizer = optimizer
        self._keep = keep
        self._minutes = tf.Variable(0.0, dtype=tf.float64)
        self._architecture = tf.Variable(architecture(model.config))
        # Explicit lists, so that nothing is left out: a Checkpoint of the model itself would
        # silently miss the state of the dropout generators.
        self._checkpoint = tf.train.Checkpoint(
            model=[variable.value for variable in model.variables],
            optimizer=[variable.value for variable in optimizer.variables],
            averaged=[variable.value for variable in averaged.trainable_variables],
            minutes=self._minutes,
            architecture=self._architecture,
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
        # TensorFlow writes beside and renames, the index last: there is no half a checkpoint.
        self._checkpoint.write(str(self._folder / f"step-{self.step}"))
        for step in self._steps()[self._keep :]:
            for file in self._folder.glob(f"step-{step}.*"):
                file.unlink()
        for litter in self._folder.glob("step-*_temp*"):  # of a process that was killed
            shutil.rmtree(litter)

    def restore(self) -> bool:
        """Restore the newest checkpoint that is whole; say whether there is any checkpoint.

        Raises:
          ConfigError: there are checkpoints, but none fits. To start again from step 0 would
            throw work away, so that is left to the user.
        """
        steps = self._steps()
        for step in steps:
            path = self._folder / f"step-{step}"
            try:
                # Without the assertion a checkpoint of another model "restores" successfully.
                self._checkpoint.read(str(path)).assert_consumed()
                check_architecture(self._architecture.numpy().decode(), self._model.config)
                return True
            except (
                *(tf.errors.OpError, ValueError, AssertionError),
                *(IndexError, RuntimeError),  # of TensorFlow's reader, for a file cut short
            ) as error:
                reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
                log.warning("%s: cannot restore, trying the one before: %s", path, reason)
        if steps:
            raise ConfigError(
                f"{self._folder}: none of the {len(steps)} checkpoints can be restored; "
                f"delete the folder to train again from the start"
            )
        return False

    def _steps(self):
        """Return the steps of which there are files, newest first."""
        names = [re.fullmatch(r"step-(\d+)\..+", file.name) for file in self._folder.glob("step-*")]
        return sorted({int(name[1]) for name in names if name}, reverse=True)
