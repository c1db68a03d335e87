"""What every engine does before and after its search: text to ids, ids to Translations."""

from collections.abc import Iterator, Sequence

import numpy as np

from nmt.decoding.translation import Translation
from nmt.text.normalize import clean
from nmt.text.tokenizer import EOS, Tokenizer

# Attention takes memory with the square of the length; nothing sentence-like is longer.
MAX_SOURCE_TOKENS = 1024

# A translation may be this much longer than its source before it counts as not ending.
EXTRA_TARGET_TOKENS = 50


def encode_sentences(tokenizer: Tokenizer, texts: Sequence[str]) -> list[np.ndarray]:
    """Return the int32 ids of each text, closed by EOS; none for a text without characters.

    Raises:
      ValueError: a text is not valid Unicode, or longer than MAX_SOURCE_TOKENS subwords.
    """
    sentences = []
    for text, ids in zip(texts, tokenizer.encode([clean(text) for text in texts]), strict=True):
        if len(ids) > MAX_SOURCE_TOKENS:
            raise ValueError(
                f"a sentence may have at most {MAX_SOURCE_TOKENS} subwords; received "
                f"{len(ids)}: split the text that begins {text[:40]!r}"
            )
        sentences.append(np.array(ids + [EOS] if ids else [], np.int32))
    return sentences


def encode_prefixes(
    tokenizer: Tokenizer, prefixes: Sequence[str] | None, count: int
) -> list[np.ndarray]:
    """Return the int32 ids that each of `count` translations must begin with, without EOS.

    Args:
      tokenizer: that of the target.
      prefixes: a text for each; "" or None: anything.
      count: how many are needed.

    Raises:
      ValueError: there are more or fewer; or as from `encode_sentences`.
    """
    if prefixes is not None and len(prefixes) != count:
        raise ValueError(
            f"each of the {count} sentences needs a prefix, or none of them; received "
            f"{len(prefixes)} prefixes"
        )
    return [ids[:-1] for ids in encode_sentences(tokenizer, prefixes or [""] * count)]


def by_length(sentences: Sequence[np.ndarray], batch_tokens: int) -> Iterator[list[int]]:
    """Yield indices of the non-empty sentences in batches of similar length, longest first.

    The longest batch comes first, so that too little memory shows at once, not at the end.

    Args:
      sentences: ids of each sentence.
      batch_tokens: most padded positions in a batch; a longer sentence is alone.
    """
    order = [index for index, ids in enumerate(sentences) if len(ids)]
    order.sort(key=lambda index: -len(sentences[index]))
    start = 0
    while start < len(order):
        size = max(1, batch_tokens // len(sentences[order[start]]))
        yield order[start : start + size]
        start += size


def make_translation(
    source: str,
    source_tokens: list[str],
    target_ids: Sequence[int],
    token_log_probs: Sequence[float],
    score: float,
    tokenizer: Tokenizer,
) -> Translation:
    """Return the Translation that a hypothesis stands for; `tokenizer` is that of the target."""
    return Translation(
        source=source,
        # A model may spell a line break in bytes; a translation is one line.
        text=clean(tokenizer.decode(target_ids)),
        source_tokens=source_tokens,
        target_tokens=tokenizer.pieces(target_ids),
        token_log_probs=[float(value) for value in token_log_probs],
        score=float(score),
        truncated=len(target_ids) > 0 and int(target_ids[-1]) != EOS,
    )


def coverage(attention_TS: np.ndarray) -> float:
    """Return how well the source was covered, <= 0; 0: every token was looked at once or more.

    The sum over source tokens of log(min(attention it got, 1)) (Wu et al. 2016, equation 14).
    """
    return float(np.log(np.clip(attention_TS.sum(axis=0), 1e-6, 1.0)).sum())


def best_first(hypotheses: list[Translation], nbest: int) -> Translation:
    """Return the first hypothesis, with the next that differ from it as its alternatives."""
    distinct: dict[tuple, Translation] = {}
    for hypothesis in hypotheses:
        distinct.setdefault(tuple(hypothesis.target_tokens), hypothesis)
    best, *others = list(distinct.values())[:nbest]
    return best._replace(alternatives=others)
