"""Texts of any length: cut into sentences where they must be, translated, and put together."""

import re
from collections.abc import Sequence
from typing import Protocol

from nmt.decoding.options import GREEDY, SearchOptions
from nmt.decoding.translation import Document, Translation
from nmt.text.normalize import clean
from nmt.text.segment import segments
from nmt.text.tokenizer import Tokenizer

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

    Lines stay lines, blank ones too. A line longer than what the model was trained on is cut at
    sentence ends (see `text.segment`), and its translations are joined again: by nothing in
    Chinese and Japanese, by a space elsewhere.

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
        translated, of_text = [], []
        for line in text_lines:
            here = found[taken : taken + len(line)]
            taken += len(line)
            of_text += here
            translated.append(joiner.join(each.text for each in here))
        documents.append(Document(text, "\n".join(translated), of_text))
    return documents


def _pieces(line, engine):
    """Return the sentences of a line, stripped of the spaces between them; none if it is blank."""
    line = clean(line)

    def fits(piece):
        ids = engine.source_tokenizer.encode([piece])[0]
        return len(ids) < engine.segment_tokens

    stripped = (piece.strip() for piece in segments(line, fits))
    return [piece for piece in stripped if piece]
