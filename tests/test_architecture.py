"""The house rules that a reader relies on: one-way imports, public names, a quick start."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import nmt

PACKAGE = Path(nmt.__file__).parent

# A module imports only from its own part of the package or from a part further up.
RANKS = (
    "config",
    "text",
    "run_folder",
    "data",
    "model",
    "decoding",
    "evaluation",
    "training",
    "visualize",
    "export",
    "serve",
    "progress",
    "info",
    "quickstart",
    "cli",
)


def parse(path):
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def part_of(path):
    """Return the part of the package that a file belongs to; "" for the face of the package."""
    first = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return "" if first in ("__init__", "__main__") else first


def imported_modules(tree):
    """Yield the full names of what is imported anywhere in a module, function bodies included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module or ''}.{a.name}" for a in node.names)


def imported_parts(tree):
    """Return the parts of nmt that are imported; a name of nmt itself is no part."""
    names = [name.split(".") for name in imported_modules(tree) if name.split(".")[0] == "nmt"]
    return {name[1] for name in names if len(name) > 1 and name[1] in RANKS}


FILES = sorted(PACKAGE.rglob("*.py"))
each_file = pytest.mark.parametrize(
    "path", FILES, ids=[str(path.relative_to(PACKAGE)) for path in FILES]
)


def test_every_part_has_a_rank():
    assert {part_of(path) for path in FILES} - {""} == set(RANKS)


@each_file
def test_imports_go_one_way(path):
    part = part_of(path)
    allowed = RANKS if part == "" else RANKS[: RANKS.index(part) + 1]
    upward = imported_parts(parse(path)) - set(allowed)
    assert not upward, f"{path.name} ({part}) imports from {upward}, which comes later in RANKS"


@each_file
def test_imports_of_our_own_are_absolute(path):
    """One spelling, so that the rules here see every import."""
    assert not [name for name in imported_modules(parse(path)) if name.startswith(".")]


def test_progress_knows_nothing_but_config():
    assert imported_parts(parse(PACKAGE / "progress.py")) <= {"config"}


def test_decoding_does_not_know_training():
    """Whoever translates needs no optimizer; training translates, to see how good it is."""
    for path in (PACKAGE / "decoding").glob("*.py"):
        assert "training" not in imported_parts(parse(path))


def test_search_knows_no_model_and_no_text():
    assert not imported_parts(parse(PACKAGE / "decoding" / "search.py")) - {"decoding"}


def test_the_face_of_the_package_imports_nothing_at_once():
    top = ast.Module(parse(PACKAGE / "__init__.py").body, type_ignores=[])
    statements = [node for node in top.body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert not statements


@each_file
def test_only_public_names_of_keras(path):
    tree = parse(path)
    private = ("keras.src", "tensorflow.keras", "tensorflow.python", "tf_keras")
    imported = [name for name in imported_modules(tree) if f"{name}.".startswith(
        tuple(f"{prefix}." for prefix in private))]  # fmt: skip
    used = [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and ast.unparse(node)
        in ("keras.src", "tf.keras", "tensorflow.keras", "tf.python", "tensorflow.python")
    ]
    assert not imported + used


@each_file
def test_no_star_imports(path):
    assert not [name for name in imported_modules(parse(path)) if name.endswith(".*")]


@each_file
def test_libraries_do_not_print(path):
    """Standard output is for results, and only the command line has results."""
    if part_of(path) == "cli":
        return
    calls = [node for node in ast.walk(parse(path)) if isinstance(node, ast.Call)]
    assert "print" not in [ast.unparse(call.func) for call in calls]


def run_python(*arguments):
    """Run this Python where the package under test is; return standard output."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=PACKAGE.parent,
        capture_output=True,
        encoding="utf-8",
        check=True,
        timeout=60,
    ).stdout


@pytest.mark.parametrize(
    "modules", ["nmt", "nmt.cli.main", "nmt.run_folder, nmt.data.prepared, nmt.progress"]
)
def test_importing_does_not_bring_tensorflow(modules):
    heavy = ("tensorflow", "keras", "tensorflow_datasets")
    output = run_python(
        "-c", f"import sys, {modules}; print([m for m in {heavy} if m in sys.modules])"
    )
    assert output.strip() == "[]"


def test_help_answers_in_half_a_second():
    """Processor time, best of three: a machine busy with something else does not matter."""
    seconds = []
    for _ in range(3):
        before = os.times()
        output = run_python("-m", "nmt", "--help")
        after = os.times()
        seconds.append(sum(after[2:4]) - sum(before[2:4]))
        assert "train" in output
    assert min(seconds) < 0.5
