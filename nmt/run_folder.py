"""The run folder: all that a model needs, in one place that can be moved and copied. No TensorFlow.

config.json        what was asked for
source.model       SentencePiece vocabulary of the source side
target.model       SentencePiece vocabulary of the target side
train.npz          token ids of the training pairs
validation.tsv     held-out pairs to watch the training by
test.tsv           held-out pairs for the final measure
manifest.json      how it came to be: counts, hashes, versions, hardware, command
checkpoints/       training states from which a stopped training goes on
metrics.jsonl      one JSON object for each report of the training
tensorboard/       the same numbers, for TensorBoard
model.weights.h5   the weights to translate with
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import tempfile
from pathlib import Path

from nmt.config import Config, ConfigError, ModelConfig, read_json
from nmt.text.tokenizer import Tokenizer, load_tokenizer


class RunFolder:
    """Names the files of a run and reads the small ones."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.config_file = self.path / "config.json"
        self.source_tokenizer_file = self.path / "source.model"
        self.target_tokenizer_file = self.path / "target.model"
        self.train_file = self.path / "train.npz"
        self.validation_file = self.path / "validation.tsv"
        self.test_file = self.path / "test.tsv"
        self.manifest_file = self.path / "manifest.json"
        self.checkpoints = self.path / "checkpoints"
        self.metrics_file = self.path / "metrics.jsonl"
        self.tensorboard = self.path / "tensorboard"
        self.weights_file = self.path / "model.weights.h5"

    @property
    def is_prepared(self) -> bool:
        """Whether `nmt prepare` has finished here; the manifest is what it writes last."""
        return self.manifest_file.is_file()

    def require(self, *files: Path) -> None:
        """Raise ConfigError unless this is a prepared run folder that holds `files`."""
        if not self.path.is_dir():
            raise ConfigError(f"{self.path}: no such run folder; `nmt train` makes one")
        if not self.is_prepared:
            raise ConfigError(f"{self.path}: not a run folder: manifest.json is missing")
        missing = [file.name for file in files if not file.is_file()]
        if missing == [self.weights_file.name]:
            raise ConfigError(f"{self.path}: not trained yet; run `nmt train {self.path}` first")
        if missing:
            raise ConfigError(f"{self.path}: incomplete run folder: {', '.join(missing)} missing")

    def config(self) -> Config:
        """Return what was asked for."""
        return read_json(self.config_file)

    def manifest(self) -> dict:
        """Return the manifest; ConfigError if it cannot be read."""
        try:
            return json.loads(self.manifest_file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self.manifest_file}: cannot read: {error}") from None

    def metrics(self) -> list[dict]:
        """Return the records of metrics.jsonl; a last line that was cut off is left out."""
        if not self.metrics_file.is_file():
            return []
        lines = self.metrics_file.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines if line.endswith("}")]

    def tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        """Return the source and target tokenizers, checked against the manifest.

        Ids mean nothing without the very vocabulary that they were made with: one of the same
        size in another order would load and translate to nonsense.
        """
        known = self.manifest().get("sha256", {})
        for file in (self.source_tokenizer_file, self.target_tokenizer_file):
            if file.is_file() and sha256(file.read_bytes()) != known.get(file.name):
                raise ConfigError(
                    f"{file}: the vocabulary has changed since the run was prepared; put the "
                    f"original back or prepare a new run"
                )
        return load_tokenizer(self.source_tokenizer_file), load_tokenizer(
            self.target_tokenizer_file
        )

    def fingerprint(self) -> dict[str, str]:
        """Return the SHA-256 of the files without which weights and steps have no meaning."""
        known = self.manifest().get("sha256", {})
        files = (self.source_tokenizer_file, self.target_tokenizer_file, self.train_file)
        return {file.name: known.get(file.name, "") for file in files}

    def model_config(self) -> ModelConfig:
        """Return the shape of the model, with the vocabulary sizes that the tokenizers have."""
        source, target = self.tokenizers()
        return dataclasses.replace(
            self.config().model,
            source_vocab_size=source.vocab_size,
            target_vocab_size=target.vocab_size,
        )


def sha256(data: bytes) -> str:
    """Return the SHA-256 of `data` in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


@contextlib.contextmanager
def replacing(path: str | Path):
    """Yield a temporary path that takes the place of `path` if the block succeeds.

    So no file ever stands half-written under its final name. The suffix is kept, as writers such
    as matplotlib and Keras choose the format by it.
    """
    path = Path(path)
    handle, name = tempfile.mkstemp(
        dir=path.parent, prefix=f".{path.name}.", suffix="".join(path.suffixes[-2:])
    )
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def check_writable(path: str | Path) -> None:
    """Raise ConfigError unless a file can take the name `path`: so that it shows before the work.

    Args:
      path: the file to be written.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise ConfigError(f"{path.parent}: no such folder")
    if path.is_dir():
        raise ConfigError(f"{path}: a folder, not the name of a file to write")


def write_text(path: str | Path, text: str) -> None:
    """Write UTF-8 `text` to `path`, all or nothing."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
