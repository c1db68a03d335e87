"""The description of the interface, OpenAPI 3.1, as data."""

from nmt import __version__
from nmt.serve.limits import ATTENTION_CHARACTERS, LARGEST_BEAM, Limits
from nmt.serve.served import Served


def openapi(limits: Limits, served: Served) -> dict:
    """Return the OpenAPI document of a server with these limits."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "nmt",
            "version": __version__,
            "description": (
                f"Translation from {served.source_language} to {served.target_language}. "
                f"A request with `text` gets translations with scores, tokens and, if asked, "
                f"attention; one with `q` gets what LibreTranslate would answer. Nothing is ever "
                f"cut short: what exceeds a limit is refused. Text goes in and out as it is, "
                f"never escaped for HTML; lines stay lines, blank ones too."
            ),
        },
        "paths": {
            "/translate": {"post": _translate(limits)},
            "/detect": {"post": _detect(limits)},
            "/languages": {
                "get": _get("Languages and what they can be translated to", "Languages")
            },
            "/healthz": {"get": _get("What is served, and whether it answers", "Health", {503})},
            "/openapi.json": {"get": _get("This document", "Description")},
            "/font": {
                "get": {
                    "summary": "The page's font, for browsers without Chinese characters",
                    "responses": {
                        "200": {"description": "OpenType", "content": {"font/otf": {}}},
                        "404": {"description": "None is installed"},
                    },
                }
            },
            "/": {
                "get": {
                    "summary": "The page",
                    "responses": {
                        "200": {
                            "description": "HTML",
                            "content": {"text/html": {"schema": {"type": "string"}}},
                        }
                    },
                }
            },
        },
        "components": {"schemas": _schemas(limits, served)},
    }


_ERRORS = {
    400: "A field, the body or the Host header is not as it must be",
    408: "The body did not arrive in time",
    413: "The body has too many bytes",
    429: "Too many requests are waiting; see Retry-After",
    500: "The translation failed",
    503: "The server is stopping",
}


def _translate(limits):
    return {
        "summary": "Translate texts",
        "requestBody": _body("TextRequest", "LibreRequest"),
        "responses": _responses("Translations", "LibreAnswer", errors=_ERRORS),
    }


def _detect(limits):
    return {
        "summary": "Tell Chinese from other languages, by script",
        "requestBody": _body("DetectRequest"),
        "responses": _responses("Detections", errors={400, 408, 413}),
    }


def _get(summary, schema, errors=()):
    return {"summary": summary, "responses": _responses(schema, errors=errors)}


def _body(*names):
    schema = _any_of(names)
    kinds = ("application/json", "application/x-www-form-urlencoded")
    return {"required": True, "content": {kind: {"schema": schema} for kind in kinds}}


def _responses(*names, errors):
    answers = {"200": {"description": "Done", "content": _json(_any_of(names))}}
    for status in sorted(errors):
        name = "Health" if names == ("Health",) else "Error"
        answers[str(status)] = {
            "description": _ERRORS[status] if name == "Error" else "No longer",
            "content": _json(_ref(name)),
        }
    if 429 in errors:
        seconds = {"description": "Seconds to wait", "schema": {"type": "integer"}}
        answers["429"]["headers"] = {"Retry-After": seconds}
    return answers


def _json(schema):
    return {"application/json": {"schema": schema}}


def _ref(name):
    return {"$ref": f"#/components/schemas/{name}"}


def _any_of(names):
    return _ref(names[0]) if len(names) == 1 else {"anyOf": [_ref(name) for name in names]}


def _object(required, **properties):
    return {"type": "object", "required": required, "properties": properties}


def _closed(required, **properties):
    """An object with these properties and no others."""
    return {**_object(required, **properties), "additionalProperties": False}


def _list(items, **rest):
    return {"type": "array", "items": items, **rest}


def _string(description, **rest):
    return {"type": "string", "description": description, **rest}


def _integer(smallest, largest, default, description):
    bounds = {"minimum": smallest, "maximum": largest, "default": default}
    return {"type": "integer", **bounds, "description": description}


def _schemas(limits, served):
    number = {"type": ["number", "null"]}
    texts = {
        "anyOf": [
            {"type": "string", "maxLength": limits.characters},
            _list({"type": "string"}, maxItems=limits.texts),
        ],
        "description": f"One text, or a list of at most {limits.texts}; at most "
        f"{limits.characters} Unicode characters, all texts together",
    }
    languages = _list({"type": "string"})
    detection = _closed(
        ["language", "confidence"],
        language={"type": "string"},
        confidence={"type": "number", "minimum": 0, "maximum": 100, "description": "percent"},
    )
    alternative = _closed(
        ["text", "score"], text={"type": "string"}, score={**number, "description": "as above"}
    )
    tokens = {
        "target_tokens": _list({"type": "string"}, description="Subwords, the end mark included"),
        "token_log_probs": _list(
            number, description="Of each target token given those before it, nats"
        ),
    }
    weights = _list(_list(_list(_list({"type": "number", "minimum": 0, "maximum": 1}))))
    inside = {
        "attention": {
            **weights,
            "description": "If asked: layers × heads × target tokens × source tokens; the row "
            "of a target token says where the model looked to predict it",
        },
        "self_attention": _closed(
            ["decoder"],
            encoder={**weights, "description": "Source tokens × source tokens"},
            decoder={
                **weights,
                "description": "Target tokens × what was read: <s>, then all of them but the last",
            },
        ),
        "heads": _closed(
            ["cross"],
            cross=_heads("entropy", "alignment"),
            encoder=_heads("entropy"),
            decoder=_heads("entropy"),
        ),
    }
    return {
        "TextRequest": _closed(
            ["text"],
            text=texts,
            beam=_integer(1, LARGEST_BEAM, 1, "Width of the search; 1 is greedy. At least nbest"),
            nbest=_integer(1, LARGEST_BEAM, 1, "Translations of each text, the best included"),
            attention={
                "enum": [False, True, "all"],
                "default": False,
                "description": f"true: also the cross-attention of each layer and head; all: "
                f"self-attention, too, and what the alternatives looked at. For at most "
                f"{ATTENTION_CHARACTERS} characters",
            },
        ),
        "LibreRequest": _object(
            ["q"],
            q=texts,
            source=_string(
                f"{', '.join(served.source_codes)}, or auto: a text in the target language is "
                f"then left as it is",
                default="auto",
            ),
            target=_string(" or ".join(served.target_codes), default=served.target_language),
            format={"enum": ["text"], "default": "text"},
            alternatives=_integer(0, LARGEST_BEAM - 1, 0, "Further translations of each text"),
            api_key=_string("Ignored, as every other field"),
        ),
        "DetectRequest": _object(["q"], q=texts),
        "Translations": _closed(["translations"], translations=_list(_ref("Translation"))),
        "Translation": _closed(
            ["text", "score", "alternatives", "segments"],
            text=_string("As many lines as the source has"),
            score={**number, "description": "Sum of the scores of its segments"},
            alternatives=_list(
                _ref("Alternative"),
                description="Next best first; the n-th has the n-th of each segment, or its last",
            ),
            segments=_list(
                _ref("Segment"), description="Pieces that were translated on their own, in order"
            ),
        ),
        "Segment": _closed(
            [
                *("source", "text", "score", "truncated", "source_tokens", "target_tokens"),
                *("token_log_probs", "alternatives"),
            ],
            source=_string("What was translated"),
            text={"type": "string"},
            score={
                **number,
                "description": "Log-probability over the length penalty ((5 + length) / 6)^0.6",
            },
            truncated={
                "type": "boolean",
                "description": "Whether the length limit ended it, not the model",
            },
            source_tokens=_list({"type": "string"}, description="Subwords, the end mark included"),
            **tokens,
            alternatives=_list(
                {"anyOf": [_ref("Alternative"), _ref("AlternativeInside")]},
                description="With their attention if all of it was asked",
            ),
            **inside,
        ),
        "Alternative": alternative,
        "AlternativeInside": _closed(
            [*alternative["properties"], "truncated", *tokens, *inside],
            **alternative["properties"],
            truncated={"type": "boolean"},
            **tokens,
            **inside,
        ),
        "LibreAnswer": _closed(
            ["translatedText"],
            translatedText=_one_or_list({"type": "string"}),
            detectedLanguage=_one_or_list(_ref("Detection")),
            alternatives=_one_or_list(_list({"type": "string"})),
        ),
        "Detections": _list(_ref("Detection")),
        "Detection": detection,
        "Languages": _list(
            _closed(
                ["code", "name", "targets"],
                code={"type": "string"},
                name={"type": "string"},
                targets=languages,
            )
        ),
        "Health": _closed(
            [
                *("status", "ready", "version", "model", "engine", "source", "target"),
                *("attention", "limits", "waiting"),
            ],
            status={"type": "string"},
            ready={"type": "boolean"},
            version={"type": "string"},
            model={"type": "string"},
            engine={"type": "string"},
            source={"type": "string"},
            target={"type": "string"},
            attention={"type": "boolean", "description": "Whether the engine can give it"},
            limits={"type": "object", "additionalProperties": {"type": "integer"}},
            waiting={"type": "integer", "description": "Requests in the queue"},
        ),
        "Description": {"type": "object"},
        "Error": _closed(["error"], error={"type": "string"}),
    }


def _one_or_list(schema):
    """What comes for one text, or a list of it for a list of texts."""
    return {"anyOf": [schema, _list(schema)]}


def _heads(*names):
    """Describe numbers that each layer × head has."""
    matrix = _list(_list({"type": "number", "minimum": 0}))
    described = {
        "entropy": {**matrix, "description": "Mean of the rows, nats"},
        "alignment": {**matrix, "description": "How much it looks like a word alignment, 0 to 1"},
    }
    return _closed(list(names), **{name: described[name] for name in names})
