"""From translations to what goes back to the client: plain values that JSON can hold."""

import math
from collections.abc import Sequence

from nmt.decoding.translation import Document, Translation
from nmt.serve.served import Served
from nmt.serve.wanted import Wanted
from nmt.visualize.explorer import head_scores, rounded

_DECIMALS = 4  # of scores and log-probabilities


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
        "token_log_probs": _log_probs(translation),
        "alternatives": _alternatives(translation),
    }
    if wanted.attention and translation.attention is not None:
        answer["attention"] = rounded(translation.attention.cross)
        answer["heads"] = head_scores(translation, ["cross"])
    if wanted.all_attention and translation.attention is not None:
        encoder = rounded(translation.attention.encoder)
        decoder = rounded(translation.attention.decoder)
        answer["self_attention"] = {"encoder": encoder, "decoder": decoder}
        answer["heads"] = head_scores(translation)
        answer["alternatives"] = [_alternative(each) for each in translation.alternatives]
    return answer


def _alternative(translation: Translation) -> dict:
    """Return an alternative with its attention; how the source was read, its segment says."""
    answer = {"text": translation.text, "score": _rounded(translation.score)}
    if translation.attention is None or not translation.target_tokens:
        return answer
    return {
        **answer,
        "truncated": translation.truncated,
        "target_tokens": translation.target_tokens,
        "token_log_probs": _log_probs(translation),
        "attention": rounded(translation.attention.cross),
        "self_attention": {"decoder": rounded(translation.attention.decoder)},
        "heads": head_scores(translation),
    }


def _log_probs(translation):
    return [_rounded(value) for value in translation.token_log_probs]


def _alternatives(translated: Document | Translation) -> list[dict]:
    return [{"text": each.text, "score": _rounded(each.score)} for each in translated.alternatives]


def _rounded(value):
    """Return a number that JSON can hold; None for what is none, as a broken model may give."""
    return round(float(value), _DECIMALS) if math.isfinite(value) else None
