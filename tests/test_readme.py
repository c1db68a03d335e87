"""The README's commands and map are true."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_nmt_command_in_the_readme_parses():
    commands = set(re.findall(r"^nmt ([a-z]+)(.*)$", README, re.MULTILINE))
    assert {name for name, _ in commands} == {
        "quickstart", "prepare", "train", "evaluate", "translate", "attention", "info",
        "curves", "average", "score", "export", "serve",
    }  # fmt: skip
    for name, rest in commands:
        text = subprocess.run(
            [sys.executable, "-m", "nmt", name, "--help"], capture_output=True, text=True
        ).stdout
        for option in re.findall(r"(?<!\S)(--?[a-z][a-z-]*)", rest):
            assert option in text, f"nmt {name} has no {option}"


def test_the_map_names_every_module():
    modules = [path.relative_to(ROOT / "nmt") for path in (ROOT / "nmt").rglob("*.py")]
    for module in modules:
        if module.name not in ("__init__.py", "__main__.py"):
            assert module.name in README, f"{module} is missing from the map in README.md"


def test_make_targets_in_the_readme_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"`?make ([a-z]+)", README)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
