"""Folders that are complete or not there."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that takes the place of `path` if the block succeeds.

    A folder that is there is put aside first, and deleted last: whoever reads `path` at any time
    finds one or the other, or for an instant none, but never half of one.
    """
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        new, old = temporary / "new", temporary / "old"
        new.mkdir()
        yield new
        for file in new.rglob("*"):
            if file.is_file():
                with open(file, "rb") as written:
                    os.fsync(written.fileno())
        if path.exists():
            os.rename(path, old)
        try:
            os.rename(new, path)
        except OSError:
            if old.exists():
                os.rename(old, path)
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
