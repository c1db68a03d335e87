"""A headless Chromium that tests drive by its own protocol through two pipes."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import time

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)


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
        self._session = self._attach("page")
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.command(f"{domain}.enable")

    def _attach(self, kind):
        targets = self.command("Target.getTargets")["targetInfos"]
        target = next(each["targetId"] for each in targets if each["type"] == kind)
        attached = self.command("Target.attachToTarget", targetId=target, flatten=True)
        return attached["sessionId"]

    @contextlib.contextmanager
    def in_frame(self):
        """Send commands to the frame in the page instead, one that is kept apart from it."""
        page, self._session = self._session, None
        try:
            self._session = self._attach("iframe")
            yield
        finally:
            self._session = page

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

    def open(self, url, name="state"):
        """Open a page and wait until its script has set the global `name`."""
        self.events.clear()
        self.command("Page.navigate", url=url)
        self.until(f"document.readyState === 'complete' && typeof {name} !== 'undefined'")

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
