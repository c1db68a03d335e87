"""Training states on disk: everything that a stopped training needs to go on."""

import json
import logging
import re
import shutil
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from nmt.config import ConfigError
from nmt.model.transformer import Transformer
from nmt.model.weights import architecture, check_architecture

log = logging.getLogger(__name__)


class Checkpoints:
    """Saves and restores model, optimizer, averaged model and the state of the loop.

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
        fingerprint: dict[str, str],
    ):
        """Tell what to save.

        Args:
          folder: where; made if missing.
          model: what is trained; its variables are saved.
          optimizer: its variables are saved; counts the steps.
          averaged: the model that is validated; its weights are saved.
          keep: number of newest checkpoints that stay.
          fingerprint: hashes of the files that the weights have no meaning without.
        """
        self._folder = folder
        self._model = model
        self._optimizer = optimizer
        self._keep = keep
        self._fingerprint = fingerprint
        # JSON, because Python's own numbers come back from it to the last bit.
        self._facts = tf.Variable("")
        # Explicit lists, so that nothing is left out: a Checkpoint of the model itself would
        # silently miss the state of the dropout generators.
        self._checkpoint = tf.train.Checkpoint(
            model=[variable.value for variable in model.variables],
            optimizer=[variable.value for variable in optimizer.variables],
            averaged=[variable.value for variable in averaged.trainable_variables],
            facts=self._facts,
        )

    @property
    def step(self) -> int:
        """Updates made so far."""
        return int(self._optimizer.iterations.numpy())

    def save(self, state: dict) -> None:
        """Write a checkpoint named after the step; older ones beyond `keep` go.

        Args:
          state: of the training loop, as JSON can hold it.

        Raises:
          OSError: it cannot be written; the checkpoints before it are untouched.
        """
        facts = {
            "architecture": architecture(self._model.config),
            "fingerprint": self._fingerprint,
            "state": state,
        }
        self._facts.assign(json.dumps(facts))
        path = self._folder / f"step-{self.step}"
        try:
            # TensorFlow writes beside and renames, the index last: there is no half a checkpoint.
            self._checkpoint.write(str(path))
        except tf.errors.OpError as error:
            raise OSError(
                f"{path}: cannot write the checkpoint, the ones before it are untouched: "
                f"{error.message.splitlines()[0][:200]}"
            ) from None
        for step in steps_in(self._folder)[self._keep :]:
            for file in self._folder.glob(f"step-{step}.*"):
                file.unlink()
        for litter in self._folder.glob("step-*_temp*"):  # of a process that was killed
            shutil.rmtree(litter)

    def restore(self) -> dict | None:
        """Restore the newest checkpoint that is whole.

        Returns:
          The state that was saved with it; None if there are no checkpoints.

        Raises:
          ConfigError: there are checkpoints, but none fits. To start again from step 0 would
            throw work away, so that is left to the user.
        """
        steps = steps_in(self._folder)
        reason = ""
        for step in steps:
            path = self._folder / f"step-{step}"
            try:
                # Without the assertion a checkpoint of another model "restores" successfully.
                self._checkpoint.read(str(path)).assert_consumed()
                facts = json.loads(self._facts.numpy())
                check_architecture(facts["architecture"], self._model.config)
                self._check_fingerprint(facts["fingerprint"])
                return facts["state"]
            except (
                *(tf.errors.OpError, ValueError, AssertionError),
                *(IndexError, RuntimeError),  # of TensorFlow's reader, for a file cut short
            ) as error:
                reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
                log.warning("%s: cannot restore, trying the one before: %s", path, reason)
        if steps:
            raise ConfigError(
                f"{self._folder}: none of the {len(steps)} checkpoints can be restored "
                f"({reason}); delete the folder to train again from the start"
            )
        return None

    def _check_fingerprint(self, found):
        changed = [name for name, value in self._fingerprint.items() if found.get(name) != value]
        if changed:
            raise ConfigError(
                "made with other data or another vocabulary: "
                + ", ".join(
                    f"{name} was {str(found.get(name))[:12]}, is {self._fingerprint[name][:12]}"
                    for name in changed
                )
            )


def steps_in(folder: Path) -> list[int]:
    """Return the steps of which there are checkpoint files in `folder`, newest first."""
    names = [re.fullmatch(r"step-(\d+)\..+", file.name) for file in folder.glob("step-*")]
    return sorted({int(name[1]) for name in names if name}, reverse=True)


def mean_weights(folder: Path, steps: list[int]) -> list[np.ndarray]:
    """Return the mean of the weights in the checkpoints of `steps`, in the model's order.

    Source: Vaswani et al. 2017, section 6.1, who translate with the mean of the last 5 to 20.

    Raises:
      ConfigError: a checkpoint cannot be read.
    """
    all_weights = []
    for step in steps:
        path = folder / f"step-{step}"
        try:
            reader = tf.train.load_checkpoint(str(path))
            names = sorted(
                (name for name in reader.get_variable_to_shape_map() if name[:9] == "averaged/"),
                key=lambda name: int(name.split("/")[1]),
            )
            all_weights.append([reader.get_tensor(name) for name in names])
        except (tf.errors.OpError, ValueError, IndexError, RuntimeError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
            raise ConfigError(f"{path}: cannot read the checkpoint: {reason}") from None
    layers = zip(*all_weights, strict=True)
    return [np.mean(np.stack(each), axis=0).astype(np.float32) for each in layers]
