"""Finding a font that has the characters to be drawn."""

import functools
import importlib.metadata
import logging
from collections.abc import Iterable
from pathlib import Path

from matplotlib import font_manager
from matplotlib.font_manager import FontProperties
from matplotlib.ft2font import FT2Font

from nmt.config import ConfigError

log = logging.getLogger(__name__)

# Claims every code point of Unicode and draws a box with the name of its block.
_LAST_RESORT = "LastResort"


def font_for(texts: Iterable[str], font: str | Path | None = None) -> FontProperties:
    """Return a font that draws all characters of `texts`, or as many of them as any does.

    The order of preference: `font`, matplotlib's own DejaVu Sans, the Noto Sans CJK that
    requirements.txt installs, the fonts of the system. Characters that the chosen font lacks are
    named in a warning; the picture is made all the same.

    Args:
      texts: what will be drawn.
      font: a font file to use instead of looking for one.

    Raises:
      ConfigError: `font` is not a readable font file.
    """
    needed = {ord(character) for text in texts for character in text if not character.isspace()}
    if font is not None:
        try:
            missing = needed - _coverage(str(font))
        except (OSError, RuntimeError) as error:
            raise ConfigError(f"{font}: not a readable font file: {error}") from None
        _warn(missing, font)
        return FontProperties(fname=str(font))
    best, best_missing = None, needed
    for path in _candidates():
        missing = needed - _coverage(path)
        if best is None or len(missing) < len(best_missing):
            best, best_missing = path, missing
        if not missing:
            break
    _warn(best_missing, None)
    return FontProperties(fname=best)


def _warn(missing, font):
    if missing:
        shown = "".join(map(chr, sorted(missing)[:10]))
        where = font or "matplotlib's fonts, the package noto-cjk-sans-otc, the system's fonts"
        log.warning(
            "no glyph for %s of the characters to be drawn (%s) in %s; they will be empty boxes. "
            "Install noto-cjk-sans-otc or pass a font file that has them",
            len(missing),
            shown,
            where,
        )


def _candidates():
    """Yield font files, best first; the system's are only looked for when nothing else will do."""
    yield font_manager.findfont("DejaVu Sans")
    packaged = packaged_font()
    if packaged:
        yield packaged
    for entry in font_manager.fontManager.ttflist:
        if _LAST_RESORT not in Path(entry.fname).name and Path(entry.fname).is_file():
            yield entry.fname


def packaged_font() -> font_manager.FontPath | None:
    """Return the face of Simplified Chinese that requirements.txt installs; None without it."""
    try:
        files = importlib.metadata.files("noto-cjk-sans-otc") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.suffix in (".ttc", ".otc", ".otf") and Path(file.locate()).is_file():
            path = str(file.locate())
            faces = range(FT2Font(path).num_faces)
            # One file, a face for each region: "直" and "骨" look different in Japan, the first.
            simplified = [
                i for i in faces if FT2Font(path, face_index=i).family_name == "Noto Sans CJK SC"
            ]
            return font_manager.FontPath(path, *simplified[:1] or [0])
    return None


@functools.cache
def _coverage(path):
    """Return the code points that a font file (or FontPath, with a face) has glyphs for."""
    return frozenset(FT2Font(path, face_index=getattr(path, "face_index", 0)).get_charmap())
