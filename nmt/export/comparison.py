"""A run and its exports side by side: how large, how fast, how good."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from nmt.evaluation.scores import Score, corpus_scores
from nmt.export.export import Translating

BATCH = 32


class Row(NamedTuple):
    """What is known of an engine."""

    name: str
    size: int  # bytes on disk
    load_seconds: float  # until the first sentence was translated
    sentences_per_second: float
    bleu: Score | None


def measure(
    name: str,
    paths: Sequence[Path],
    engine: Translating,
    load_seconds: float,
    sources: Sequence[str],
    references: Sequence[str] | None,
    language: str,
) -> Row:
    """Translate sentences in batches, greedily.

    Args:
      name: of the engine, for the table.
      paths: its files and folders.
      engine: what translates.
      load_seconds: see Row.
      sources: at least one sentence.
      references: a translation of each, for BLEU; None: no BLEU.
      language: of the target, for BLEU.
    """
    engine.translate(list(sources[:BATCH]))  # what is done once is no part of the speed
    started = time.perf_counter()
    texts = [
        translation.text
        for start in range(0, len(sources), BATCH)
        for translation in engine.translate(list(sources[start : start + BATCH]))
    ]
    speed = len(sources) / (time.perf_counter() - started)
    bleu = corpus_scores(texts, [references], language)[0] if references else None
    return Row(name, size_on_disk(paths), load_seconds, speed, bleu)


def size_on_disk(paths: Sequence[Path]) -> int:
    """Return the bytes of files, and of all files in folders."""
    files = [file for path in paths for file in (path.rglob("*") if path.is_dir() else [path])]
    return sum(file.stat().st_size for file in files if file.is_file())


def format_rows(rows: Sequence[Row]) -> str:
    """Return the rows as a table, with what the columns mean below."""
    lines = [f"{'':18} {'size':>10} {'load':>8} {'sentences/s':>12} {'BLEU':>7}"]
    for row in rows:
        score = f"{row.bleu.value:.2f}" if row.bleu else "-"
        lines.append(
            f"{row.name:18} {row.size / 1e6:>7.1f} MB {row.load_seconds:>6.2f} s "
            f"{row.sentences_per_second:>12.1f} {score:>7}"
        )
    lines.append(
        f"load: from the files to the first translation, libraries imported before; "
        f"sentences/s: greedy search, {BATCH} at a time"
    )
    signatures = {row.bleu.signature for row in rows if row.bleu}
    lines += [f"BLEU: {signature}" for signature in sorted(signatures)]
    return "\n".join(lines)
