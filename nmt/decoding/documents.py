"""Texts of any length: cut into sentences, translated, and put together again."""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from nmt.decoding.options import GREEDY, SearchOptions
from nmt.decoding.translation import Document, Translation
from nmt.text.normalize import clean
from nmt.text.segment import segments
from nmt.text.tokenizer import Tokenizer

# Of all texts in a window: so much is read ahead at most.
WINDOW_CHARACTERS = 1_000_000

_LINE_END = re.compile(r"\r\n|\r|\n")


class Engine(Protocol):
    """Whatever translates sentences: a `Translator`, or the one of CTranslate2."""

    source_tokenizer: Tokenizer
    target_language: str
    segment_tokens: int  # longest sentence to be translated in one piece, in subwords with EOS

    def translate(
        self,
        texts: list[str],
        options: SearchOptions = GREEDY,
        *,
        attention: bool = False,
        prefixes: list[str] | None = None,
    ) -> list[Translation]:
        """See `Translator.translate`."""


def translate_documents(
    engine: Engine,
    texts: Sequence[str],
    options: SearchOptions = GREEDY,
    *,
    attention: bool = False,
    prefixes: Sequence[str] | None = None,
) -> list[Document]:
    """Translate texts of any length.

    Lines stay lines, blank ones too. Sentences are translated one by one, those longer than what
    the model was trained on in parts (see `text.segment`), and joined again: by nothing in Chinese
    and Japanese, by a space elsewhere.

    Args:
      engine: what translates the sentences.
      texts: any text; without characters, it comes back as just its line breaks.
      options: how to search.
      attention: whether the translations carry their attention.
      prefixes: for each text, what the translation of its first sentence must begin with.

    Returns:
      A Document for each text, in their order.

    Raises:
      ValueError: a text is not valid Unicode.
    """
    lines = [_LINE_END.split(text) for text in texts]
    cut = [[_pieces(line, engine) for line in text_lines] for text_lines in lines]
    sentences, forced = [], []
    for number, text_lines in enumerate(cut):
        of_text = [piece for line in text_lines for piece in line]
        sentences += of_text
        first = prefixes[number] if prefixes else ""
        forced += [first, *[""] * (len(of_text) - 1)] if of_text else []
    found = engine.translate(
        sentences, options, attention=attention, prefixes=forced if any(forced) else None
    )
    joiner = "" if engine.target_language.startswith(("zh", "ja")) else " "
    documents, taken = [], 0
    for text, text_lines in zip(texts, cut, strict=True):
        count = sum(map(len, text_lines))
        segments_found = found[taken : taken + count]
        taken += count
        documents.append(_document(text, text_lines, segments_found, joiner))
    return documents


def translate_stream(
    engine: Engine,
    texts: Iterable[str],
    options: SearchOptions = GREEDY,
    *,
    attention: bool = False,
    prefix: str = "",
    window: int = 4096,
) -> Iterator[Document]:
    """Translate texts as they come, without end if need be; yields Documents in their order.

    Args:
      engine: what translates the sentences.
      texts: see `translate_documents`.
      options: how to search.
      attention: whether the translations carry their attention.
      prefix: what every translation must begin with.
      window: texts that are read ahead and translated together, sorted by length; fewer if they
        are long. What comes out does not depend on it, only memory and speed do.
    """
    waiting: list[str] = []
    characters = 0
    for text in texts:
        waiting.append(text)
        characters += len(text)
        if len(waiting) >= window or characters >= WINDOW_CHARACTERS:
            yield from _translate_window(engine, waiting, options, attention, prefix)
            waiting, characters = [], 0
    yield from _translate_window(engine, waiting, options, attention, prefix)


def _translate_window(engine, texts, options, attention, prefix):
    prefixes = [prefix] * len(texts) if prefix else None
    return translate_documents(engine, texts, options, attention=attention, prefixes=prefixes)


def _document(text, lines, found, joiner):
    """Put a text together of its `found` segments; `lines` says how many belong to each line."""
    ends = list(itertools.accumulate((len(line) for line in lines), initial=0))

    def joined(hypotheses):
        parts = [hypotheses[a:b] for a, b in itertools.pairwise(ends)]
        return "\n".join(joiner.join(each.text for each in part) for part in parts)

    alternatives = []
    for place in range(max((len(each.alternatives) for each in found), default=0)):
        # A segment with fewer hypotheses gives its last one again.
        chosen = [[each, *each.alternatives][: place + 2][-1] for each in found]
        alternatives.append(Document(text, joined(chosen), chosen))
    return Document(text, joined(found), found, alternatives)


def _pieces(line, engine):
    """Return the sentences of a line, stripped of the spaces between them; none if it is blank."""
    line = clean(line)

    def fits(piece):
        ids = engine.source_tokenizer.encode([piece])[0]
        return len(ids) < engine.segment_tokens

    stripped = (piece.strip() for piece in segments(line, fits))
    return [piece for piece in stripped if piece]
