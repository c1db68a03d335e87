"""The only clean-up that text gets, on both sides, in training and in translating.

Removed: byte-order marks, control characters and characters of zero width that carry no meaning.
Changed: every kind of space (tab, no-break, ideographic ...) becomes one plain space; runs of
spaces become one; none is left at either end. Everything else stays as it was written: full-width
punctuation, traditional and rare characters, emoji with their joiners, letter case, accents.
"""

import re
import unicodedata

# Zero-width joiner (U+200D) and variation selectors are kept: emoji fall apart without them.
_NO_WIDTH = "\ufeff\u200b\u2060\u00ad\u200e\u200f\u202a-\u202e\u2066-\u2069"
_CONTROL = "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f"
_REMOVED = re.compile(f"[{_NO_WIDTH}{_CONTROL}]")
_SPACES = re.compile(r"[\s\x1c-\x1f\u180e]+")


def clean(text: str) -> str:
    """Return `text` without invisible characters and with single plain spaces.

    Raises:
      ValueError: `text` holds half of a surrogate pair, so it is not Unicode text.
    """
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError(f"text must be valid Unicode; received a lone surrogate in {text!r}")
    return _SPACES.sub(" ", _REMOVED.sub("", text)).strip(" ")


def matching_key(text: str) -> str:
    """Return what `text` is compared by when looking for sentences that are "the same".

    Width, case, spaces, punctuation and symbols do not count, unless there is nothing else.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    letters = "".join(character for character in folded if character.isalnum())
    return letters or "".join(folded.split())
