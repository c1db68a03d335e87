"""Sentence pairs fit for training: what is cleaned, what is dropped, and how often."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from nmt.data.splitting import SentencePair
from nmt.text.normalize import clean
from nmt.text.script import convert, is_chinese


class Cleaned(NamedTuple):
    """Pairs that were kept, and the number dropped for each reason."""

    pairs: list[SentencePair]
    dropped: Counter


def clean_pairs(pairs: Iterable[SentencePair], target_script: str) -> Cleaned:
    """Clean both sides of each pair and drop those that cannot teach anything.

    Args:
      pairs: sentence pairs as read.
      target_script: "keep", "simplified" or "traditional", for the target side.

    Returns:
      Cleaned; the reasons are "empty side", "damaged characters" (U+FFFD or half a surrogate
      pair) and "repeated pair" (the second and later copies of the same two sides).
    """
    kept: dict[SentencePair, None] = {}
    dropped: Counter = Counter()
    for source, target in pairs:
        if "\ufffd" in source + target:
            dropped["damaged characters"] += 1
            continue
        try:
            pair = SentencePair(clean(source), convert(clean(target), target_script))
        except ValueError:
            dropped["damaged characters"] += 1
            continue
        if not pair.source or not pair.target:
            dropped["empty side"] += 1
        elif pair in kept:
            dropped["repeated pair"] += 1
        else:
            kept[pair] = None
    return Cleaned(list(kept), dropped)


def is_swapped(pairs: list[SentencePair], target_language: str) -> bool:
    """Say whether Chinese stands on the wrong side, judged by the script of the text.

    Labels cannot be trusted: TFDS swaps the two languages of News Commentary when it downloads
    the file itself (tensorflow/datasets#2309).
    """
    sample = pairs[:: max(1, len(pairs) // 1000)]
    wrong = sum(is_chinese(source) and not is_chinese(target) for source, target in sample)
    right = sum(is_chinese(target) and not is_chinese(source) for source, target in sample)
    return wrong > right if target_language.startswith("zh") else right > wrong
