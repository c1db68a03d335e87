"""The page in a real browser: headless Chromium, driven by its own protocol through two pipes."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import threading
import time

import pytest
from serving import HEADS, LAYERS, FakeEngine

uvicorn = pytest.importorskip("uvicorn")

from nmt.serve.app import create_app  # noqa: E402
from nmt.serve.limits import Limits  # noqa: E402
from nmt.serve.served import Served  # noqa: E402

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="no Chromium or Chrome is installed")

LIMIT = 400


class Browser:
    """One tab. Commands: https://chromedevtools.github.io/devtools-protocol/."""

    def __init__(self, profile):
        to_browser, self._commands = os.pipe()
        self._answers, from_browser = os.pipe()
        arguments = [
            *(CHROMIUM, "--headless=new", "--no-sandbox", "--remote-debugging-pipe"),
            *("--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--lang=en"),
            *("--disable-background-networking", "--disable-component-update"),
            *(f"--user-data-dir={profile}", "about:blank"),
        ]
        # It reads from descriptor 3 and writes to descriptor 4.
        shell = ["bash", "-c", f'exec "$@" 3<&{to_browser} 4>&{from_browser}', "bash"]
        self._process = subprocess.Popen(
            shell + arguments,
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        self._number = 0
        self.events = []
        self._session = None
        targets = self.command("Target.getTargets")["targetInfos"]
        tab = next(each["targetId"] for each in targets if each["type"] == "page")
        attached = self.command("Target.attachToTarget", targetId=tab, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.command(f"{domain}.enable")

    def command(self, method, **parameters):
        """Send a command; return its result. Events that come meanwhile are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self.events.append(answer)

    def _receive(self):
        while b"\0" not in self._buffer:
            chunk = os.read(self._answers, 1 << 20)
            assert chunk, "the browser has ended"
            self._buffer += chunk
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def evaluate(self, expression):
        """Return the value of a JavaScript expression, awaited if it is a promise."""
        result = self.command(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def until(self, expression, seconds=20):
        """Wait until a JavaScript expression holds; return its value."""
        end = time.monotonic() + seconds
        while not (value := self.evaluate(expression)):
            assert time.monotonic() < end, f"{expression} did not come true:\n{self.text()}"
            time.sleep(0.02)
        return value

    def open(self, url):
        self.events.clear()
        self.command("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && typeof state !== 'undefined'")

    def type(self, text):
        """Type into what has the focus."""
        self.command("Input.insertText", text=text)

    def press(self, key, code):
        for kind in ("keyDown", "keyUp"):
            self.command(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code
            )

    def text(self, selector="body"):
        """Return what is to be read there."""
        return self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")

    def texts(self, selector):
        return self.evaluate(
            f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.innerText)"
        )

    def picture(self, path):
        """Write a PNG of the whole page."""
        shot = self.command("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def complaints(self):
        """Return what the browser has logged: scripts that failed, policies that were broken."""
        return [
            event["params"]
            for event in self.events
            if event.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown")
        ]

    def close(self):
        with contextlib.suppress(AssertionError, OSError):
            self._session = None
            self.command("Browser.close")
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._commands)
        os.close(self._answers)


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
    assert page.texts("#nbest li") == [
        *("译Hiscore -0.50", "又Hiscore -1.50", "再Hiscore -2.50", "再Hiscore -3.50")
    ]
    page.evaluate("beam.value = 2, beam.dispatchEvent(new Event('change'))")
    page.until("document.querySelectorAll('#nbest li').length === 2")


def test_probabilities_are_told_by_numbers_and_colours(page):
    page.type("I like cats")
    translated(page)
    assert page.texts(".token") == ["译I\n100%", "译like\n77.9%", "译cats\n60.7%", "</s>\n47.2%"]
    colours = page.evaluate(
        "[...document.querySelectorAll('.token')].map((e) => getComputedStyle(e).backgroundColor)"
    )
    assert len(set(colours)) == 4
    assert page.evaluate("document.querySelector('.token').title") == "译I: 100%"


def test_attention(page, engine):
    page.type("I like cats")
    translated(page)
    weights = engine.translate(["I like cats"], attention=True)[0].attention.cross
    shown = (
        "[...document.querySelectorAll('#heatmap tbody tr')].map((line) => "
        "[...line.querySelectorAll('td')].map((cell) => cell.style.getPropertyValue('--w')))"
    )

    def close(matrix):
        found = [[float(weight) for weight in row] for row in page.evaluate(shown)]
        return found == [pytest.approx(list(row), abs=2e-3) for row in matrix]

    assert page.texts("#heatmap thead span") == ["▁I", "▁like", "▁cats", "</s>"]
    assert page.texts("#heatmap tbody th") == ["译I", "译like", "译cats", "</s>"]
    assert close(weights[LAYERS - 1].mean(axis=0))
    page.evaluate("layer.value = 0, head.value = 1, head.dispatchEvent(new Event('change'))")
    assert close(weights[0, 1])
    page.evaluate(
        "layer.value = 'mean', head.value = 'mean', layer.dispatchEvent(new Event('change'))"
    )
    assert close(weights.mean(axis=(0, 1)))
    assert page.evaluate("head.options.length") == HEADS + 1

    page.evaluate("document.querySelector('#heatmap td').focus()")
    page.press("ArrowRight", 39)
    page.press("ArrowDown", 40)
    weight = round(100 * weights.mean(axis=(0, 1))[1, 1], 1)
    assert page.text("#readout") == (
        f"When predicting 译like, {weight:g}% of the attention was on ▁like."
    )
    assert page.texts("th.here") == ["▁like", "译like"]
    page.press("ArrowUp", 38)
    page.press("ArrowUp", 38)  # there is nothing further up
    assert page.texts("th.here") == ["▁like", "译I"]


def test_a_long_text_shows_one_sentence_at_a_time(page):
    page.type("One two three.\nFour five.\n" + "Many words in this line. " * 14)
    translated(page)
    assert "at most 300 characters" in page.text("#without")
    assert not page.evaluate("document.getElementById('heatmap').checkVisibility()")
    page.evaluate("sentence.value = 1, sentence.dispatchEvent(new Event('change'))")
    assert page.texts("#nbest li")[0].startswith("译Four译five.")


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
    names = "[...document.querySelectorAll('[data-text], h1')].map((e) => e.innerText)"
    english = page.evaluate(names)
    page.evaluate("language.click()")
    chinese = page.evaluate(names)
    assert not set(english) & set(chinese) - {""}
    assert page.text("h1") == "英语译中文"
    assert page.evaluate("document.documentElement.lang") == "zh-Hans"
    # Both languages say the same things, and the choice is remembered.
    assert page.evaluate("Object.keys(TEXTS.en).join() === Object.keys(TEXTS.zh).join()")
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
        assert "ctranslate2 gives no attention" in browser.text("#without")
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
                f"paint(document.querySelector('#heatmap td'), {share / 100});"
                f"document.querySelector('.token').style.setProperty('--p', {share / 100})"
            )
            for selector in ("#heatmap td", ".token"):
                assert page.evaluate(f"({CONTRAST})('{selector}')") >= 4.4, (selector, share)
    page.command("Emulation.setEmulatedMedia", features=[])
    assert backs["light"] != backs["dark"]
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.command("Emulation.clearDeviceMetricsOverride")


# The least contrast (WCAG 2.1) of text to what is behind it, among the elements of a selector.
CONTRAST = """
(selector) => {
  const draw = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const over = (back, colour) => {
    draw.fillStyle = `rgb(${back.join()})`;
    draw.fillRect(0, 0, 1, 1);
    draw.fillStyle = colour;
    draw.fillRect(0, 0, 1, 1);
    return [...draw.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const luminance = (colour) => {
    const linear = colour.map((each) => each / 255)
      .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const behind = (element) => over(
    element.parentElement ? behind(element.parentElement) : [255, 255, 255],
    getComputedStyle(element).backgroundColor,
  );
  return Math.min(...[...document.querySelectorAll(selector)]
    .filter((element) => element.innerText.trim())
    .map((element) => {
      const back = behind(element);
      const front = over(back, getComputedStyle(element).color);
      const [dark, light] = [luminance(back), luminance(front)].sort((a, b) => a - b);
      return (light + 0.05) / (dark + 0.05);
    }));
}
"""
