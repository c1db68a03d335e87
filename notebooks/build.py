"""Execute notebook sources next to this file and write their paired .ipynb.

    python notebooks/build.py                            # all of them
    python notebooks/build.py notebooks/04_training.py   # this one

A notebook takes its place only when all of its cells have run; a failing one leaves the old file.
"""

import sys
import time
from pathlib import Path

import jupytext
import nbclient

from nmt.run_folder import replacing

HERE = Path(__file__).resolve().parent


def build(source: Path) -> None:
    """Execute `source` (py:percent) in a fresh kernel and write the .ipynb beside it."""
    notebook = jupytext.read(source)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"  # random otherwise, and new in every build
    nbclient.NotebookClient(
        notebook, timeout=900, record_timing=False, coalesce_streams=True
    ).execute(cwd=HERE)
    with replacing(source.with_suffix(".ipynb")) as temporary:
        jupytext.write(notebook, temporary, fmt="ipynb")


if __name__ == "__main__":
    for source in map(Path, sys.argv[1:] or sorted(HERE.glob("[0-9]*.py"))):
        started = time.monotonic()
        build(source.resolve())
        print(f"{source.name}: {time.monotonic() - started:.0f} s")
