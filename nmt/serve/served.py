"""What is served: the name of the run, and its languages by the codes that clients use."""

import dataclasses

from nmt.text.script import is_chinese

# What a client may call Chinese in each script; "zt" is LibreTranslate's name for Traditional.
_CHINESE_CODES = {
    "simplified": ("zh", "zh-Hans", "zh-CN", "zh-SG"),
    "traditional": ("zh", "zh-Hant", "zh-TW", "zh-HK", "zh-MO", "zt"),
    "keep": ("zh",),
}
_NAMES = {
    "en": "English",
    "zh": "Chinese",
    "zh-Hans": "Chinese (Simplified)",
    "zh-Hant": "Chinese (Traditional)",
    "zt": "Chinese (Traditional)",
}


@dataclasses.dataclass(frozen=True)
class Served:
    """The model behind a server."""

    name: str  # of the run
    engine: str  # tensorflow, ctranslate2 ...
    source_language: str = "en"
    target_language: str = "zh"
    target_script: str = "simplified"  # of Chinese: see DataConfig
    gives_attention: bool = True

    @property
    def source_codes(self) -> tuple[str, ...]:
        """What a client may call the source language, "auto" aside."""
        return self._codes(self.source_language)

    @property
    def target_codes(self) -> tuple[str, ...]:
        """What a client may call the target language."""
        return self._codes(self.target_language)

    def languages(self) -> list[dict]:
        """Return the list of GET /languages; only from the source language anything goes out."""
        sources = [code for code in self.source_codes if code in (self.source_language, *_NAMES)]
        targets = [code for code in self.target_codes if code in (self.target_language, *_NAMES)]
        return [
            {"code": code, "name": _NAMES.get(code, code), "targets": reached}
            for codes, reached in ((sources, targets), (targets, []))
            for code in codes
        ]

    def detect(self, text: str) -> dict:
        """Return the language of `text` as far as its script tells, with a confidence in percent.

        Chinese is known by its characters. Whatever has other letters may be any other language:
        it counts as the other one of the pair with half the confidence.
        """
        pair = (self.source_language, self.target_language)
        others = [language for language in pair if language != "zh"]
        if not any(map(str.isalpha, text)) or len(others) == 2:
            return {"language": self.source_language, "confidence": 0.0}
        if is_chinese(text):
            return {"language": "zh", "confidence": 90.0}
        return {"language": others[0], "confidence": 50.0}

    def _codes(self, language):
        return _CHINESE_CODES[self.target_script] if language == "zh" else (language,)


def is_code(received: str, codes: tuple[str, ...]) -> bool:
    """Say whether a client's code is one of `codes` or, as "en-GB", begins with one of them.

    A bare "zh" stands for the script that there is, so it must not let "zh-Hant" pass.
    """
    received = received.replace("_", "-").lower()
    for code in map(str.lower, codes):
        if received == code or (code != "zh" and received.startswith(f"{code}-")):
            return True
    return False
