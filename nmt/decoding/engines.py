"""Which engine translates, and where its files are. Nothing heavy is imported before it is used."""

from pathlib import Path
from typing import NamedTuple

from nmt.config import ConfigError
from nmt.decoding.documents import Engine
from nmt.decoding.exported import is_exported, read_description
from nmt.run_folder import RunFolder, sha256

ENGINES = ("tensorflow", "ctranslate2", "ctranslate2-int8")


class Located(NamedTuple):
    """An engine by name, and the folder it loads."""

    engine: str  # one of ENGINES
    folder: Path


def locate_engine(path: str | Path, engine: str | None = None) -> Located:
    """Find what is to be loaded; looks at files only, so that mistakes show at once.

    Args:
      path: a run folder, or a folder that `nmt export` wrote for CTranslate2.
      engine: one of ENGINES; None: TensorFlow for a run, and what an exported folder is for.

    Raises:
      ConfigError: what is wrong with the folder, or what has to be exported first.
    """
    path = Path(path)
    if engine not in (None, *ENGINES):
        raise ConfigError(f"the engine must be one of {', '.join(ENGINES)}; received {engine!r}")
    if is_exported(path):
        made_for = read_description(path).format
        if made_for not in ENGINES:
            raise ConfigError(f"{path}: a {made_for} is used without nmt; see README.md in it")
        if engine not in (None, made_for):
            raise ConfigError(f"{path}: exported for the engine {made_for}, not for {engine}")
        return Located(made_for, path)
    run = RunFolder(path)
    if engine in (None, "tensorflow"):
        run.require(run.config_file, run.weights_file)
        return Located("tensorflow", path)
    run.require()
    folder = path / "export" / engine
    if not is_exported(folder):
        raise ConfigError(f"{folder}: not there; run `nmt export {path} --format {engine}` first")
    weights = read_description(folder).sha256.get(run.weights_file.name)
    if run.weights_file.is_file() and weights != sha256(run.weights_file.read_bytes()):
        raise ConfigError(
            f"{folder}: exported before {path} was trained further; run "
            f"`nmt export {path} --format {engine}` again"
        )
    return Located(engine, folder)


def load_engine(path: str | Path, engine: str | None = None) -> Engine:
    """Load what `locate_engine` finds; the same arguments and errors."""
    located = locate_engine(path, engine)
    if located.engine == "tensorflow":
        from nmt.decoding.translator import load_translator

        return load_translator(located.folder)
    from nmt.decoding.ctranslate2 import load_ctranslate2

    return load_ctranslate2(located.folder)
