"""BLEU and chrF by sacreBLEU with their signatures, NLTK's BLEU beside them."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import nltk
import sacrebleu
from nltk.translate.bleu_score import corpus_bleu


class Score(NamedTuple):
    """A figure that says how it was made."""

    name: str
    value: float  # 0 to 100
    signature: str  # sacreBLEU's, or the parameters that the figure depends on


def bleu_tokenizer(language: str) -> str:
    """Return sacreBLEU's tokenizer for a target language.

    Chinese has no spaces between words: the usual "13a" would take a sentence for one word.
    """
    return "zh" if language.startswith("zh") else "13a"


def corpus_scores(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], language: str
) -> list[Score]:
    """Score translations of a whole test set.

    Args:
      hypotheses: one translation a sentence; an empty one counts.
      references: one or more sets of references, each as long as `hypotheses`.
      language: of the target, chooses the tokenizer.

    Returns:
      sacreBLEU BLEU and chrF, then NLTK's corpus BLEU on the same tokens. The two BLEUs differ
      where a translation has fewer than four tokens (NLTK counts at least one n-gram of each
      order, and misses it) and where an n-gram order has no hit (sacreBLEU smooths).

    Raises:
      ValueError: no sentence, or sets of different length (sacreBLEU itself would cut silently).
    """
    _check_lengths(hypotheses, references)
    tokenizer = bleu_tokenizer(language)
    bleu = sacrebleu.BLEU(tokenize=tokenizer)
    chrf = sacrebleu.CHRF()
    scores = [
        Score(
            "BLEU",
            _percent(bleu.corpus_score(hypotheses, references).score),
            str(bleu.get_signature()),
        ),
        Score(
            "chrF",
            _percent(chrf.corpus_score(hypotheses, references).score),
            str(chrf.get_signature()),
        ),
    ]
    return [*scores, _nltk_bleu(hypotheses, references, bleu)]


def format_scores(scores: Sequence[Score]) -> str:
    """Return scores as a table, a line each, with their signatures."""
    return "\n".join(f"{name:10} {value:6.2f}   {signature}" for name, value, signature in scores)


def sentence_bleu(hypothesis: str, references: Sequence[str], language: str) -> float:
    """Return the BLEU of one sentence, 0 to 100, with effective order.

    Effective order counts only n-grams that a sentence is long enough to have; without it a
    perfect translation of three tokens scores 0. The mean over sentences is not corpus BLEU.
    """
    metric = sacrebleu.BLEU(tokenize=bleu_tokenizer(language), effective_order=True)
    return _percent(metric.sentence_score(hypothesis, list(references)).score)


def _nltk_bleu(hypotheses, references, bleu):
    tokens = [bleu.tokenizer(text).split() for text in hypotheses]
    by_sentence = [
        [bleu.tokenizer(text).split() for text in alternatives]
        for alternatives in zip(*references, strict=True)
    ]
    # NLTK warns, and divides by zero, where an n-gram order has no hit at all: BLEU is 0 there.
    hit = any(
        _shares_ngram(hypothesis, alternatives, 4)
        for hypothesis, alternatives in zip(tokens, by_sentence, strict=True)
    )
    value = corpus_bleu(by_sentence, tokens) if hit else 0.0
    return Score(
        "NLTK BLEU",
        _percent(100 * value),
        f"tok:{bleu.get_signature().info['tok']}|smooth:none|version:{nltk.__version__}",
    )


def _shares_ngram(tokens, alternatives, order):
    ngrams = {tuple(tokens[i : i + order]) for i in range(len(tokens) - order + 1)}
    return any(
        tuple(other[i : i + order]) in ngrams
        for other in alternatives
        for i in range(len(other) - order + 1)
    )


def _percent(value):
    # A perfect corpus comes out as 100.00000000000004.
    return min(100.0, value) if math.isfinite(value) else 0.0


def _check_lengths(hypotheses, references):
    if not hypotheses:
        raise ValueError("hypotheses must not be empty; received 0 sentences")
    if not references or isinstance(references[0], str):
        raise ValueError("references must be a list of reference sets, each a list of sentences")
    for number, reference_set in enumerate(references, 1):
        if len(reference_set) != len(hypotheses):
            raise ValueError(
                f"reference set {number} has {len(reference_set)} sentences and there are "
                f"{len(hypotheses)} hypotheses; each hypothesis needs one in every set"
            )
