"""Train, validation and test without leaks, by a rule that later rows do not upset."""

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from nmt.text.normalize import matching_key
from nmt.text.script import convert


class SentencePair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


class Splits(NamedTuple):
    """Sentence pairs for learning, for watching the learning, and for the final measure."""

    train: list[SentencePair]
    validation: list[SentencePair]
    test: list[SentencePair]


def split_pairs(pairs: Sequence[SentencePair], validation: float, test: float) -> Splits:
    """Split `pairs` so that no sentence of validation or test stands in train on either side.

    Held-out pairs are taken only from those that share neither side with any other pair; width,
    case, spaces, punctuation and Chinese script do not count. Which of them depends on nothing
    but their own text: the hash of a pair is a fraction, and it is test below `test`, validation
    in the next `validation`. So rows added later move no pair, except one that they share a side
    with: that goes to train with them, so as not to leak.

    Args:
      pairs: sentence pairs, any order, repeats allowed.
      validation: share of the hashes for validation, 0 <= validation + test <= 1.
      test: share of the hashes for test.

    Returns:
      Splits in the order of `pairs`. Both held-out splits get at least one pair if there are two
      that stand alone.
    """
    keys = [(matching_key(source), _target_key(target)) for source, target in pairs]
    singles = [i for i, alone in enumerate(_stand_alone(keys)) if alone]
    fractions = {i: _fraction(keys[i]) for i in singles}
    by_hash = sorted(singles, key=fractions.__getitem__)
    tests = sum(fraction < test for fraction in fractions.values())
    held_out = sum(fraction < test + validation for fraction in fractions.values())
    # Toy corpora: a fraction of almost nothing is nothing, so each takes one at least.
    if test > 0:
        tests = max(tests, 1)
    if validation > 0:
        tests = min(tests, len(singles) - 1)
        held_out = max(held_out, tests + 1)
    in_test, in_validation = set(by_hash[:tests]), set(by_hash[tests:held_out])
    splits = Splits([], [], [])
    for i, pair in enumerate(pairs):
        chosen = splits.test if i in in_test else splits.train
        chosen = splits.validation if i in in_validation else chosen
        chosen.append(SentencePair(*pair))
    return splits


def overlap(held_out: Sequence[SentencePair], train: Sequence[SentencePair]) -> int:
    """Count the held-out pairs that share a side with a training pair (compared as above)."""
    sources = {matching_key(pair.source) for pair in train}
    targets = {_target_key(pair.target) for pair in train}
    return sum(
        matching_key(source) in sources or _target_key(target) in targets
        for source, target in held_out
    )


def _target_key(text):
    return matching_key(convert(text, "simplified"))


def _stand_alone(keys):
    """Say of each pair whether no other pair shares its source or its target."""
    count = defaultdict(int)
    for source, target in keys:
        count["source", source] += 1
        count["target", target] += 1
    return [count["source", source] == count["target", target] == 1 for source, target in keys]


def _fraction(key):
    """Return the hash of a pair's keys as a fraction, 0 <= fraction < 1."""
    digest = hashlib.sha256("\t".join(key).encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64
