"""Long lines into pieces that can be translated on their own, cut where it hurts least."""

import re
from collections.abc import Callable

# English ends a sentence with a mark and a space; Chinese with a mark alone. Closing quotes and
# brackets belong to the sentence that they close, the spaces behind to it as well.
# Looking behind: a run is tried once, not from each of its characters, which would take a million
# of them the square of its time.
_SENTENCE_END = re.compile(
    r"(?P<latin>(?<![.!?])[.!?]+[\"'”’)\]]*(?:\s+|$))|"
    r"(?:[。！？]|……+)+[”’」』）\"']*\s*|[\r\n]+"
)
_CLAUSE_END = re.compile(r"[,;:]\s+|[，；：、]\s*|(?<!\s)\s+[–—-]+\s+|——+\s*")
_WORD_END = re.compile(r"\s+")

# A full stop behind these ends no sentence; nor does one behind a single capital, an initial.
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\"“‘'])(?:Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|Gen|Col|Lt|Capt|Rev|Hon|vs|etc|e\.g|i\.e|cf|"
    r"No|Nos|Fig|Vol|pp?|approx|Mt|[A-Z]|(?:[A-Z]\.)+[A-Z])\.$"
)


def split_sentences(text: str) -> list[str]:
    """Return the sentences of English or Chinese `text`; joined, they are `text` again."""
    pieces, start = [], 0
    for end in _SENTENCE_END.finditer(text):
        is_abbreviation = (
            end["latin"] is not None
            and end.end() < len(text)
            and _ABBREVIATION.search(text[max(start, end.start() - 20) : end.start() + 1])
        )
        if not is_abbreviation:
            pieces.append(text[start : end.end()])
            start = end.end()
    if start < len(text):
        pieces.append(text[start:])
    return pieces


def segments(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Return the sentences of `text`, cut further where needed; joined, they are `text` again.

    Sentences are always parted: a model that learned from single ones tends to leave out the
    second of two. One that is too long is cut into as few runs of clauses as fit, a clause
    likewise into words, and a word, if such there is, into halves.

    Args:
      text: one line.
      fits: whether a piece is short enough; must hold for single characters.
    """
    return [piece for sentence in split_sentences(text) for piece in _fitting(sentence, fits)]


def _fitting(sentence, fits):
    if fits(sentence):
        return [sentence]
    for pattern in (_CLAUSE_END, _WORD_END):
        parts = _cut(sentence, pattern)
        if len(parts) > 1:
            return [piece for run in _runs(parts, fits) for piece in _fitting(run, fits)]
    return _halves(sentence, fits)


def _halves(text, fits):
    if fits(text) or len(text) < 2:
        return [text]
    middle = len(text) // 2
    return _halves(text[:middle], fits) + _halves(text[middle:], fits)


def _cut(text, pattern):
    """Cut behind every match of `pattern`."""
    ends = [match.end() for match in pattern.finditer(text) if match.end() < len(text)]
    return [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True)]


def _runs(parts, fits):
    """Join neighbours as long as they fit; a part that does not fit stays alone."""
    runs = [parts[0]]
    for part in parts[1:]:
        if fits(runs[-1] + part):
            runs[-1] += part
        else:
            runs.append(part)
    return runs
