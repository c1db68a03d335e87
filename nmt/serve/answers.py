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
            [each.text for each in document.alternatives] for document in documents
        ]
    return answer if wanted.is_list else {name: values[0] for name, values in answer.items()}


def _document(document, wanted):
    return {
        "text": document.text,
        "score": _rounded(document.score),
        "alternatives": _alternatives(document),
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
        "alternatives": _alternatives(translation),
    }
    if wanted.attention and translation.attention is not None:
        cross = np.asarray(translation.attention.cross, np.float64)
        answer["attention"] = np.round(cross, _ATTENTION_DECIMALS).tolist()
    return answer


def _alternatives(translated: Document | Translation) -> list[dict]:
    return [{"text": each.text, "score": _rounded(each.score)} for each in translated.alternatives]


def _rounded(value):
    """Return a number that JSON can hold; None for what is none, as a broken model may give."""
    return round(float(value), _DECIMALS) if math.isfinite(value) else None
