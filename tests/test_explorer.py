"""The attention explorer: its data, its page in a real browser, notebooks and BertViz."""

import html
import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
from browser import CHROMIUM, Browser
from serving import HEADS, LAYERS, made_attention

from nmt.decoding.alignment import alignment_scores, entropies
from nmt.decoding.translation import Translation
from nmt.visualize import show
from nmt.visualize.explorer import bertviz, explorer_data, explorer_page

HOSTILE = [
    *("</script>", "<img src=x onerror=\"document.title='broken'\">", "<!--<script>", r"$\frac$"),
    *("\"'`&amp;", "new\nline", "\u2028", "{policy}", "<!-- data -->", "/* explorer.js */"),
]
URL_OF_A_NAME = "http://www.w3.org/2000/svg"  # what SVG is called; nothing is loaded from there


def translation(source, target, seed=0, **rest):
    made = Translation(
        " ".join(source),
        "".join(target),
        [*source, "</s>"],
        [*target, "</s>"],
        [-0.25 * place for place in range(len(target) + 1)],
        score=-0.5,
        **rest,
    )
    return made._replace(attention=made_attention(made, seed))


CATS = translation(
    ["▁I", "▁like", "▁cats"],
    ["我", "喜欢", "猫", "。"],
    alternatives=[
        translation(["▁I", "▁like", "▁cats"], ["我", "爱", "猫"], seed=1)._replace(score=-0.75)
    ],
)


# What is shown -----------------------------------------------------------------------------------


def test_the_data_are_those_of_the_translation():
    data = explorer_data(CATS)
    for kind, weights in CATS.attention._asdict().items():
        np.testing.assert_allclose(data["attention"][kind], weights, atol=5e-4)
        np.testing.assert_allclose(np.sum(data["attention"][kind], axis=-1), 1.0, atol=5e-3)
        np.testing.assert_allclose(data["heads"][kind]["entropy"], entropies(weights), atol=5e-4)
    alignment = alignment_scores(CATS.attention.cross, CATS.source_tokens, CATS.target_tokens)
    np.testing.assert_allclose(data["heads"]["cross"]["alignment"], alignment, atol=5e-4)
    assert data["source_tokens"] == ["▁I", "▁like", "▁cats", "</s>"]
    assert data["target_tokens"] == ["我", "喜欢", "猫", "。", "</s>"]
    assert data["probabilities"] == [1.0, 0.7788, 0.6065, 0.4724, 0.3679]
    assert (data["source"], data["text"], data["score"]) == ("▁I ▁like ▁cats", "我喜欢猫。", -0.5)
    assert data["alternatives"] == [explorer_data(CATS.alternatives[0])]
    assert data == json.loads(json.dumps(data, allow_nan=False))


def test_an_alternative_without_attention_is_only_told():
    alternative = CATS.alternatives[0]._replace(attention=None)
    data = explorer_data(CATS._replace(alternatives=[alternative]))
    assert data["alternatives"] == [{"text": "我爱猫", "score": -0.75}]


def test_numbers_of_a_broken_model_are_still_json():
    broken = CATS._replace(score=float("nan"), token_log_probs=[float("nan"), float("-inf")])
    data = explorer_data(broken)
    assert data["score"] is None
    assert data["probabilities"] == [0.0, 0.0]
    json.dumps(data, allow_nan=False)


@pytest.mark.parametrize("view", [explorer_data, show, bertviz, lambda each: explorer_page([each])])
def test_what_cannot_be_shown_is_refused(view):
    with pytest.raises(ValueError, match="carries no attention; translate with attention=True"):
        view(CATS._replace(attention=None))
    with pytest.raises(ValueError, match="the translation is empty"):
        view(Translation("", ""))


def test_a_page_needs_translations_and_a_language_it_knows():
    with pytest.raises(ValueError, match="translations is empty"):
        explorer_page([])
    with pytest.raises(ValueError, match="language must be en or zh; received 'fr'"):
        explorer_page([CATS], "fr")


# The page ----------------------------------------------------------------------------------------


class Elements(HTMLParser):
    """The elements of a page, and the text of its scripts."""

    def __init__(self, page):
        super().__init__()
        self.tags = []
        self.scripts = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.tags[-1:] == ["script"]:
            self.scripts[-1] += data


def test_the_page_is_whole_and_hostile_tokens_are_data():
    plain, hostile = explorer_page([CATS]), explorer_page([translation(HOSTILE, HOSTILE)])
    for page in (plain, hostile):
        assert set(re.findall(r"https?://[\w./]+", page)) == {URL_OF_A_NAME}
        assert not re.search(r"@import|url\(|\ssrc=[^x]|\shref=|eval\(|innerHTML", page)
        assert "default-src 'none'" in page
    elements = Elements(hostile)
    assert elements.tags == Elements(plain).tags
    data = json.loads(elements.scripts[0])
    assert data["translations"] == [explorer_data(translation(HOSTILE, HOSTILE))]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    started = Browser(tmp_path_factory.mktemp("profile"))
    started.command("Emulation.setFocusEmulationEnabled", enabled=True)
    yield started
    started.close()


@pytest.fixture
def opened(browser, tmp_path):
    """Write a page of translations and open it."""

    def open_page(*translations, language="en"):
        file = tmp_path / "page.html"
        file.write_text(explorer_page(translations, language), encoding="utf-8")
        browser.open(file.as_uri(), "explorer")
        return browser

    return open_page


needs_browser = pytest.mark.skipif(not CHROMIUM, reason="no Chromium or Chrome is installed")


def weights_of(page, selector):
    """Return the weights that elements are painted with; 0 for those that are not."""
    painted = page.evaluate(
        f"[...document.querySelectorAll('{selector}')].map((e) =>"
        f" e.classList.contains('weighted') ? e.style.getPropertyValue('--w') : 0)"
    )
    return [float(weight) for weight in painted]


@needs_browser
def test_keys_move_the_focus_and_what_is_told_follows(opened):
    page = opened(CATS)
    cross = CATS.attention.cross[-1].mean(axis=0)  # of the last layer, at first
    page.evaluate("document.querySelector('.queries [tabindex=\"0\"]').focus()")
    for _ in range(3):
        page.press("ArrowRight", 39)
    assert page.text(".queries [aria-selected=true] bdi") == "。"
    np.testing.assert_allclose(weights_of(page, ".keys .token"), cross[3], atol=1e-3)
    best = int(cross[3].argmax())
    assert best == 1
    told = page.text(".readout")
    assert told.startswith(
        f"When predicting “。”, the model looked at “{CATS.source_tokens[best]}” ("
    )
    assert float(told.split("(")[1].split("%")[0]) == pytest.approx(100 * cross[3, best], abs=0.11)
    lines = page.evaluate("document.querySelectorAll('.flow path').length")
    assert lines == sum(cross[3] >= 0.05) == 3
    page.press("ArrowUp", 38)  # along the strongest
    assert page.evaluate("document.activeElement.matches('.keys .token')")
    assert page.text(".keys [aria-selected=true] bdi") == CATS.source_tokens[best]
    np.testing.assert_allclose(weights_of(page, ".queries .token"), cross[:, best], atol=1e-3)
    assert page.text(".readout").startswith(f"“{CATS.source_tokens[best]}” got the largest shares")
    page.press("End", 35)
    page.press("ArrowRight", 39)  # there is nothing further
    assert page.text(".keys [aria-selected=true] bdi") == "</s>"
    assert page.evaluate("document.querySelectorAll('.keys [tabindex=\"0\"]').length") == 1

    page.evaluate("document.querySelector('.heatmap td[tabindex=\"0\"]').focus()")
    for key, code in (("ArrowDown", 40), ("ArrowDown", 40), ("ArrowRight", 39)):
        page.press(key, code)
    told = page.text(".readout")
    assert told.startswith("When predicting “猫”, ")
    assert told.endswith("% of the attention was on “▁like”.")
    assert float(told.split()[3].rstrip("%")) == pytest.approx(100 * cross[2, 1], abs=0.11)
    assert page.texts("th.here") == ["▁like", "猫"]


@needs_browser
def test_kinds_heads_and_alternatives_can_be_chosen(opened):
    dogs = translation(["▁dogs"], ["狗"])
    page = opened(CATS, dogs._replace(alternatives=[dogs, dogs]))

    def shown(expected):
        count = expected.shape[1]
        found = weights_of(page, ".heatmap tbody td")
        np.testing.assert_allclose(np.reshape(found, (-1, count)), expected, atol=1e-3)

    cells = LAYERS * HEADS
    order = np.argsort(-np.ravel(explorer_data(CATS)["heads"]["cross"]["alignment"]), kind="stable")
    page.evaluate(
        "explorer.orders.value = 'byAlignment', explorer.orders.dispatchEvent(new Event('change'))"
    )
    names = [f"Layer {place // HEADS + 1}, head {place % HEADS + 1}" for place in order]
    assert [text.split("\n")[0] for text in page.texts(".heads button")] == names
    page.evaluate("document.querySelector('.heads button').click()")
    shown(CATS.attention.cross.reshape(cells, 5, 4)[order[0]])
    page.press("End", 35)
    page.evaluate("document.activeElement.click()")
    shown(CATS.attention.cross.reshape(cells, 5, 4)[order[-1]])

    page.evaluate("document.querySelector('[value=decoder]').click()")
    assert page.texts(".keys bdi") == ["<s>", "我", "喜欢", "猫", "。"]
    assert page.texts(".queries bdi") == ["我", "喜欢", "猫", "。", "</s>"]
    assert page.texts(".special bdi") == ["</s>", "<s>", "</s>", "<s>", "</s>"]
    shown(CATS.attention.decoder.reshape(cells, 5, 5)[order[-1]])
    assert page.evaluate("document.querySelectorAll('td.masked').length") == 10
    page.evaluate("document.querySelectorAll('.nbest button')[1].click()")
    shown(CATS.alternatives[0].attention.decoder.reshape(cells, 4, 4)[order[-1]])
    assert page.texts(".token.sure bdi") == ["我", "爱", "猫", "</s>"]

    page.evaluate("document.getElementById('language').click()")
    assert page.text("h1") == "译文的内部"
    assert page.texts(".token.sure bdi") == ["我", "爱", "猫", "</s>"]  # still chosen
    page.evaluate("sentence.value = 1, sentence.dispatchEvent(new Event('change'))")
    assert page.texts(".queries bdi") == ["狗", "</s>"]
    pressed = "[...document.querySelectorAll('.nbest button')].map((e) => e.ariaPressed)"
    assert page.evaluate(pressed) == ["true", "false", "false"]
    assert not page.complaints()


@needs_browser
def test_what_comes_later_is_shown_whatever_is_pointed_at_meanwhile(opened):
    """As `nmt serve` has it: alternatives and kinds get their attention when they are chosen."""
    page = opened(CATS)
    page.evaluate(
        "const known = translations[0], { cross } = known.attention, asked = [];"
        "const alternatives = known.alternatives.map(({ text, score }) => ({ text, score }));"
        "explorer.show({ ...known, attention: { cross }, alternatives }, null,"
        " () => asked.push(explorer.kind));"
        "document.querySelectorAll('.nbest button')[1].click()"
    )
    page.evaluate("document.querySelector('.queries .token:last-child').focus()")  # the fifth
    page.evaluate("explorer.show(known)")
    assert page.texts(".queries bdi") == ["我", "爱", "猫", "</s>"]
    assert page.text(".readout").startswith("Point at a token")
    assert page.evaluate("asked") == ["cross"]
    assert not page.complaints()


@needs_browser
def test_hostile_tokens_are_shown_as_they_are(opened):
    page = opened(translation(HOSTILE, HOSTILE), language="zh")
    shown = page.evaluate("[...document.querySelectorAll('.keys bdi')].map((e) => e.textContent)")
    assert shown == [*HOSTILE, "</s>"]
    assert page.evaluate("document.querySelectorAll('main img, main script').length") == 0
    assert page.text("h1") == page.evaluate("document.title") == "译文的内部"
    page.evaluate("document.querySelector('.keys .token').focus()")
    assert page.text(".readout").startswith("“</script>”在预测这些词元时最受注意：")
    assert not page.complaints()


# Elsewhere ---------------------------------------------------------------------------------------


def test_a_notebook_shows_the_page_in_a_frame_of_its_own():
    shown = show(CATS, height=500, language="zh")
    frame = shown._repr_html_()
    (srcdoc,) = re.findall(r'srcdoc="([^"]*)"', frame)
    assert html.unescape(srcdoc) == explorer_page([CATS], "zh")
    assert 'sandbox="allow-scripts"' in frame
    assert 'height="500"' in frame
    assert repr(shown) == "<attention of '我喜欢猫。'>"


@needs_browser
def test_the_frame_shows_the_attention_and_is_kept_apart(browser, tmp_path):
    file = tmp_path / "notebook.html"
    file.write_text(f"<script>let cells = 1</script>{show(CATS)._repr_html_()}", encoding="utf-8")
    browser.open(file.as_uri(), "cells")
    with browser.in_frame():
        browser.until("typeof explorer !== 'undefined' && explorer.data")
        assert browser.texts(".queries bdi") == ["我", "喜欢", "猫", "。", "</s>"]
        assert browser.evaluate("typeof cells") == "undefined"
        assert browser.evaluate("origin") == "null"
    assert browser.evaluate("typeof explorer") == "undefined"


def test_bertviz_gets_what_its_views_take():
    arguments = bertviz(CATS)
    for kind, weights in CATS.attention._asdict().items():
        layers = arguments.pop(f"{kind}_attention")
        np.testing.assert_allclose(layers, weights[:, None], atol=5e-4)
    assert arguments == {
        "encoder_tokens": ["▁I", "▁like", "▁cats", "</s>"],
        "decoder_tokens": ["<s>", "我", "喜欢", "猫", "。"],
    }


def test_the_explorer_needs_neither_tensorflow_nor_matplotlib():
    code = (
        "import sys, nmt.visualize, nmt.serve.app; "
        "print([m for m in ('tensorflow', 'keras', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
