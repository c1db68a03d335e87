"""What the tests of the server share: an engine without a model, and a client without a network."""

import asyncio
import json
import threading
import urllib.parse
from typing import NamedTuple

import numpy as np

from nmt.decoding.options import GREEDY
from nmt.decoding.translation import Attention, Translation

LAYERS, HEADS = 2, 3


def made_attention(translation, seed=0, layers=LAYERS, heads=HEADS):
    """Return attention by chance, of the right shapes; that of the decoder sees nothing later."""
    draw = np.random.default_rng(seed)
    s, t = len(translation.source_tokens), len(translation.target_tokens)

    def weights(rows, columns, seen):
        drawn = draw.random((layers, heads, rows, columns)).astype(np.float32) ** 4 * seen
        return drawn / drawn.sum(axis=-1, keepdims=True)

    causal = np.tril(np.ones((t, t), np.float32))
    return Attention(
        encoder=weights(s, s, 1.0), decoder=weights(t, t, causal), cross=weights(t, s, 1.0)
    )


class WordTokenizer:
    """A word is a token; ids do not matter."""

    def encode(self, texts):
        return [[1] * len(text.split()) for text in texts]


class FakeEngine:
    """Puts 译 before every word. `hold` stops it until it is set free; "fail" makes it fail."""

    target_language = "zh"
    segment_tokens = 12

    def __init__(self):
        self.source_tokenizer = WordTokenizer()
        self.batches = []  # the sentences of each call
        self.free = threading.Event()
        self.free.set()
        self.entered = threading.Event()  # since it was told to hold

    def hold(self):
        self.entered.clear()
        self.free.clear()

    def translate(self, texts, options=GREEDY, *, attention=False, prefixes=None):
        self.batches.append(list(texts))
        self.entered.set()
        assert self.free.wait(20)
        if any("fail" in text for text in texts):
            raise RuntimeError("cannot translate a secret")
        return [self._translation(text, options, attention) for text in texts]

    def _translation(self, text, options, attention):
        nbest = [self._hypothesis(text, place) for place in range(options.nbest)]
        if attention:
            nbest = [
                each._replace(attention=made_attention(each, len(text) + place))
                for place, each in enumerate(nbest)
            ]
        return nbest[0]._replace(alternatives=nbest[1:])

    def _hypothesis(self, text, place):
        words = text.split()
        target = [f"{'译又再'[min(place, 2)]}{word}" for word in words]
        return Translation(
            source=text,
            text="".join(target),
            source_tokens=[f"▁{word}" for word in words] + ["</s>"],
            target_tokens=target + ["</s>"],
            token_log_probs=[-0.25 * index for index in range(len(target) + 1)],
            score=-0.5 - place,
        )


class Response(NamedTuple):
    """What a request was answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self):
        return json.loads(self.body)


class Client:
    """Sends requests to an application by hand; may be used from several threads."""

    def __init__(self, app):
        self.app = app

    def get(self, path, **headers):
        return self.request("GET", path, **headers)

    def post(self, path, fields=None, *, form=None, chunks=None, **headers):
        """POST `fields` as JSON, or `form`, or the body in `chunks` as it is."""
        if form is not None:
            chunks = [urllib.parse.urlencode(form, doseq=True).encode()]
            headers["content_type"] = "application/x-www-form-urlencoded"
        elif chunks is None:
            chunks = [json.dumps(fields).encode()]
            headers["content_type"] = "application/json"
        return self.request("POST", path, chunks, **headers)

    def request(self, method, path, chunks=(b"",), **headers):
        """Send a request; a header is named with _ for -. Wait for the answer."""
        *first, last = chunks
        messages = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in first]
        messages.append({"type": "http.request", "body": last, "more_body": False})

        async def receive():
            if messages:
                return messages.pop(0)
            await asyncio.Event().wait()  # a client that waits

        return self.exchange(method, path, receive, **headers)

    def exchange(self, method, path, receive, **headers):
        """Send a request whose body comes from the ASGI function `receive`."""
        headers = {"host": "testserver"} | headers
        scope = {
            **{"type": "http", "http_version": "1.1", "scheme": "http", "method": method},
            **{"path": path, "root_path": "", "query_string": b""},
            "headers": [
                (name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()
            ],
        }
        sent = []

        async def send(message):
            sent.append(message)

        asyncio.run(asyncio.wait_for(self.app(scope, receive, send), 30))
        start, *rest = sent
        return Response(
            start["status"],
            {name.decode(): value.decode() for name, value in start["headers"]},
            b"".join(message.get("body", b"") for message in rest),
        )
