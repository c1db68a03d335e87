"""The weights file, which says what model its weights belong to."""

import dataclasses
import json
from pathlib import Path

import h5py

from nmt.config import ConfigError, ModelConfig
from nmt.model.transformer import Transformer
from nmt.run_folder import replacing

ATTRIBUTE = "nmt_architecture"


def architecture(config: ModelConfig) -> str:
    """Return all that the meaning of weights depends on, as JSON.

    Shapes alone would not do: another number of heads has the same ones, and another model.
    """
    facts = dataclasses.asdict(config)
    for name in ("dropout_rate", "attention_dropout_rate", "activation_dropout_rate"):
        del facts[name]
    return json.dumps(facts)


def check_architecture(found: str, config: ModelConfig) -> None:
    """Raise ConfigError with the differences unless `found` is the architecture of `config`."""
    theirs, ours = json.loads(found), json.loads(architecture(config))
    different = [
        f"{key} is {theirs.get(key)!r}, not {ours.get(key)!r}"
        for key in sorted(theirs.keys() | ours.keys())
        if theirs.get(key) != ours.get(key)
    ]
    if different:
        raise ConfigError(f"another architecture: {', '.join(different)}")


def save_weights(model: Transformer, path: Path) -> None:
    """Write the weights of `model` to `path` (.weights.h5), all or nothing."""
    with replacing(path) as temporary:
        model.save_weights(temporary)
        with h5py.File(temporary, "a") as file:
            file.attrs[ATTRIBUTE] = architecture(model.config)


def load_weights(model: Transformer, path: Path) -> None:
    """Read the weights of `model` from `path`.

    Raises:
      ConfigError: the file cannot be read, or belongs to another architecture.
    """
    try:
        with h5py.File(path) as file:
            found = file.attrs.get(ATTRIBUTE)
        if found is None:
            raise ConfigError("not written by this program")
        check_architecture(found, model.config)
        model.load_weights(path)
    except Exception as error:  # h5py and Keras raise many kinds
        first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigError(f"{path}: cannot load the weights: {first_line}") from error
