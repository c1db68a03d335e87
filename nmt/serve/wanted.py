"""From the body of a request to what is wanted; whatever is not clear is refused with a reason."""

import difflib
import json
import urllib.parse
from typing import Any, NamedTuple

from nmt.decoding.options import SearchOptions
from nmt.serve.limits import ATTENTION_CHARACTERS, LARGEST_BEAM, Limits
from nmt.serve.served import Served, is_code

_OWN_FIELDS = ("text", "beam", "nbest", "attention")
_TRUTHS = {"true": True, "1": True, "false": False, "0": False}  # as forms have them


class BadRequestError(ValueError):
    """A request that cannot be served; its message is for the client."""


class Wanted(NamedTuple):
    """A request for translations."""

    texts: list[str]
    is_list: bool  # as the texts came, so go the translations
    options: SearchOptions
    attention: bool = False
    all_attention: bool = False  # self-attention, too, and what the alternatives looked at
    is_libre: bool = False  # LibreTranslate's fields: its answer, too
    detects: bool = False  # source "auto": the answer says which language it was
    alternatives: int = 0  # of LibreTranslate


def parse_fields(content_type: str, body: bytes) -> dict[str, Any]:
    """Return the fields of a JSON or form-encoded body.

    A form has strings only; a field that comes several times is a list.

    Raises:
      BadRequestError: why the body cannot be read.
    """
    kind = content_type.partition(";")[0].strip().lower()
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadRequestError(f"the body must be UTF-8: {error}") from None
    if kind == "application/json":
        return _parse_json(text)
    if kind == "application/x-www-form-urlencoded":
        return _parse_form(text)
    raise BadRequestError(
        f"Content-Type must be application/json or application/x-www-form-urlencoded; "
        f"received {kind or 'none'!r}"
    )


def parse_translate(fields: dict[str, Any], limits: Limits, served: Served) -> Wanted:
    """Return what a POST /translate wants.

    Raises:
      BadRequestError: which field is wrong, by what rule, and what was received.
    """
    if ("text" in fields) == ("q" in fields):
        hint = "; is it JSON? Then say Content-Type: application/json" if _is_json(fields) else ""
        raise BadRequestError(
            f"give either text or, as for LibreTranslate, q; received "
            f"{'both' if 'q' in fields else 'neither'}{hint}"
        )
    if "q" in fields:
        return _parse_libre(fields, limits, served)
    for name in fields:
        if name not in _OWN_FIELDS:
            close = difflib.get_close_matches(name, _OWN_FIELDS, 1)
            meant = f"; did you mean {close[0]}?" if close else ""
            raise BadRequestError(f"no such field beside text: {_shown(name)}{meant}")
    texts, is_list = parse_texts(fields, "text", limits)
    nbest = _integer(fields, "nbest", 1, LARGEST_BEAM, 1)
    beam = _integer(fields, "beam", 1, LARGEST_BEAM, nbest)
    if nbest > beam:
        raise BadRequestError(f"nbest must be from 1 to beam, which is {beam}; received {nbest}")
    attention = _attention(fields)
    if attention and not served.gives_attention:
        raise BadRequestError(f"the engine {served.engine} gives no attention")
    characters = sum(map(len, texts))
    if attention and characters > ATTENTION_CHARACTERS:
        raise BadRequestError(
            f"attention is given for at most {ATTENTION_CHARACTERS} characters; "
            f"received {characters}"
        )
    options = SearchOptions(beam=beam, nbest=nbest)
    return Wanted(texts, is_list, options, bool(attention), attention == "all")


def parse_texts(fields: dict[str, Any], name: str, limits: Limits) -> tuple[list[str], bool]:
    """Return the texts of the field `name` and whether they came as a list; within the limits."""
    value: Any = fields.get(name)
    is_list = isinstance(value, list)
    texts: list[Any] = value if is_list else [value]
    if len(texts) > limits.texts:
        raise BadRequestError(
            f"{name} may hold at most {limits.texts} texts; received {len(texts)}"
        )
    for text in texts:
        if not isinstance(text, str):
            raise BadRequestError(
                f"{name} must be a string or a list of strings; received "
                f"{'a list with ' if is_list else ''}{_json_type(text)}"
            )
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise BadRequestError(
                f"{name} must be valid Unicode; received half of a surrogate pair"
            )
    characters = sum(map(len, texts))
    if characters > limits.characters:
        raise BadRequestError(
            f"{name} may have at most {limits.characters} characters"
            f"{' in all' if is_list else ''}; received {characters}"
        )
    return texts, is_list


def _parse_libre(fields, limits, served):
    """Return what is wanted by LibreTranslate's fields; those unknown here are of no account."""
    texts, is_list = parse_texts(fields, "q", limits)
    source = _string(fields, "source", "auto")
    if source != "auto" and not is_code(source, served.source_codes):
        raise BadRequestError(
            f"source must be {', '.join(served.source_codes)} or auto; received {_shown(source)}"
        )
    target = _string(fields, "target", served.target_language)
    if not is_code(target, served.target_codes):
        raise BadRequestError(
            f"target must be {' or '.join(served.target_codes)}; received {_shown(target)}"
        )
    text_format = _string(fields, "format", "text")
    if text_format != "text":
        raise BadRequestError(
            f"format must be text: markup would be translated as if it were words; "
            f"received {_shown(text_format)}"
        )
    alternatives = _integer(fields, "alternatives", 0, LARGEST_BEAM - 1, 0)
    options = SearchOptions(beam=alternatives + 1, nbest=alternatives + 1)
    return Wanted(
        *(texts, is_list, options),
        is_libre=True,
        detects=source == "auto",
        alternatives=alternatives,
    )


def _parse_json(text):
    try:
        fields = json.loads(text)
    # ValueError, not just its JSONDecodeError: an integer may have too many digits to be read.
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"the body is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise BadRequestError(f"the body must be a JSON object; received {_json_type(fields)}")
    return fields


def _parse_form(text):
    try:
        pairs = urllib.parse.parse_qsl(text, keep_blank_values=True, errors="strict")
    except UnicodeDecodeError as error:
        raise BadRequestError(f"the form must be UTF-8: {error}") from None
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            earlier = fields[name]
            fields[name] = [*(earlier if isinstance(earlier, list) else [earlier]), value]
        else:
            fields[name] = value
    return fields


def _is_json(fields):
    """Say whether a form looks like JSON that was sent as a form."""
    return next(iter(fields), "").lstrip().startswith("{")


def _integer(fields, name, smallest, largest, default):
    value = fields.get(name, default)
    if isinstance(value, str) and value.isdecimal() and len(value) < 10:  # as forms have it
        value = int(value)
    if type(value) is not int or not smallest <= value <= largest:
        raise BadRequestError(
            f"{name} must be an integer from {smallest} to {largest}; received {_shown(value)}"
        )
    return value


def _attention(fields):
    """Return True, False or "all"."""
    value = fields.get("attention", False)
    if isinstance(value, str):
        value = _TRUTHS.get(value.lower(), value)
    if not isinstance(value, bool) and value != "all":
        raise BadRequestError(f"attention must be true, false or all; received {_shown(value)}")
    return value


def _string(fields, name, default):
    value = fields.get(name) or default
    if not isinstance(value, str):
        raise BadRequestError(f"{name} must be a string; received {_json_type(value)}")
    return value


def _shown(value):
    """Return what a message says of a value: printable, and short."""
    if isinstance(value, str):
        return repr(value[:40])
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:.6g}"
    return _json_type(value)


def _json_type(value):
    """Return what JSON calls the type of a value."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    return "null" if value is None else names.get(type(value), "a number")
