"""The server: its interface with an engine that needs no model, and `nmt serve` as a process."""

import asyncio
import contextlib
import http.client
import io
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from fontTools.ttLib import TTFont
from libretranslatepy import LibreTranslateAPI
from serving import HEADS, LAYERS, Client, FakeEngine
from toy_pairs import PAIRS

from nmt.config import ConfigError
from nmt.decoding.options import GREEDY, SearchOptions
from nmt.serve import app as app_module
from nmt.serve import batcher as batcher_module
from nmt.serve import server
from nmt.serve.app import create_app
from nmt.serve.batcher import Batcher, ClosedError, QueueFullError
from nmt.serve.limits import ATTENTION_CHARACTERS, Limits
from nmt.serve.page import load_page
from nmt.serve.served import Served
from nmt.visualize.explorer import head_scores

SERVED = Served("tiny", "fake")
LIMITS = Limits(characters=500, texts=10, queue=3)
JSON = {"content_type": "application/json"}
FORM = {"content_type": "application/x-www-form-urlencoded"}


@pytest.fixture
def engine():
    engine = FakeEngine()
    yield engine
    engine.free.set()


@pytest.fixture
def client(engine):
    client = Client(create_app(engine, SERVED, LIMITS))
    yield client
    engine.free.set()
    client.app.state.batcher.close()


def refused(response, status, *words):
    """Check that a request was refused in the one shape of all errors."""
    assert response.status == status, response.body
    assert response.headers["content-type"] == "application/json"
    assert list(response.json()) == ["error"]
    for word in words:
        assert str(word) in response.json()["error"]


# ---- Our own fields


def test_a_text(client):
    answer = client.post("/translate", {"text": "I like cats."})
    assert answer.status == 200
    assert answer.json() == {
        "translations": [
            {
                "text": "译I译like译cats.",
                "score": -0.5,
                "alternatives": [],
                "segments": [
                    {
                        "source": "I like cats.",
                        "text": "译I译like译cats.",
                        "score": -0.5,
                        "truncated": False,
                        "source_tokens": ["▁I", "▁like", "▁cats.", "</s>"],
                        "target_tokens": ["译I", "译like", "译cats.", "</s>"],
                        "token_log_probs": [0.0, -0.25, -0.5, -0.75],
                        "alternatives": [],
                    }
                ],
            }
        ]
    }


def test_several_texts_come_back_in_order(client):
    texts = ["One.", "", "Two.", "\n", "Three."]
    answer = client.post("/translate", {"text": texts}).json()
    assert [each["text"] for each in answer["translations"]] == [
        "译One.",
        "",
        "译Two.",
        "\n",
        "译Three.",
    ]
    assert client.post("/translate", {"text": []}).json() == {"translations": []}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "First line.\n\nThird line.\r\n  \nFifth.",
            "译First译line.\n\n译Third译line.\n\n译Fifth.",
        ),
        ("\n", "\n"),
        ("   Hello", "译Hello"),
        (
            "Hello %1$s, see <b>you</b> & <script>alert(1)</script>",
            "译Hello译%1$s,译see译<b>you</b>译&译<script>alert(1)</script>",
        ),
    ],
)
def test_lines_stay_and_nothing_is_escaped(client, text, expected):
    """SERV-05, by our own field, LibreTranslate's, and a form."""
    own = client.post("/translate", {"text": text})
    assert own.json()["translations"][0]["text"] == expected
    for libre in ({"fields": {"q": text}}, {"form": {"q": text}}):
        assert client.post("/translate", **libre).json() == {
            "translatedText": expected,
            "detectedLanguage": {
                "language": "en", "confidence": 50.0 if text.strip() else 0.0
            },
        }  # fmt: skip


def test_best_translations(client):
    answer = client.post("/translate", {"text": "One.\n\nTwo three.", "nbest": 3}).json()
    (translation,) = answer["translations"]
    assert translation["text"] == "译One.\n\n译Two译three."
    assert translation["alternatives"] == [
        {"text": "又One.\n\n又Two又three.", "score": -3.0},
        {"text": "再One.\n\n再Two再three.", "score": -5.0},
    ]
    assert [len(segment["alternatives"]) for segment in translation["segments"]] == [2, 2]


def test_attention(client, engine):
    answer = client.post("/translate", form={"text": "I like cats.", "attention": "true"}).json()
    attention = answer["translations"][0]["segments"][0]["attention"]
    assert np.shape(attention) == (LAYERS, HEADS, 4, 4)
    expected = engine.translate(["I like cats."], attention=True)[0].attention.cross
    np.testing.assert_allclose(attention, expected, atol=5e-4)
    long = "x " * (ATTENTION_CHARACTERS // 2)
    assert client.post("/translate", {"text": long, "attention": True}).status == 200
    response = client.post("/translate", {"text": long + "!", "attention": True})
    refused(response, 400, "attention", ATTENTION_CHARACTERS, ATTENTION_CHARACTERS + 1)


def test_all_attention(client, engine):
    fields = {"text": "I like cats.", "beam": 2, "nbest": 2, "attention": "all"}
    (segment,) = client.post("/translate", fields).json()["translations"][0]["segments"]
    assert client.post("/translate", form=fields).json()["translations"][0]["segments"] == [segment]
    best = engine.translate(["I like cats."], SearchOptions(2, 2), attention=True)[0]
    (second,) = segment["alternatives"]
    for answer, expected in ((segment, best), (second, best.alternatives[0])):
        weights = {"cross": answer["attention"], **answer["self_attention"]}
        for kind, matrices in weights.items():
            np.testing.assert_allclose(matrices, getattr(expected.attention, kind), atol=5e-4)
        assert answer["heads"] == head_scores(expected)
        assert answer["target_tokens"] == expected.target_tokens
    assert list(segment["self_attention"]) == ["encoder", "decoder"]
    assert list(second["self_attention"]) == ["decoder"]  # the source was read but once
    ordinary = client.post("/translate", {**fields, "attention": True}).json()
    (ordinary,) = ordinary["translations"][0]["segments"]
    assert "self_attention" not in ordinary
    assert list(ordinary["alternatives"][0]) == ["text", "score"]


def test_an_engine_without_attention_says_so(engine):
    served = Served("tiny", "fake", gives_attention=False)
    client = Client(create_app(engine, served))
    response = client.post("/translate", {"text": "Hi", "attention": True})
    refused(response, 400, "fake", "no attention")
    assert client.get("/healthz").json()["attention"] is False


def test_what_a_broken_model_says_is_still_json(engine, client):
    whole = engine._hypothesis
    engine._hypothesis = lambda *args: whole(*args)._replace(
        score=float("nan"), token_log_probs=[float("-inf"), -0.5]
    )
    answer = client.post("/translate", {"text": "Hi"}).json()["translations"][0]
    assert answer["score"] is None
    assert answer["segments"][0]["token_log_probs"] == [None, -0.5]


# ---- LibreTranslate's fields


def test_libretranslate_text_and_list(client):
    fields = {"source": "en", "target": "zh", "format": "text", "api_key": "", "made": "up"}
    one = client.post("/translate", {"q": "Hi", **fields})
    assert one.json() == {"translatedText": "译Hi"}
    assert client.post("/translate", form={"q": "Hi", **fields}).json() == one.json()
    several = client.post("/translate", {"q": ["Hi", "Ho"], **fields})
    assert several.json() == {"translatedText": ["译Hi", "译Ho"]}
    assert client.post("/translate", form={"q": ["Hi", "Ho"], **fields}).json() == several.json()


def test_libretranslate_alternatives(client):
    fields = {"source": "en", "target": "zh", "alternatives": 2}
    assert client.post("/translate", {"q": "Hi\nHo", **fields}).json() == {
        "translatedText": "译Hi\n译Ho",
        "alternatives": ["又Hi\n又Ho", "再Hi\n再Ho"],
    }
    assert client.post("/translate", {"q": ["Hi", ""], **fields}).json() == {
        "translatedText": ["译Hi", ""],
        "alternatives": [["又Hi", "再Hi"], []],
    }
    refused(
        client.post("/translate", {"q": "Hi", "alternatives": 8}),
        400,
        "alternatives",
        "7",
        "8",
    )


def test_libretranslate_auto_leaves_what_is_chinese(client, engine):
    answer = client.post("/translate", {"q": ["Hi", "你好。"], "source": "auto"}).json()
    assert answer == {
        "translatedText": ["译Hi", "你好。"],
        "detectedLanguage": [
            {"language": "en", "confidence": 50.0},
            {"language": "zh", "confidence": 90.0},
        ],
    }
    assert engine.batches == [["Hi"]]


@pytest.mark.parametrize(
    ("script", "accepted", "others"),
    [
        (
            "simplified",
            "zh zh-Hans zh-CN zh_cn ZH-HANS zh-Hans-CN zh-SG",
            "zt zh-Hant zh-TW zh-Hant-TW en zhx z",
        ),
        ("traditional", "zh zt zh-Hant zh-TW zh-HK zh-Hant-TW", "zh-Hans zh-CN ja"),
        ("keep", "zh", "zh-Hans zh-Hant"),
    ],
)
def test_names_of_the_target(engine, script, accepted, others):
    client = Client(create_app(engine, Served("tiny", "fake", target_script=script)))
    for code in accepted.split():
        answer = client.post("/translate", {"q": "Hi", "source": "en", "target": code})
        assert answer.json() == {"translatedText": "译Hi"}, code
    for code in others.split():
        answer = client.post("/translate", {"q": "Hi", "source": "en", "target": code})
        refused(answer, 400, "target must be zh", repr(code))
    listed = [each["code"] for each in client.get("/languages").json()]
    assert set(listed[1:]) <= set(accepted.split())


def test_names_of_the_source(client):
    for code in ("en", "en-GB", "EN"):
        assert client.post("/translate", {"q": "Hi", "source": code}).status == 200
    for code in ("fr", "eng", "zh"):
        answer = client.post("/translate", {"q": "Hi", "source": code})
        refused(answer, 400, "source must be en or auto", code)


def test_languages_and_detection(client):
    assert client.get("/languages").json() == [
        {"code": "en", "name": "English", "targets": ["zh", "zh-Hans"]},
        {"code": "zh", "name": "Chinese", "targets": []},
        {"code": "zh-Hans", "name": "Chinese (Simplified)", "targets": []},
    ]
    for text, language in (("Hello", "en"), ("你好", "zh"), ("123", "en")):
        assert client.post("/detect", form={"q": text}).json()[0]["language"] == language
    refused(client.post("/detect", {}), 400, "q must be a string")


# ---- What is refused


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, ["give either text or", "q", "neither"]),
        ({"text": "Hi", "q": "Hi"}, ["both"]),
        ({"text": None}, ["text must be a string or a list of strings; received null"]),
        ({"text": 5}, ["received a number"]),
        ({"text": True}, ["received a boolean"]),
        ({"text": {"a": 1}}, ["received an object"]),
        ({"text": ["Hi", ["Ho"]]}, ["received a list with a list"]),
        ({"q": ["Hi", None]}, ["q must be", "a list with null"]),
        ({"text": "a \ud800 b"}, ["text must be valid Unicode", "surrogate"]),
        ({"q": ["\udc00"]}, ["q must be valid Unicode"]),
        ({"text": "Hi", "beam": 0}, ["beam must be an integer from 1 to 8; received 0"]),
        ({"text": "Hi", "beam": 9}, ["beam", "8", "9"]),
        ({"text": "Hi", "beam": 2.0}, ["beam", "2"]),
        ({"text": "Hi", "beam": True}, ["beam", "a boolean"]),
        ({"text": "Hi", "beam": "four"}, ["beam", "'four'"]),
        ({"text": "Hi", "beam": [[1]]}, ["beam", "a list"]),
        ({"text": "Hi", "beam": "\ud800"}, ["beam", "'\\ud800'"]),
        ({"text": "Hi", "beam": 2, "nbest": 3}, ["nbest must be from 1 to beam, which is 2", "3"]),
        ({"text": "Hi", "attention": "maybe"}, ["attention must be true, false or all", "'maybe'"]),
        ({"text": "Hi", "attention": [1]}, ["attention must be", "received a list"]),
        ({"text": "Hi", "atention": True}, ["'atention'", "did you mean attention?"]),
        ({"text": "Hi", "\ud800": True}, ["no such field", "'\\ud800'"]),
        ({"q": "<b>Hi</b>", "format": "html"}, ["format must be text", "'html'"]),
        ({"q": "Hi", "source": 5}, ["source must be a string; received a number"]),
        ({"q": "Hi", "alternatives": -1}, ["alternatives", "-1"]),
    ],
)
def test_a_field_that_is_wrong(client, fields, words):
    refused(client.post("/translate", fields), 400, *words)


@pytest.mark.parametrize(
    ("body", "headers", "words"),
    [
        (b'{"text": "Hi"', JSON, ["not JSON"]),
        (b"", JSON, ["not JSON"]),
        (b'["Hi"]', JSON, ["must be a JSON object; received a list"]),
        (b'{"text": "\xff"}', JSON, ["UTF-8"]),
        (b"[" * 5000, JSON, ["not JSON"]),
        (b'{"text": "Hi", "beam": ' + b"9" * 5000 + b"}", JSON, ["not JSON"]),
        (b'{"text": "Hi", "beam": NaN}', JSON, ["beam", "nan"]),
        (b'{"text": "Hi", "beam": 1e999}', JSON, ["beam", "inf"]),
        (b"q=\xff", FORM, ["UTF-8"]),
        (b"q=%FF", FORM, ["UTF-8"]),
        (b'{"q": "Hi"}', FORM, ["neither", "Content-Type: application/json"]),
        (b"Hi", {"content_type": "text/plain"}, ["Content-Type must be", "'text/plain'"]),
        (b"Hi", {}, ["Content-Type must be", "'none'"]),
    ],
)
def test_a_body_that_is_wrong(client, body, headers, words):
    refused(client.post("/translate", chunks=[body], **headers), 400, *words)


@pytest.mark.parametrize("character", ["x", "译", "😀", "\u0301"])
def test_the_limit_counts_characters(client, engine, character):
    """SERV-01: exactly the limit is translated whole; one more is refused, with both numbers."""
    text = character * LIMITS.characters
    bodies = [
        (json.dumps({"text": text}).encode(), JSON),  # ASCII: 12 bytes for an emoji
        (json.dumps({"text": text}, ensure_ascii=False).encode(), JSON),
        (urllib.parse.urlencode({"text": text}).encode(), FORM),
    ]
    for body, headers in bodies:
        answer = client.post("/translate", chunks=[body], **headers)
        assert answer.json()["translations"][0]["text"].replace("译", "", 1) in (text, text[1:])
    for fields in ({"text": text + "x"}, {"q": text + "x"}, {"q": [text, "x"]}):
        refused(client.post("/translate", fields), 400, "500 characters", 501)
    refused(client.post("/detect", {"q": text + "x"}), 400, 500, 501)


def test_the_limit_of_texts(client):
    assert client.post("/translate", {"text": ["a"] * 10}).status == 200
    refused(client.post("/translate", {"text": ["a"] * 11}), 400, "10 texts", 11)
    refused(client.post("/translate", {"q": ["a"] * 1000}), 400, "10 texts", 1000)


@pytest.mark.parametrize("name", ["characters", "texts", "queue"])
def test_limits_are_checked(name):
    with pytest.raises(ConfigError, match=f"{name} must be at least 1; received 0"):
        Limits(**{name: 0})


def test_a_body_over_the_limit(client, engine):
    size = LIMITS.body_bytes
    body = [b"x" * size, b"x", b"never read"]
    refused(client.post("/translate", chunks=body, **JSON), 413, size)
    refused(client.post("/translate", chunks=body, content_length="10", **JSON), 413, size)
    refused(client.post("/translate", content_length=str(size + 1)), 413, size, size + 1)
    assert not engine.batches


def test_a_body_that_does_not_come(client, monkeypatch):
    monkeypatch.setattr(app_module, "BODY_SECONDS", 0.1)

    async def never():
        await asyncio.Event().wait()

    refused(client.exchange("POST", "/translate", never), 408, "0 s")


def test_a_client_that_leaves_before_its_body_is_there(client, engine):
    async def gone():
        return {"type": "http.disconnect"}

    client.exchange("POST", "/translate", gone)
    assert not engine.batches


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/translate", 405),
        ("PUT", "/translate", 405),
        ("POST", "/healthz", 405),
        ("POST", "/", 405),
        ("GET", "/translate/", 404),
        ("GET", "/favicon.ico", 404),
        ("GET", "/../etc/passwd", 404),
        ("GET", "/docs", 404),
    ],
)
def test_other_paths_and_methods(client, method, path, status):
    response = client.request(method, path)
    refused(response, status)
    assert ("allow" in response.headers) == (status == 405)


# ---- Failures, crowds, farewells


def test_a_failed_translation_fails_alone(client, engine):
    """What the engine says stays in the log; neighbours in its batch, and the server, go on."""
    refused(client.post("/translate", {"text": "fail"}), 500, "the translation failed")
    assert b"secret" not in client.post("/translate", {"text": "fail"}).body
    engine.hold()
    with ThreadPoolExecutor() as pool:
        first = pool.submit(client.post, "/translate", {"text": "first"})
        assert engine.entered.wait(10)
        rest = [
            pool.submit(client.post, "/translate", {"text": text})
            for text in ("good", "fail", "fine")
        ]
        until(lambda: client.get("/healthz").json()["waiting"] == 3)
        engine.free.set()
        assert first.result().status == 200
        assert [each.result().status for each in rest] == [200, 500, 200]
    assert {"good", "fail", "fine"} in map(set, engine.batches)  # they were together


def test_an_unforeseen_failure_is_json(client, monkeypatch):
    monkeypatch.setattr(app_module, "own_answer", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):  # it goes on to the log, with its traceback
        client.post("/translate", {"text": "Hi"})


def test_many_at_once_get_what_each_would_get_alone(engine):
    """40 requests of several kinds, while the engine was busy: few batches, equal answers."""
    requests = [
        {"text": f"Sentence {i}. And another.\n\n{i}", "beam": 1 + i % 2, "attention": i % 4 == 0}
        for i in range(40)
    ]
    client = Client(create_app(engine, SERVED))
    alone = [client.post("/translate", each).json() for each in requests]
    engine.batches.clear()
    engine.hold()
    with ThreadPoolExecutor(40) as pool:
        together = [pool.submit(client.post, "/translate", each) for each in requests]
        assert engine.entered.wait(10)
        until(lambda: client.get("/healthz").json()["waiting"] == 39)
        engine.free.set()
        assert [each.result().json() for each in together] == alone
    assert len(engine.batches) <= 5  # the first, and one for each kind


def test_a_full_queue(client, engine):
    engine.hold()
    with ThreadPoolExecutor() as pool:
        taken = [pool.submit(client.post, "/translate", {"text": "first"})]
        assert engine.entered.wait(10)
        taken += [pool.submit(client.post, "/translate", {"q": str(i)}) for i in range(3)]
        until(lambda: client.get("/healthz").json()["waiting"] == 3)
        response = client.post("/translate", {"text": "one too many"})
        refused(response, 429, "busy", "3 requests")
        assert int(response.headers["retry-after"]) >= 1
        engine.free.set()
        assert [each.result().status for each in taken] == [200] * 4
    assert client.post("/translate", {"text": "again"}).status == 200


def test_whoever_leaves_the_queue_costs_nothing(client, engine):
    engine.hold()
    with ThreadPoolExecutor() as pool:
        first = pool.submit(client.post, "/translate", {"text": "first"})
        assert engine.entered.wait(10)
        for _ in range(5):  # more than the queue holds
            messages = [
                {"type": "http.request", "body": b'{"text": "left"}', "more_body": False},
                {"type": "http.disconnect"},
            ]

            async def receive(messages=messages):
                return messages.pop(0)

            client.exchange("POST", "/translate", receive, **JSON)
        engine.free.set()
        assert first.result().status == 200
    assert client.post("/translate", {"text": "last"}).status == 200
    assert engine.batches == [["first"], ["last"]]


def test_a_server_that_stops_takes_no_more(client):
    client.app.state.batcher.close()
    refused(client.post("/translate", {"text": "Hi"}), 503, "stopping")
    response = client.get("/healthz")
    assert (response.status, response.json()["ready"]) == (503, False)


def test_batches(engine, monkeypatch):
    """The oldest first; with it those of its kind, in order, up to a number of characters."""
    monkeypatch.setattr(batcher_module, "BATCH_CHARACTERS", 4)
    batcher = Batcher(engine, most_waiting=10)
    engine.hold()
    beam = SearchOptions(beam=2)
    asked = [("0", GREEDY), ("1", GREEDY), ("2", beam), ("333", GREEDY), ("44", GREEDY)]
    asked += [("5", beam), ("666666", GREEDY)]
    futures = []
    for text, options in asked:
        futures.append(batcher.submit([text], options))
        assert engine.entered.wait(10)
    futures.append(batcher.submit(["never"], GREEDY))
    assert futures[-1].cancel()
    assert not futures[0].cancel()  # its turn has come
    engine.free.set()
    assert [future.result()[0].text for future in futures[:-1]] == [
        f"译{text}" for text, _ in asked
    ]
    with pytest.raises(CancelledError):
        futures[-1].result()
    assert engine.batches == [["0"], ["1", "333"], ["2", "5"], ["44"], ["666666"]]
    batcher.close()


def test_a_batcher_finishes_what_it_took(engine):
    batcher = Batcher(engine, most_waiting=1)
    engine.hold()
    first = batcher.submit(["a"], GREEDY)
    assert engine.entered.wait(10)
    second = batcher.submit(["b"], GREEDY)
    with pytest.raises(QueueFullError, match="1 requests are waiting"):
        batcher.submit(["c"], GREEDY)
    threading.Timer(0.1, engine.free.set).start()
    batcher.close()
    assert (first.result()[0].text, second.result()[0].text) == ("译a", "译b")
    assert not batcher.is_alive
    with pytest.raises(ClosedError):
        batcher.submit(["d"], GREEDY)


# ---- Browsers and strangers


def test_the_page_and_its_policy(client):
    response = client.get("/")
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert len(re.findall(r"'sha256-[\w+/]{43}='", policy)) == 2
    html = load_page().html
    assert not re.search(r"""(src|href)=["'](https?:)?//|@import|url\((?!"font"\))""", html)
    assert not re.search(r"""\son\w+=|\sstyle=|innerHTML|insertAdjacentHTML""", html)


@pytest.mark.parametrize("path", ["/", "/healthz", "/nothing"])
def test_headers_for_browsers(client, path):
    headers = client.get(path, origin="http://evil.example").headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "access-control-allow-origin" not in headers


def test_other_sites_only_if_they_are_named(engine):
    """SERV-04."""
    good, evil = "https://example.org", "http://evil.example"
    client = Client(create_app(engine, SERVED, LIMITS, cors_origins=[good]))
    for origin in (good, evil):
        for response in (
            client.post("/translate", {"q": "Hi"}, origin=origin),
            client.post("/translate", {}, origin=origin),
        ):
            allowed = response.headers.get("access-control-allow-origin")
            assert allowed == (good if origin == good else None)
        asked = {"origin": origin, "access_control_request_method": "POST"}
        asked["access_control_request_headers"] = "content-type"
        assert (client.request("OPTIONS", "/translate", **asked).status == 200) == (origin == good)


def test_other_names_are_refused(engine):
    """A name of a stranger that points to this machine (DNS rebinding)."""
    app = create_app(engine, SERVED, LIMITS, allowed_hosts=["localhost", "127.0.0.1", "::1"])
    client = Client(app)
    for host in ("localhost", "LOCALHOST:8000", "127.0.0.1:80", "[::1]:8000"):
        assert client.get("/healthz", host=host).status == 200
    for host in ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", "[", ""):
        refused(client.get("/healthz", host=host), 400, "--allowed-host")


# ---- The description


def test_the_description_agrees_with_the_routes(client):
    described = client.get("/openapi.json").json()
    routes = {route.path: route.methods - {"HEAD"} for route in client.app.routes}
    assert {
        path: {method.upper() for method in methods} for path, methods in described["paths"].items()
    } == routes
    names = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(described)))
    assert names == set(described["components"]["schemas"])


def validator(description, schema):
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator({**schema, "components": description["components"]})


def test_the_description_agrees_with_the_answers(client):
    described = client.get("/openapi.json").json()

    def check(path, response):
        (operation,) = described["paths"][path].values()
        answer = operation["responses"][str(response.status)]
        schema = answer["content"]["application/json"]["schema"]
        validator(described, schema).validate(response.json())

    texts = ("Hi.\n\nHo.", ["a", "b"], [], "", "你好")
    for text in texts:
        for fields in (
            {"text": text, "nbest": 3, "attention": True},
            {"text": text, "nbest": 3, "attention": "all"},
            {"q": text},
            {"q": text, "alternatives": 2},
            {"q": text, "source": "en"},
        ):
            response = client.post("/translate", fields)
            assert response.status == 200
            check("/translate", response)
    check("/detect", client.post("/detect", {"q": "Hi"}))
    for path in ("/languages", "/healthz", "/openapi.json"):
        check(path, client.get(path))
    check("/translate", client.post("/translate", {}))
    check("/translate", client.post("/translate", {"text": "fail"}))
    check("/translate", client.post("/translate", chunks=[b"x" * 99_999]))
    client.app.state.batcher.close()
    check("/healthz", client.get("/healthz"))


def test_the_description_agrees_with_what_is_accepted(client):
    described = client.get("/openapi.json").json()
    body = described["paths"]["/translate"]["post"]["requestBody"]["content"]["application/json"]
    request = validator(described, body["schema"])
    for fields in (
        {"text": "Hi"},
        {"text": ["Hi"], "beam": 8, "nbest": 8, "attention": False},
        {"text": "Hi", "beam": 9},
        {"text": "Hi", "nbest": 0},
        {"text": "Hi", "attention": "all"},
        {"text": "Hi", "attention": "some"},
        {"text": "Hi", "made": "up"},
        {"text": 5},
        {"text": "x" * 501},
        {"text": ["x"] * 11},
        {"q": "Hi", "made": "up"},
        {"q": "Hi", "format": "html"},
        {"q": "Hi", "alternatives": 8},
        {},
    ):
        accepted = client.post("/translate", fields).status == 200
        assert request.is_valid(fields) == accepted, fields


# ---- Ports and processes


def test_addresses_that_cannot_be_had(monkeypatch):
    with server.bind("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1 port {port}: address alrea"):
            server.bind("127.0.0.1", port)
    for host in ("192.0.2.1", "no.such.host.invalid", "bad..name", "x" * 70):
        with pytest.raises(OSError, match=f"cannot listen on {host} port 8000: "):
            server.bind(host, 8000)

    def forbidden(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", forbidden)
    with pytest.raises(OSError, match=r"cannot listen on 127\.0\.0\.1 port 80: permission denied"):
        server.bind("127.0.0.1", 80)


def test_the_address_is_printed_whole():
    with server.bind("127.0.0.1", 0) as bound:
        assert server.url("127.0.0.1", bound) == f"http://127.0.0.1:{bound.getsockname()[1]}/"
        assert server.url("::1", bound).startswith("http://[::1]:")


SLOW_SERVER = """
import sys, time
from serving import FakeEngine
from nmt.serve import server
from nmt.serve.app import create_app
from nmt.serve.served import Served

class Slow(FakeEngine):
    def translate(self, *args, **kwargs):
        time.sleep(0.5)
        return super().translate(*args, **kwargs)

bound = server.bind("127.0.0.1", 0)
address = server.url("127.0.0.1", bound)
server.serve(create_app(Slow(), Served("slow", "fake")), bound, lambda: print(address, flush=True))
print("stopped")
"""


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_stopping_server_answers_what_it_was_asked(stop):
    """One request is being translated and another waits; both are answered, new ones are not."""
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_SERVER],
        cwd=Path(__file__).parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    with process, ThreadPoolExecutor() as pool:
        url = process.stdout.readline().strip()
        asked = [pool.submit(ask, url, {"text": "first"})]
        time.sleep(0.2)
        asked.append(pool.submit(ask, url, {"text": "second", "beam": 2}))
        time.sleep(0.1)
        process.send_signal(stop)
        until(lambda: not is_listening(url))
        assert process.poll() is None
        assert [each.result()[0] for each in asked] == [200, 200]
        assert process.wait(10) == 0
        assert process.stdout.read() == "stopped\n"
        assert process.stderr.read() == ""


def is_listening(url):
    parts = urllib.parse.urlsplit(url)
    try:
        socket.create_connection((parts.hostname, parts.port), 5).close()
    except ConnectionRefusedError:
        return False
    return True


class Process:
    """`nmt serve` on a free port."""

    def __init__(self, run, environment, *options):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "nmt", "serve", str(run), "--port", "0", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            env=environment,
        )
        self.pid = self._process.pid
        self.announced = self._process.stdout.readline()
        self.url = self.announced.split()[-1] if self.announced else self._process.stderr.read()
        self.port = urllib.parse.urlsplit(self.url).port

    def memory(self, name):
        """Return VmRSS, the memory it has, or VmHWM, the most it had, in MiB."""
        status = Path(f"/proc/{self.pid}/status").read_text("utf-8")
        return int(re.search(rf"{name}:\s+(\d+) kB", status)[1]) / 1024

    def forget_peak(self):
        """From now on, VmHWM is the most memory since now."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5", "utf-8")

    def is_running(self):
        return self._process.poll() is None

    def stop(self):
        """Send SIGTERM; return the exit status and what was written to stdout and stderr."""
        self._process.send_signal(signal.SIGTERM)
        output, error = self._process.communicate(timeout=60)
        return self._process.returncode, self.announced + output, error


@pytest.fixture(scope="module")
def processes():
    """The one process that the tests below share, in a list."""
    started = []
    yield started
    for process in started:
        if process.is_running():
            process.stop()


@pytest.fixture
def process(processes, tiny_run, user_environment):
    """A running `nmt serve`."""
    if not (processes and processes[-1].is_running()):
        processes.append(Process(tiny_run, user_environment, "--no-warm-up"))
    return processes[-1]


def request(url, method, path, body=None, **headers):
    """Send a request over the network; return the status and the answer."""
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=60)
    with contextlib.closing(connection):
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())


def ask(url, fields):
    """POST fields as JSON to /translate; return the status and the answer."""
    headers = {"Content-Type": "application/json"}
    return request(url, "POST", "/translate", json.dumps(fields), **headers)


def test_serve_translates_what_the_model_has_learned(process, tiny_run):
    held_out = (tiny_run / "validation.tsv").read_text("utf-8")
    held_out += (tiny_run / "test.tsv").read_text("utf-8")
    pairs = [pair for pair in PAIRS if pair[0] not in held_out]
    fields = {"text": [source for source, _ in pairs[:6]], "beam": 2, "nbest": 2}
    status, answer = ask(process.url, {**fields, "attention": True})
    assert status == 200
    for translation, (_, target) in zip(answer["translations"], pairs, strict=False):
        assert translation["text"] == target
        (segment,) = translation["segments"]
        shape = (2, 4, len(segment["target_tokens"]), len(segment["source_tokens"]))
        assert np.shape(segment["attention"]) == shape
        np.testing.assert_allclose(np.sum(segment["attention"], axis=-1), 1.0, atol=0.02)
        assert len(segment["token_log_probs"]) == len(segment["target_tokens"])
        assert len(segment["alternatives"]) == 1


def test_the_client_of_libretranslate(process):
    client = LibreTranslateAPI(process.url)
    source, target = PAIRS[0]
    assert client.translate(source, "en", "zh") == target
    assert client.translate("One.\n\nTwo.", "auto", "zh-Hans").count("\n") == 2
    assert client.detect("你好")[0]["language"] == "zh"
    assert client.languages()[0]["targets"] == ["zh", "zh-Hans"]


def test_serve_listens_on_this_machine_only(process):
    """SERV-04: the whole of 127/8 is this machine, but only 127.0.0.1 is listened on."""
    assert process.announced.startswith("serving ")
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", process.url)
    if sys.platform == "linux":
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", process.port), 5)
    assert request(process.url, "GET", "/healthz", Host="evil.example")[0] == 400


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.parametrize(
    "declared",
    ["Content-Length: 52428800", "Content-Length: 10", "Transfer-Encoding: chunked"],
    ids=["honest", "lying", "chunked"],
)
def test_fifty_megabytes_are_not_kept(process, declared):
    """SERV-01: refused before they are read, in bounded memory; then the server goes on."""
    process.forget_peak()
    before = process.memory("VmRSS")
    piece = b"x" * 65536
    if "chunked" in declared:
        piece = b"10000\r\n" + piece + b"\r\n"
    head = "POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    answer = b""
    with socket.create_connection(("127.0.0.1", process.port), 30) as connection:
        connection.sendall(f"{head}{declared}\r\n\r\n".encode())
        with contextlib.suppress(ConnectionError):  # the server may hang up
            for _ in range(800):
                connection.sendall(piece)
        with contextlib.suppress(ConnectionError):
            answer = connection.recv(65536)
    if declared == "Content-Length: 10":  # it reads ten bytes, which are no JSON
        assert answer.startswith(b"HTTP/1.1 400 ")
    else:
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b'{"error":"the body may have at most 64896 bytes; received ' in answer
    assert process.memory("VmHWM") - before < 16
    assert ask(process.url, {"text": "Good morning."})[0] == 200


def test_forty_clients_get_what_each_would_get_alone(process):
    """Translations do not depend on what else is in a batch; scores may, in the last digits."""
    requests = [
        {"text": f"{PAIRS[i % 20][0]} {PAIRS[(i + 7) % 20][0]}\n{PAIRS[(3 * i) % 20][0]}"}
        for i in range(40)
    ]
    alone = [ask(process.url, each) for each in requests]
    with ThreadPoolExecutor(40) as pool:
        together = list(pool.map(lambda each: ask(process.url, each), requests))
    for (status, one), (_, other) in zip(alone, together, strict=True):
        assert status == 200
        (one,), (other,) = one["translations"], other["translations"]
        assert one["text"] == other["text"]
        assert one["score"] == pytest.approx(other["score"], abs=1e-3)


def test_mistakes_on_the_command_line(process, tiny_run, nmt_command):
    for options, code, words in (
        (["--port", process.port], 1, f"cannot listen on 127.0.0.1 port {process.port}: address"),
        (["--host", "192.0.2.1"], 1, "cannot listen on 192.0.2.1 port 8000: "),
        (["--max-characters", "0"], 2, "characters must be at least 1; received 0"),
        (["--engine", "ctranslate2"], 2, f"{tiny_run}/export/ctranslate2: not there; run"),
    ):
        done = nmt_command("serve", tiny_run, *options)
        assert done.returncode == code
        assert done.stdout == ""
        assert len(done.stderr.splitlines()) == 1
        assert done.stderr.startswith(f"nmt: {words}")
    done = nmt_command("serve", tiny_run / "nothing")
    assert done.returncode == 2
    assert "no such run folder" in done.stderr


def test_others_are_let_in_only_when_asked_for(tiny_run, user_environment):
    """SERV-04: and then it is said what that means, before anything is loaded."""
    process = subprocess.Popen(
        [sys.executable, "-m", "nmt", "serve", tiny_run, "--host", "0.0.0.0", "--port", "0"],
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env=user_environment,
    )
    with process:
        assert process.stderr.readline() == (
            "nmt: whoever can reach this machine as 0.0.0.0 can use this server; it asks for no "
            "password\n"
        )
        process.kill()


def test_serve_stops_when_told(process):
    """With a long request in flight."""
    text = " ".join(source for source, _ in PAIRS * 12)[:5000]
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(ask, process.url, {"text": text, "beam": 2})
        time.sleep(0.1)
        code, output, error = process.stop()
        status, answer = asked.result()
    assert (status, code) == (200, 0)
    assert answer["translations"][0]["text"]
    assert output == process.announced
    assert error.splitlines()[-1] == "nmt: stopped"
    assert "Traceback" not in error


def until(holds, seconds=20):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


# A font for browsers without one -----------------------------------------------------------------


def test_the_font_has_the_characters_of_the_page(client):
    response = client.get("/font")
    assert response.status == 200
    face = TTFont(io.BytesIO(response.body))
    assert {ord(character) for character in "译文注意力，。"} <= face.getBestCmap().keys()
    policy = client.get("/").headers["content-security-policy"]
    assert "font-src 'self'" in policy
