"""The page as it is sent: one file, and a policy by which the browser runs nothing else."""

import functools
import io
from importlib import resources
from typing import NamedTuple

from nmt.visualize.explorer import allowed_sources, with_component


class Page(NamedTuple):
    """The page and its Content-Security-Policy."""

    html: str
    policy: str


def load_page() -> Page:
    """Read the page; its policy allows its own script and style, by their hashes."""
    file = resources.files("nmt.serve").joinpath("page.html")
    html = with_component(file.read_text(encoding="utf-8"))
    policy = (
        f"default-src 'none'; {allowed_sources(html)}; "
        f"connect-src 'self'; font-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"frame-ancestors 'none'"
    )
    return Page(html, policy)


@functools.cache
def web_font() -> bytes | None:
    """Return a font with Chinese characters, for browsers that have none; None if none is here."""
    from fontTools.ttLib import TTFont

    from nmt.visualize.fonts import packaged_font

    path = packaged_font()
    if path is None:
        return None
    # Browsers take single faces only, not the collection that the package brings.
    face = io.BytesIO()
    TTFont(str(path), fontNumber=path.face_index, lazy=True).save(face)
    return face.getvalue()
