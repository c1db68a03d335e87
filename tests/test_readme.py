"""The READMEs' commands and map are true, and the Chinese ones say the same as the English ones."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_nmt_command_in_the_readme_parses():
    commands = set(re.findall(r"^nmt ([a-z]+)(.*)$", README, re.MULTILINE))
    assert {name for name, _ in commands} == {
        "quickstart", "prepare", "train", "evaluate", "translate", "attention", "align", "film",
        "info", "curves", "average", "score", "export", "serve",
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


# Two languages -----------------------------------------------------------------------------------


def chapters(text):
    """Split at headings; return (level of the heading, its chapter) pairs."""
    parts = re.split(r"^(#+) .*$", text, flags=re.MULTILINE)[1:]
    return [(len(mark), body) for mark, body in zip(parts[::2], parts[1::2], strict=True)]


def what_a_translation_keeps(chapter):
    """Return what must be the same in every language, by kind."""
    blocks = re.findall(r"^```\w*\n(.*?)^```$", chapter, re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^```\w*\n.*?^```$", "", chapter, flags=re.MULTILINE | re.DOTALL)
    is_map = [block.startswith("nmt/\n") for block in blocks]
    links = re.findall(r"\]\((.*?)\)", prose)
    table = [line for line in prose.splitlines() if line.startswith("|")]
    return {
        "commands": [block for block, other in zip(blocks, is_map, strict=True) if not other],
        "files in the map": [
            re.findall(r"^\S+|[\w.]+\.(?:py|html|md)\b", block, re.MULTILINE)
            for block, other in zip(blocks, is_map, strict=True)
            if other
        ],
        "code": Counter(re.findall(r"`([^`\n]+)`", prose)),
        "links": Counter(link.replace(".zh-CN.md", ".md") for link in links),
        "rows of tables": len(table),
        "bold figures in tables": re.findall(r"\*\*([\d.]+)\*\*", "\n".join(table)),
        "paragraphs that begin in bold": len(re.findall(r"^\*\*", prose, re.MULTILINE)),
        "numbered items": re.findall(r"^\d+\. ", prose, re.MULTILINE),
    }


@pytest.mark.parametrize("folder", [".", "notebooks"])
def test_the_chinese_readme_says_the_same(folder):
    english = chapters((ROOT / folder / "README.md").read_text(encoding="utf-8"))
    chinese = chapters((ROOT / folder / "README.zh-CN.md").read_text(encoding="utf-8"))
    assert [level for level, _ in english] == [level for level, _ in chinese]
    for (_, theirs), (_, ours) in zip(english, chinese, strict=True):
        expected, received = what_a_translation_keeps(theirs), what_a_translation_keeps(ours)
        for kind, value in expected.items():
            assert received[kind] == value, f"{kind} differ in the chapter {theirs[:80]!r}"


@pytest.mark.parametrize(
    "folder", [".", "notebooks", "checkpoints", "checkpoints/pretrained", "tests"]
)
def test_links_lead_somewhere(folder):
    for file in (ROOT / folder).glob("README*.md"):
        for link in re.findall(r"\]\((?!https?://|#)([^)#]+)", file.read_text(encoding="utf-8")):
            assert (file.parent / link).exists(), link
