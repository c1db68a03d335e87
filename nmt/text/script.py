"""Chinese script: telling Chinese text from other text, Simplified and Traditional."""

import functools
import re

import opencc

from nmt.config import ConfigError

_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af]")
_LETTER = re.compile(r"[^\W\d_]")
_OPENCC_CONFIGS = {"simplified": "t2s", "traditional": "s2t"}


def convert(text: str, script: str) -> str:
    """Return Chinese `text` in `script`: "keep", "simplified" or "traditional" (OpenCC)."""
    if script == "keep":
        return text
    if script not in _OPENCC_CONFIGS:
        raise ConfigError(
            f"target_script must be keep, simplified or traditional; received {script!r}"
        )
    return _converter(_OPENCC_CONFIGS[script]).convert(text)


@functools.cache
def _converter(config):
    # Opening the dictionaries takes longer than converting a thousand sentences.
    return opencc.OpenCC(config)


def is_chinese(text: str) -> bool:
    """Say whether at least half of the letters of `text` are Han characters."""
    han = len(_HAN.findall(text))
    return han > 0 and 2 * han >= len(_LETTER.findall(text))
