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
SOURCES = sorted(FOLDER.glob("[0-9]*.py"))

# Folders of a machine, and where packages come from; in a notebook they are noise at best.
PRIVATE = re.compile(
    r"/(work|tmp|root|home|Users|var|usr)/|[A-Z]:\\|site-packages|https?://\S*simple"
)


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


def solutions_in(notebook):
    """The Python blocks of the exercises, which are in markdown so that they are hidden."""
    return [
        block
        for cell in notebook.cells
        if cell.cell_type == "markdown"
        for block in re.findall(r"^```python\n(.+?)^```$", cell.source, re.MULTILINE | re.DOTALL)
    ]


def test_the_course_is_numbered_from_one_to_nine():
    assert [path.stem[:3] for path in SOURCES] == [f"0{number}_" for number in range(1, 10)]
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == {path.stem for path in SOURCES}


def test_executed_copy_has_the_cells_of_the_source(source, executed):
    expected = [(cell.cell_type, cell.source) for cell in jupytext.read(source).cells]
    assert [(cell.cell_type, cell.source) for cell in executed.cells] == expected


def test_executed_copy_is_whole_and_clean(executed):
    nbformat.validate(executed)
    code = [cell for cell in executed.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    kinds = {output.output_type for output in outputs}
    assert kinds <= {"stream", "display_data", "execute_result"}
    assert {output.name for output in outputs if output.output_type == "stream"} == {"stdout"}
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert "all checks passed" in code[-1].outputs[-1].text
    for cell in executed.cells:
        for text in words_of(cell):
            assert not PRIVATE.search(text), PRIVATE.search(text)


def test_a_learner_finds_the_same_things_in_every_notebook(source):
    notebook = jupytext.read(source)
    first = notebook.cells[0].source
    titles = re.findall(r"^# (\d)\. (.+)$", first, re.MULTILINE)
    assert [number for number, _ in titles] == [str(int(source.stem[:2]))] * 2
    english, chinese = (title for _, title in titles)
    assert english.isascii()
    assert re.search("[\u4e00-\u9fff]", chinese)
    assert "https://colab.research.google.com/" in first
    for cell in notebook.cells:
        for heading in re.findall(r"^#+ .+$", cell.source, re.MULTILINE):
            if cell.cell_type == "markdown" and not heading.isascii():
                assert re.search("[\u4e00-\u9fff]", heading), heading
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert "google.colab" in code[0].source
    assert code[-1].source.count("assert") >= 5
    assert len(solutions_in(notebook)) == 2
    for link in re.findall(r"\]\((\d\d_\w+\.ipynb)\)", first):
        assert (FOLDER / link).is_file(), link


def test_functions_are_short(source):
    cells = [cell.source for cell in jupytext.read(source).cells if cell.cell_type == "code"]
    for node in ast.walk(ast.parse("\n".join(cells))):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < 15, node.name


def toy(notebook):
    """Give the parameters their toy values: a model that has seen a few batches will do here."""
    (cell,) = (cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", []))
    for name, value in cell.metadata.get("toy", {}).items():
        cell.source, count = re.subn(
            rf"^{name} = .+$", f"{name} = {value!r}", cell.source, flags=re.MULTILINE
        )
        assert count == 1, name
    return notebook


@pytest.mark.parametrize(
    "source",
    [
        # Those that train several models, or start the command line many times, take a minute each.
        pytest.param(path, marks=[pytest.mark.slow] * (path.stem >= "07"), id=path.stem)
        for path in SOURCES
    ],
)
def test_runs_from_top_to_bottom_with_the_solutions_of_its_exercises(source, tmp_path):
    notebook = toy(jupytext.read(source))
    notebook.cells += [nbformat.v4.new_code_cell(each) for each in solutions_in(notebook)]
    environment = {**os.environ, "TFDS_DATA_DIR": str(tmp_path / "tfds")}
    client = nbclient.NotebookClient(notebook, timeout=300, coalesce_streams=True)
    # A failing cell raises, with its traceback.
    client.execute(cwd=str(FOLDER), env=environment)
    *_, checks, first, second = (cell for cell in notebook.cells if cell.cell_type == "code")
    assert "all checks passed" in checks.outputs[-1].text
    assert first.outputs
    assert second.outputs
