"""Subwords: a SentencePiece unigram model a side, that gives every string back unchanged."""

import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import sentencepiece

from nmt.config import ConfigError

PAD, BOS, EOS, UNK = range(4)

# SentencePiece skips longer training sentences; its own default of 4,192 loses long documents.
MAX_SENTENCE_BYTES = 16_384


class Tokenizer:
    """Turns text into subword ids and back.

    Nothing in a text can become PAD, BOS or EOS: a typed "</s>" is four ordinary characters.
    Characters outside the vocabulary are spelled in UTF-8 bytes, so nothing becomes UNK.
    The one exception to the exact round trip: a literal U+2581 (SentencePiece's mark for a space)
    comes back as a space.
    """

    def __init__(self, model_proto: bytes):
        if not model_proto:  # which SentencePiece would take for "no model yet"
            raise RuntimeError("the file is empty")
        self.model_proto = model_proto
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model_proto)

    @property
    def vocab_size(self) -> int:
        """Number of ids, special ones included."""
        return self._processor.vocab_size()

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return a list of ids for each text, without BOS and EOS; no ids for an empty text."""
        if len(texts) == 1:  # a list makes threads, which take longer than a sentence
            return [self._processor.encode(texts[0])]
        return self._processor.encode(list(texts), num_threads=1)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of `ids`; PAD, BOS and EOS have none.

        Byte pieces that do not form UTF-8, as a model may emit them, become U+FFFD.
        """
        text = self._processor.decode([int(i) for i in ids if i not in (PAD, BOS, EOS)])
        # Where a space is spelled in bytes, for want of a subword, its mark would stay.
        return text.replace("\u2581", " ")

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the subwords as people look at them, special ones by name, spaces as U+2581."""
        return [self._processor.id_to_piece(int(i)) for i in ids]


def train_tokenizer(sentences: Iterable[str], vocab_size: int, spaced: bool) -> Tokenizer:
    """Learn a unigram subword vocabulary (Kudo 2018).

    Identity normalization and byte fallback: SentencePiece's default (NFKC) would turn the
    full-width punctuation of Chinese into ASCII for good.

    Args:
      sentences: cleaned training text of one side.
      vocab_size: largest number of ids; small corpora support fewer and get fewer.
      spaced: whether words are separated by spaces (English); a word then is the same subword
        at the start of a sentence as within it.

    Raises:
      ConfigError: no usable text, or `vocab_size` below what characters and bytes need.
    """
    sentences = list(sentences)
    usable = [text for text in sentences if text and len(text.encode()) <= MAX_SENTENCE_BYTES]
    if not usable:
        raise ConfigError(
            f"cannot train a tokenizer: all {len(sentences)} sentences are empty or longer than "
            f"the limit of {MAX_SENTENCE_BYTES} bytes (a Han character takes 3); split them first"
        )
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(usable),
            model_writer=model,
            model_type="unigram",
            vocab_size=vocab_size,
            hard_vocab_limit=False,
            normalization_rule_name="identity",
            byte_fallback=True,
            remove_extra_whitespaces=False,
            add_dummy_prefix=spaced,
            character_coverage=0.9998,
            max_sentence_length=MAX_SENTENCE_BYTES,
            pad_id=PAD,
            bos_id=BOS,
            eos_id=EOS,
            unk_id=UNK,
            # The result depends on the number of threads: fixed, so that machines agree.
            num_threads=2,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise ConfigError(_explain(str(error), vocab_size)) from None
    return Tokenizer(model.getvalue())


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Read a SentencePiece model file; ConfigError if it is missing or is not one."""
    try:
        return Tokenizer(Path(path).read_bytes())
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"{path}: cannot read the tokenizer: {error}") from None


def _explain(message, vocab_size):
    needed = re.search(r"required_chars\. \d+ vs (\d+)|(?:>=|at least) (\d+)", message)
    if needed:
        least = needed[1] or needed[2]
        return f"vocabulary size must be at least {least} for this text; received {vocab_size}"
    return f"SentencePiece could not train a vocabulary of {vocab_size}: {message}"
