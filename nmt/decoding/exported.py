"""The description in an exported folder: what is in it, and of which run it was made."""

import dataclasses
import json
from pathlib import Path

from nmt.config import ConfigError

DESCRIPTION = "nmt.json"


@dataclasses.dataclass(frozen=True)
class Description:
    """All that is known of an exported folder, and what translating needs to know."""

    format: str  # such as "ctranslate2"
    nmt: str  # version of this program that wrote it
    source_language: str
    target_language: str
    target_script: str  # of Chinese: see DataConfig
    segment_tokens: int  # longest sentence to be translated in one piece, in subwords with EOS
    sha256: dict[str, str]  # of source.model, target.model and the weights of the run


def is_exported(folder: Path) -> bool:
    """Whether `nmt export` wrote this folder; the description is in all that it writes."""
    return (folder / DESCRIPTION).is_file()


def read_description(folder: Path) -> Description:
    """Read the description; ConfigError if there is none, or it cannot be understood."""
    path = folder / DESCRIPTION
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder; `nmt export` makes one")
    if not path.is_file():
        raise ConfigError(f"{folder}: not written by `nmt export`: {DESCRIPTION} is missing")
    try:
        return Description(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"{path}: cannot read the description: {error}") from None


def write_description(folder: Path, description: Description) -> None:
    """Write the description into `folder`."""
    text = json.dumps(dataclasses.asdict(description), indent=2)
    (folder / DESCRIPTION).write_text(text + "\n", encoding="utf-8")
