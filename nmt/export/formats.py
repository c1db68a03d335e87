"""The formats that a run is exported in, and where to. No TensorFlow."""

import importlib.util
from pathlib import Path

from nmt.config import ConfigError
from nmt.decoding.exported import is_exported
from nmt.run_folder import RunFolder

FORMATS = ("saved-model", "keras", "ctranslate2", "ctranslate2-int8")


def export_path(run: RunFolder, format: str, wanted: Path | None = None) -> Path:
    """Return where an export goes, checked: nothing but an older export is ever replaced.

    Args:
      run: what is exported.
      format: one of FORMATS.
      wanted: a place that the user names; None: in the folder `export` of the run.

    Raises:
      ConfigError: it cannot go there, or a package that it takes is missing.
    """
    if format == "saved-model" and importlib.util.find_spec("tensorflow_text") is None:
        raise ConfigError("a saved-model takes tensorflow-text, which is not installed here")
    default = run.path / "export" / ("model.keras" if format == "keras" else format)
    path = wanted or default
    if wanted is not None and not path.absolute().parent.is_dir():
        raise ConfigError(f"{path.parent}: no such folder")
    if format == "keras":
        if path.suffix != ".keras":
            raise ConfigError(f"{path}: the name of a Keras file must end in .keras")
        if path.is_dir():
            raise ConfigError(f"{path}: a folder; name a file")
    elif path.exists() and not is_exported(path) and not _is_empty(path):
        raise ConfigError(f"{path}: there already, and not an export; choose another place")
    return path


def _is_empty(path):
    return path.is_dir() and not any(path.iterdir())
