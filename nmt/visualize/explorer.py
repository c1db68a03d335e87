"""A translation to look around in: its attention, probabilities and alternatives, as a page.

The data, a page that needs nothing else, the same in a notebook, and what BertViz takes. What
draws is explorer.js with explorer.css; the page of `nmt serve` is built around the same two files.
"""

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Sequence
from importlib import resources
from typing import NamedTuple

import numpy as np

from nmt.decoding.alignment import alignment_scores, entropies
from nmt.decoding.translation import Attention, Translation

KINDS = Attention._fields
LANGUAGES = ("en", "zh")

_START = "<s>"  # what the decoder reads before the first target token
_DECIMALS = 3  # of weights, and of the scores of heads
_PROBABILITY_DECIMALS = 4


def explorer_data(translation: Translation) -> dict:
    """Return all that there is to look at in a translation, as plain values for JSON.

    Args:
      translation: made with `attention=True`.

    Returns:
      source, text, score, truncated, source_tokens, target_tokens; probabilities: of each target
      token given those before it; attention: {cross, encoder, decoder}, nested lists as in
      `Attention`, rounded to three decimals; heads: for each kind its "entropy", (L, H), and for
      cross its "alignment", (L, H), see `nmt.decoding.alignment`; alternatives: such dictionaries,
      or only text and score where an alternative carries no attention.

    Raises:
      ValueError: the translation is empty or carries no attention.
    """
    attention = _attention(translation)
    return {
        "source": translation.source,
        "text": translation.text,
        "score": _finite(translation.score),
        "truncated": translation.truncated,
        "source_tokens": list(translation.source_tokens),
        "target_tokens": list(translation.target_tokens),
        "probabilities": [
            round(math.exp(each), _PROBABILITY_DECIMALS) if math.isfinite(each) else 0.0
            for each in translation.token_log_probs
        ],
        "attention": {kind: rounded(getattr(attention, kind)) for kind in KINDS},
        "heads": head_scores(translation),
        "alternatives": [
            explorer_data(each)
            if each.attention is not None and each.target_tokens
            else {"text": each.text, "score": _finite(each.score)}
            for each in translation.alternatives
        ],
    }


def head_scores(
    translation: Translation, kinds: Sequence[str] = KINDS
) -> dict[str, dict[str, list]]:
    """Return for each kind of attention the entropy of its heads, and how they align for cross.

    Args:
      translation: one with attention.
      kinds: of KINDS.

    Raises:
      ValueError: the translation is empty or carries no attention.
    """
    weights = _attention(translation)._asdict()
    scores = {kind: {"entropy": rounded(entropies(weights[kind]))} for kind in kinds}
    if "cross" in scores:
        alignment = alignment_scores(
            weights["cross"], translation.source_tokens, translation.target_tokens
        )
        scores["cross"]["alignment"] = rounded(alignment)
    return scores


def rounded(weights: np.ndarray) -> list:
    """Return weights as nested lists of few decimals."""
    return np.round(np.asarray(weights, np.float64), _DECIMALS).tolist()


def explorer_page(translations: Sequence[Translation], language: str = "en") -> str:
    """Return an HTML page to look around in translations with a browser.

    It is whole in itself: nothing is loaded from anywhere, and its policy
    (Content-Security-Policy) lets the browser run nothing but its own script.

    Args:
      translations: at least one, each made with `attention=True`.
      language: of the page's words, "en" or "zh"; the page has a switch.

    Raises:
      ValueError: no translations, one without attention, or an unknown language.
    """
    if not translations:
        raise ValueError("there is nothing to explore: translations is empty")
    data = {"translations": [explorer_data(each) for each in translations]}
    return whole_page("explorer.html", language, data)


def whole_page(name: str, language: str, data: dict) -> str:
    """Return a page of this package that needs nothing but itself, with its data and its policy.

    Args:
      name: its file, which has the comments policy, data, explorer.css and explorer.js.
      language: of its words at first, "en" or "zh".
      data: what JSON can hold.

    Raises:
      ValueError: an unknown language.
    """
    if language not in LANGUAGES:
        raise ValueError(f"language must be en or zh; received {language!r}")
    page = with_component(_read(name))
    policy = f"default-src 'none'; {allowed_sources(page)}; base-uri 'none'; form-action 'none'"
    page = page.replace(
        "<!-- policy -->", f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    )
    text = _json({"language": language, **data})
    # Last, so that nothing in the data is taken for a comment of the page.
    return page.replace(
        "<!-- data -->", f'<script type="application/json" id="data">{text}</script>'
    )


class Shown(NamedTuple):
    """A page in a cell of a notebook, where a frame keeps it apart from the notebook's own."""

    text: str
    page: str
    height: int

    def __repr__(self):
        return f"<attention of {self.text!r}>"

    def _repr_html_(self):
        return (
            f'<iframe srcdoc="{html.escape(self.page)}" sandbox="allow-scripts" '
            f'title="{html.escape(repr(self))}" width="100%" height="{self.height}" '
            f'frameborder="0"></iframe>'
        )


def show(translation: Translation, height: int = 800, language: str = "en") -> Shown:
    """Show the attention of a translation in a notebook: the last value of a cell.

    The saved notebook holds the page: it works when the notebook is opened again, without a kernel,
    where the notebook is trusted to show HTML.

    Args:
      translation: made with `attention=True`.
      height: of the view, pixels; what is longer scrolls.
      language: of the view's words, "en" or "zh"; the view has a switch.

    Raises:
      ValueError: the translation is empty, carries no attention, or an unknown language.
    """
    return Shown(translation.text, explorer_page([translation], language), height)


def bertviz(translation: Translation) -> dict:
    """Return the attention of a translation as BertViz's `head_view` and `model_view` take it.

    BertViz wants tensors of PyTorch, a batch of one sentence for each layer:

        import torch
        from bertviz import model_view

        arguments = bertviz(translation)
        for name in ("encoder_attention", "decoder_attention", "cross_attention"):
            arguments[name] = [torch.tensor(layer) for layer in arguments[name]]
        model_view(**arguments)

    It labels the rows and columns of the decoder's self-attention with the same tokens, so
    `decoder_tokens` are what was read, from <s> on: a row of the decoder's and of the
    cross-attention is what the model looked at after reading the token that it is labelled with,
    when it predicted the next one.

    Args:
      translation: made with `attention=True`.

    Returns:
      encoder_attention, decoder_attention, cross_attention: for each layer nested lists of shape
      (1, H, S, S), (1, H, T, T), (1, H, T, S); encoder_tokens: S; decoder_tokens: T.

    Raises:
      ValueError: the translation is empty or carries no attention.
    """
    data = explorer_data(translation._replace(alternatives=[]))
    batches = {
        f"{kind}_attention": [[layer] for layer in data["attention"][kind]] for kind in KINDS
    }
    return {
        **batches,
        "encoder_tokens": data["source_tokens"],
        "decoder_tokens": [_START, *data["target_tokens"][:-1]],
    }


def with_component(page: str) -> str:
    """Return a page with explorer.css and explorer.js where it names them in a comment."""
    for name in ("explorer.css", "explorer.js"):
        page = page.replace(f"/* {name} */", _read(name))
    return page


def allowed_sources(page: str) -> str:
    """Return the part of a Content-Security-Policy that allows a page its own script and style."""
    sources = []
    for tag in ("script", "style"):
        (own,) = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(own.encode("utf-8")).digest()).decode("ascii")
        sources.append(f"{tag}-src 'sha256-{digest}'")
    return "; ".join(sources)


def _attention(translation: Translation) -> Attention:
    if not translation.source_tokens or not translation.target_tokens:
        raise ValueError("there is nothing to explore: the translation is empty")
    if translation.attention is None:
        raise ValueError("the translation carries no attention; translate with attention=True")
    return translation.attention


def _finite(value):
    """Return a number that JSON can hold; None for what is none, as a broken model may give."""
    return round(float(value), _PROBABILITY_DECIMALS) if math.isfinite(value) else None


def _json(data):
    """Return JSON that ends no script element, whatever the tokens are."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _read(name):
    return resources.files("nmt.visualize").joinpath(name).read_text(encoding="utf-8")
