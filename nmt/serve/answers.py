"""From translations to what goes back to the client: plain values that JSON can hold."""

import math
from collections.abc import Sequence

import numpy as np

from nmt.decoding.translation import Document, Translation
from nmt.serve.served import Served
from nmt.serve.wanted import Wanted

_DECIMALS = 4  # of scores and log-probabilities
_ATTENTION_DECIMALS = 3


def own_answer(documents: Sequence[Document], wanted: Wanted) -> dict:
    """Return the answer to a request with `text`: a translation for each text."""
    return {"translations": [_document(document, wanted) for document in documents]}


def libre_answer(documents: Sequence[Document], wanted: Wanted, served: Served) -> dict:
    """Return the answer to a request with `q`, as LibreTranslate gives it."""
    answer: dict = {"translatedText": [document.text for document in documents]}
    if wanted.detects:
        answer["detectedLanguage"] = [served.detect(document.source) for document in documents]
    if wanted.alternatives:
        answer["alternatives"] = [
            [each["text"] for each in alternatives(document)] for document in documents
        ]
    return answer if wanted.is_list else {name: values[0] for name, values in answer.items()}


def alternatives(document: Document) -> list[dict]:
    """Return other translations of a whole text, best first, as text and score.

    The n-th has the n-th alternative of each of its sentences, or the best where there are fewer.
    """
    most = max((len(each.alternatives) for each in document.segments), default=0)
    others = []
    for place in range(most):
        chosen = [
            each.alternatives[place] if place < len(each.alternatives) else each
            for each in document.segments
        ]
        text = _replaced(document, [each.text for each in chosen])
        others.append({"text": text, "score": _rounded(sum(each.score for each in chosen))})
    return others


def _replaced(document, texts):
    """Return the text of a document with other texts for its segments; what joins them stays."""
    parts, position = [], 0
    for segment, text in zip(document.segments, texts, strict=True):
        # Only white space joins segments, and none begins with it: this finds the right one.
        start = document.text.index(segment.text, position)
        parts += [document.text[position:start], text]
        position = start + len(segment.text)
    return "".join([*parts, document.text[position:]])


def _document(document, wanted):
    return {
        "text": document.text,
        "score": _rounded(sum(each.score for each in document.segments)),
        "alternatives": alternatives(document),
        "segments": [_segment(each, wanted) for each in document.segments],
    }


def _segment(translation: Translation, wanted: Wanted) -> dict:
    answer = {
        "source": translation.source,
        "text": translation.text,
        "score": _rounded(translation.score),
        "truncated": translation.truncated,
        "source_tokens": translation.source_tokens,
        "target_tokens": translation.target_tokens,
        "token_log_probs": [_rounded(value) for value in translation.token_log_probs],
        "alternatives": [
            {"text": each.text, "score": _rounded(each.score)} for each in translation.alternatives
        ],
    }
    if wanted.attention and translation.attention is not None:
        cross = np.asarray(translation.attention.cross, np.float64)
        answer["attention"] = np.round(cross, _ATTENTION_DECIMALS).tolist()
    return answer


def _rounded(value):
    """Return a number that JSON can hold; None for what is none, as a broken model may give."""
    return round(float(value), _DECIMALS) if math.isfinite(value) else None
