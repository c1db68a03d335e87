"""The notebooks: source and executed copy agree, and the source runs from top to bottom."""

import ast
import os
import re
from pathlib import Path

import jupytext
import nbclient
import nbformat
import pytest

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
SOURCES = [path for path in sorted(FOLDER.glob("*.py")) if path.name != "build.py"]

# Folders of a machine, and where packages come from; in a notebook they are noise at best.
PRIVATE = re.compile(
    r"/(work|tmp|root|home|Users|var|usr)/|[A-Z]:\\|site-packages|https?://\S*simple"
)

# A model that has seen a few batches: enough to show that every cell works.
TOY = {"CORPUS": '"hsk"', "MINUTES": "0.1", "TEST_SENTENCES": "8"}


@pytest.fixture(params=SOURCES, ids=lambda path: path.stem)
def source(request):
    return request.param


@pytest.fixture
def executed(source):
    """The .ipynb that is paired with the source."""
    return nbformat.read(source.with_suffix(".ipynb"), as_version=4)


def words_of(cell):
    """All text in a cell and its outputs; pictures are base64, in which "/tmp/" may occur."""
    yield cell.source
    for output in cell.get("outputs", []):
        yield output.get("text", "")
        yield from (text for kind, text in output.get("data", {}).items() if "image" not in kind)


def test_there_are_notebooks():
    assert "transformer_en_zh" in [path.stem for path in SOURCES]


def test_executed_copy_has_the_cells_of_the_source(source, executed):
    expected = [(cell.cell_type, cell.source) for cell in jupytext.read(source).cells]
    assert [(cell.cell_type, cell.source) for cell in executed.cells] == expected


def test_executed_copy_is_whole_and_clean(executed):
    nbformat.validate(executed)
    code = [cell for cell in executed.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert {output.output_type for output in outputs} <= {
        "stream",
        "display_data",
        "execute_result",
    }
    assert {output.name for output in outputs if output.output_type == "stream"} == {"stdout"}
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 5
    for cell in executed.cells:
        for text in words_of(cell):
            assert not PRIVATE.search(text), PRIVATE.search(text)


def test_functions_are_short_and_the_last_code_cell_checks(source):
    cells = [cell.source for cell in jupytext.read(source).cells if cell.cell_type == "code"]
    for node in ast.walk(ast.parse("\n".join(cells))):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < 10, node.name
    assert cells[-1].count("assert") >= 5


def toy_text(source):
    """Return the source with its parameters replaced by small ones."""
    text = source.read_text(encoding="utf-8")
    for name, value in TOY.items():
        text, count = re.subn(rf"^{name} = .+$", f"{name} = {value}", text, flags=re.MULTILINE)
        assert count == 1, name
    return text


def test_runs_from_top_to_bottom_with_the_solutions_of_its_exercises(source, tmp_path):
    notebook = jupytext.reads(toy_text(source), fmt="py:percent")
    solutions = [
        block
        for cell in notebook.cells
        if cell.cell_type == "markdown"
        for block in re.findall(r"^```python\n(.+?)^```$", cell.source, re.MULTILINE | re.DOTALL)
    ]
    assert len(solutions) == 2
    notebook.cells += [nbformat.v4.new_code_cell(solution) for solution in solutions]

    environment = {**os.environ, "TFDS_DATA_DIR": str(tmp_path / "tfds")}
    client = nbclient.NotebookClient(notebook, timeout=300, coalesce_streams=True)
    # A failing cell raises, with its traceback.
    client.execute(cwd=str(FOLDER), env=environment)

    *_, checks, first, second = (cell for cell in notebook.cells if cell.cell_type == "code")
    assert "all checks passed" in checks.outputs[-1].text
    without, with_positions = map(float, re.findall(r"\d+\.\d+", first.outputs[-1].text))
    assert without < 1e-5 < 1e-2 < with_positions
    assert len(second.outputs[-1].text.splitlines()) == 3
