"""The page of the server in a real browser."""

import threading
import time

import numpy as np
import pytest
from browser import CHROMIUM, CONTRAST, Browser
from serving import HEADS, LAYERS, FakeEngine

uvicorn = pytest.importorskip("uvicorn")

from nmt.decoding.options import SearchOptions  # noqa: E402
from nmt.serve.app import create_app  # noqa: E402
from nmt.serve.limits import Limits  # noqa: E402
from nmt.serve.served import Served  # noqa: E402

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="no Chromium or Chrome is installed")

LIMIT = 400


class Server:
    """An application on a port of this machine, in a thread of this process."""

    def __init__(self, app):
        config = uvicorn.Config(app, port=0, log_level="error", lifespan="on", ws="none")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"

    def stop(self):
        self._server.should_exit = True
        self._thread.join(20)
        assert not self._thread.is_alive()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    started = Browser(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


@pytest.fixture(scope="module")
def engine():
    return FakeEngine()


@pytest.fixture(scope="module")
def url(engine):
    server = Server(create_app(engine, Served("tiny", "tensorflow"), Limits(LIMIT, queue=2)))
    yield server.url
    server.stop()


@pytest.fixture
def page(browser, engine, url):
    """The page in English, its cursor in the text field."""
    browser.open(f"{url}/?lang=en")
    browser.until("state.server !== null")
    yield browser
    engine.free.set()


def translated(browser):
    """Wait for the translation of what stands in the text field; return it."""
    browser.until("document.getElementById('status').innerText.match(/ s$| 秒$/)")
    return browser.text("#output")


def test_typing_translates(page):
    page.type("Good")
    assert translated(page) == "译Good"
    page.type(" morning")
    page.until("document.getElementById('output').innerText === '译Good译morning'")
    assert page.text("#count") == "12 of 400 characters"
    assert page.text("h1") == "English to Chinese"
    assert "tiny" in page.text("#model")
    assert not page.complaints()


def test_lines_stay_lines_and_output_is_shown_as_it_is(page):
    markup = "Hello %1$s, see <b>you</b> & <script>document.title='broken'</script>"
    page.type(f"{markup}\n\n<img src=x onerror=\"document.title='broken'\">")
    expected = "".join(f"译{word}" for word in markup.split())
    assert translated(page).split("\n") == [
        *(expected, ""), "译<img译src=x译onerror=\"document.title='broken'\">"
    ]  # fmt: skip
    assert page.evaluate("document.querySelectorAll('main b, main img, main script').length") == 0
    assert page.evaluate("document.title") == "English to Chinese"
    assert page.evaluate("document.getElementById('output').innerHTML").count("&lt;script&gt;") == 1


def test_a_text_in_the_address_is_translated(browser, url):
    browser.open(f"{url}/?lang=en&q=I%20like%20cats")
    assert translated(browser) == "译I译like译cats"


def test_only_the_newest_answer_is_shown(page, engine):
    """What was typed on meanwhile is not even translated, unless that has begun."""
    engine.hold()
    for text, waiting in (("old", 0), ("newer", 1), ("newest", 1)):
        page.evaluate("document.getElementById('input').select()")
        page.type(text)
        time.sleep(0.5)
        assert engine.entered.wait(10)
        page.until(f"fetch('healthz').then((r) => r.json()).then((a) => a.waiting === {waiting})")
    assert page.text("#status") == "Translating …"
    engine.free.set()
    assert translated(page) == "译newest"
    assert page.evaluate("document.getElementById('error').hidden")
    assert engine.batches[-2:] == [["old"], ["newest"]]


def test_best_translations_follow_the_beam(page):
    page.type("Hi")
    translated(page)
    assert page.texts(".nbest li") == [
        *("译Hi\nscore -0.50", "又Hi\nscore -1.50", "再Hi\nscore -2.50", "再Hi\nscore -3.50")
    ]
    page.evaluate("beam.value = 2, beam.dispatchEvent(new Event('change'))")
    page.until("document.querySelectorAll('.nbest li').length === 2")


def test_probabilities_are_told_by_numbers_and_colours(page):
    page.type("I like cats")
    translated(page)
    assert page.texts(".token.sure") == [
        "译I\n100%",
        "译like\n77.9%",
        "译cats\n60.7%",
        "</s>\n47.2%",
    ]
    colours = page.evaluate(
        "[...document.querySelectorAll('.token.sure')]"
        ".map((e) => getComputedStyle(e).backgroundColor)"
    )
    assert len(set(colours)) == 4
    assert page.evaluate("document.querySelector('.token.sure').title") == "译I: 100%"


def weights_shown(page):
    """Return the matrix that the heatmap shows."""
    rows = page.evaluate(
        "[...document.querySelectorAll('.heatmap tbody tr')].map((line) => "
        "[...line.querySelectorAll('td')].map((cell) => cell.style.getPropertyValue('--w') || 0))"
    )
    return [[float(weight) for weight in row] for row in rows]


def choose(page, name, value):
    page.evaluate(
        f"document.querySelector('{name}').value = '{value}', "
        f"document.querySelector('{name}').dispatchEvent(new Event('change'))"
    )


def test_attention(page, engine):
    page.type("I like cats")
    translated(page)
    best = engine.translate(["I like cats"], SearchOptions(4, 4), attention=True)[0]
    assert page.texts(".heatmap thead bdi") == ["▁I", "▁like", "▁cats", "</s>"]
    assert page.texts(".heatmap tbody th") == ["译I", "译like", "译cats", "</s>"]

    def shown(expected):
        np.testing.assert_allclose(weights_shown(page), expected, atol=1e-3)

    shown(best.attention.cross[LAYERS - 1].mean(axis=0))
    choose(page, "select.layer", 0)
    choose(page, "select.head", 1)
    shown(best.attention.cross[0, 1])
    page.evaluate("document.querySelector('[value=encoder]').click()")
    page.until("explorer.shownKind === 'encoder'")  # asked only now
    shown(best.attention.encoder[0, 1])
    page.evaluate("document.querySelector('[value=decoder]').click()")
    assert page.texts(".heatmap thead bdi") == ["<s>", "译I", "译like", "译cats"]
    shown(best.attention.decoder[0, 1])
    page.evaluate("document.querySelectorAll('.nbest button')[2].click()")
    assert page.texts(".heatmap tbody th") == ["再I", "再like", "再cats", "</s>"]
    shown(best.alternatives[1].attention.decoder[0, 1])
    page.evaluate("document.querySelector('[value=encoder]').click()")
    shown(best.attention.encoder[0, 1])
    assert len(page.texts(".heads button")) == LAYERS * HEADS
    assert not page.complaints()


def test_a_long_text_shows_one_sentence_at_a_time(page):
    page.type("One two three.\nFour five.\n" + "Many words in this line. " * 14)
    translated(page)
    assert "at most 300 characters" in page.text(".without")
    assert not page.evaluate("document.querySelector('.heatmap').checkVisibility()")
    page.evaluate("sentence.value = 1, sentence.dispatchEvent(new Event('change'))")
    assert page.texts(".nbest li")[0].startswith("译Four译five.")


def test_a_text_over_the_limit_is_refused_and_kept(page, engine):
    page.type("Hello")
    translated(page)
    page.type("x" * LIMIT)
    page.until("!document.getElementById('error').hidden")
    assert page.text("#error") == (
        "The text has 405 characters; the limit is 400. It was not sent, and nothing was cut off."
    )
    assert len(page.evaluate("document.getElementById('input').value")) == 405
    assert page.evaluate("document.getElementById('input').getAttribute('aria-invalid')") == "true"
    page.evaluate("language.click()")
    assert page.text("#error").startswith("文本有 405 个字符，上限为 400。")
    page.evaluate("language.click()")
    page.press("Backspace", 8)
    page.evaluate("document.getElementById('input').value = 'short'")
    page.type("!")
    page.until("document.getElementById('error').hidden")
    assert translated(page).endswith("!")


def test_a_failed_translation_is_told_and_the_text_kept(page):
    page.type("please fail")
    page.until("!document.getElementById('error').hidden")
    assert page.text("#error").startswith("The server says: the translation failed")
    assert "secret" not in page.text()
    assert page.evaluate("document.getElementById('input').value") == "please fail"


def test_a_busy_server_is_asked_again(page, engine, url):
    """One translation holds the engine, two more fill the queue."""
    engine.hold()
    ask = (
        "fetch('translate', {method: 'POST', headers: {'Content-Type': 'application/json'}, "
        "body: JSON.stringify({text: 'x'})}).catch(() => 0), 0"
    )
    page.evaluate(ask)
    assert engine.entered.wait(10)
    page.evaluate(f"{ask}, {ask}")
    page.until("fetch('healthz').then((r) => r.json()).then((about) => about.waiting === 2)")
    page.type("hello")
    page.until("!document.getElementById('error').hidden")
    assert page.text("#error") == ("The server is busy; trying again in 1 s. Your text is kept.")
    engine.free.set()
    assert translated(page) == "译hello"
    assert page.evaluate("document.getElementById('error').hidden")


def test_a_server_that_is_gone_is_told_and_asked_again(browser):
    server = Server(create_app(FakeEngine(), Served("tiny", "tensorflow")))
    browser.open(f"{server.url}/?lang=zh")
    browser.until("state.server !== null")
    server.stop()
    browser.type("Good morning")
    browser.until("!document.getElementById('error').hidden")
    assert browser.text("#error").startswith("服务器没有响应。您的文本已保留。")
    assert browser.text("#error button") == "重试"
    assert browser.evaluate("document.getElementById('input').value") == "Good morning"


def test_the_language_of_the_page(page, url):
    names = "[...document.querySelectorAll('[data-text], [data-say], h1')].map((e) => e.innerText)"
    english = page.evaluate(names)
    page.evaluate("language.click()")
    chinese = page.evaluate(names)
    assert not set(english) & set(chinese) - {""}
    assert page.text("h1") == "英语译中文"
    assert page.evaluate("document.documentElement.lang") == "zh-Hans"
    # Both languages say the same things, and the choice is remembered.
    for texts in ("TEXTS", "EXPLORER_TEXTS"):
        assert page.evaluate(f"Object.keys({texts}.en).join() === Object.keys({texts}.zh).join()")
    page.open(url)
    assert page.text("h1") == "英语译中文"
    page.evaluate("localStorage.clear()")
    page.command("Network.setUserAgentOverride", userAgent="x", acceptLanguage="zh-TW")
    page.open(url)
    assert page.evaluate("state.language") == "zh"
    page.command("Network.setUserAgentOverride", userAgent="x", acceptLanguage="fr")
    page.open(url)
    assert page.evaluate("state.language") == "en"


def test_an_engine_without_attention(browser):
    served = Served("tiny", "ctranslate2", gives_attention=False)
    server = Server(create_app(FakeEngine(), served))
    try:
        browser.open(f"{server.url}/?lang=en&q=Hi")
        assert translated(browser) == "译Hi"
        assert "ctranslate2 gives no attention" in browser.text(".without")
    finally:
        server.stop()


def test_dark_and_narrow(page):
    """Readable contrast in both schemes, and nothing sticks out of a telephone's screen."""
    page.type("I like cats and dogs and birds and fish very much, don't you?")
    translated(page)
    page.command(
        "Emulation.setDeviceMetricsOverride",
        width=360,
        height=800,
        deviceScaleFactor=1,
        mobile=True,
    )
    backs = {}
    for scheme in ("light", "dark"):
        page.command(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        backs[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
        for selector in ("#output", ".muted", "h2, label, button, th"):
            assert page.evaluate(f"({CONTRAST})('{selector}')") >= 4.5, selector
        for share in (0, 25, 40, 49, 50, 51, 60, 80, 100):  # of a weight, of a probability
            page.evaluate(
                f"explorer.numbers.checked = true, explorer.drawNumbers();"
                f"for (const each of document.querySelectorAll('tbody td, .keys .token'))"
                f" paint(each, {share / 100});"
                f"for (const each of document.querySelectorAll('.token.sure'))"
                f" each.style.setProperty('--p', {share / 100})"
            )
            for selector in (".heatmap td", ".keys .token", ".token.sure"):
                assert page.evaluate(f"({CONTRAST})('{selector}')") >= 4.4, (selector, share)
    page.command("Emulation.setEmulatedMedia", features=[])
    assert backs["light"] != backs["dark"]
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.command("Emulation.clearDeviceMetricsOverride")
