"""Execute every notebook source next to this file and write its paired .ipynb.

    python notebooks/build.py

A notebook takes its place only when all of its cells have run; a failing one leaves the old file.
"""

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
    for source in sorted(HERE.glob("*.py")):
        if source != Path(__file__).resolve():
            print(f"executing {source.name}")
            build(source)
