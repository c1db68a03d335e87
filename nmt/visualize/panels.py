"""Matrices side by side whose rows and columns are tokens: sizes, labels and legend."""

import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Patch
from matplotlib.textpath import text_to_path

from nmt.visualize.fonts import font_for

SPECIAL_TOKENS = {
    "<s>": "start 句首",
    "</s>": "end 句尾",
    "<pad>": "padding 填充",
    "<unk>": "unknown 未知",
}
SPECIAL_COLOR = "#0072b2"  # blue, also to those who cannot tell red from green

# Cells that may not attend: hatched grey, which no colour of a scale looks like.
FORBIDDEN: dict[str, Any] = {
    "facecolor": "0.9",
    "edgecolor": "0.6",
    "hatch": "////",
    "linewidth": 0.0,
}

LABEL_WIDTH = 24  # columns of a terminal; longer tokens are cut
LABEL_SIZE, TITLE_SIZE, HEADING_SIZE = 9, 10, 12  # points
CELL, LEAST_PANEL, GAP, LINE = 0.24, 2.4, 0.2, 0.22  # inches

BEST_DPI, LEAST_DPI = 150, 72  # below the least the labels cannot be read
MAX_PIXELS = 80_000_000  # Pillow warns of larger pictures
MAX_SIDE = 2**16 - 1  # matplotlib makes no longer ones


def draw_panels(
    matrices: np.ma.MaskedArray,
    column_tokens: Sequence[str],
    row_tokens: Sequence[str],
    titles: Sequence[str],
    *,
    axis_labels: Sequence[str],
    font: str | Path | None = None,
    heading: str = "",
    scale: str = "",
    legend: Sequence[Patch] = (),
    across: int | None = None,
) -> Figure:
    """Draw matrices with values from 0 to 1; the longer the tokens' lists, the larger the picture.

    Args:
      matrices: (N, Q, K); what is masked is drawn as FORBIDDEN.
      column_tokens: K labels, drawn literally; special ones in another colour.
      row_tokens: Q labels.
      titles: N titles.
      axis_labels: what the columns and what the rows are.
      font: see `font_for`.
      heading: a line or two above the panels.
      scale: what the colours mean; "": no colour bar.
      legend: a line each below the panels.
      across: panels side by side; None: as many as make a handy picture.

    Raises:
      ValueError: the picture would be too large.
    """
    count = len(titles)
    across = min(count, across or (2 if count == 4 else 4))
    down = -(-count // across)
    columns, rows = [shown(t) for t in column_tokens], [shown(t) for t in row_tokens]
    below = [str(patch.get_label()) for patch in legend]
    properties = font_for([*columns, *rows, *titles, *axis_labels, heading, scale, *below], font)

    # Everything is placed in inches, so that cells keep their size whatever is around them.
    row_room = _inches(rows, properties, LABEL_SIZE) + 0.12
    column_room = _inches(columns, properties, LABEL_SIZE) + 0.12
    panel_width = max(
        LEAST_PANEL, CELL * len(columns), _inches(titles, properties, TITLE_SIZE) - row_room
    )
    panel_height = max(LEAST_PANEL, CELL * len(rows))
    left, right = LINE * len(axis_labels[1].splitlines()) + GAP, 1.0 if scale else GAP
    top = LINE * (len(heading.splitlines()) + 2)
    bottom = LINE * (len(legend) + 2) + 0.08
    between_x, between_y = row_room + GAP, column_room + 2 * LINE
    grid_width = across * (panel_width + between_x) - GAP
    grid_height = down * (panel_height + between_y) - 2 * LINE
    width, height = left + grid_width + right, top + grid_height + bottom
    if most_dpi(width, height) < LEAST_DPI:
        raise ValueError(
            f"{count} matrices of {len(rows)} x {len(columns)} tokens make too large a picture, "
            f"{width:.0f} x {height:.0f} inches; choose fewer layers or heads, or their mean"
        )

    figure = Figure(figsize=(width, height))
    axes = figure.subplots(
        down,
        across,
        squeeze=False,
        gridspec_kw={
            "left": (left + row_room) / width,
            "right": 1 - right / width,
            "top": 1 - top / height,
            "bottom": (bottom + column_room) / height,
            "wspace": between_x / panel_width,
            "hspace": between_y / panel_height,
        },
    ).flatten()
    for axis, matrix, title in zip(axes, matrices, titles, strict=False):
        axis.patch.set(**FORBIDDEN)  # seen where nothing is drawn over it
        image = axis.imshow(matrix, vmin=0, vmax=1, cmap="viridis", aspect="auto")
        axis.set_title(title, fontproperties=properties, fontsize=TITLE_SIZE, parse_math=False)
        axis.set_xticks(range(len(columns)), labels=columns, rotation=90)
        axis.set_yticks(range(len(rows)), labels=rows)
        labels = [*axis.get_xticklabels(), *axis.get_yticklabels()]
        for label, token in zip(labels, [*column_tokens, *row_tokens], strict=True):
            # "$" begins no formula.
            label.set(fontproperties=properties, fontsize=LABEL_SIZE, parse_math=False)
            label.set_color(SPECIAL_COLOR if token in SPECIAL_TOKENS else "black")
    for axis in axes[count:]:
        axis.remove()

    if scale:
        tall = min(4.0, grid_height - column_room)
        bar = figure.add_axes(
            ((width - 0.8) / width, (height - top - tall) / height, 0.18 / width, tall / height)
        )
        figure.colorbar(image, cax=bar).set_label(scale, fontproperties=properties)
    center = (left + row_room + width - right) / 2 / width
    figure.suptitle(heading, x=center, y=1 - 0.1 / height, va="top", fontproperties=properties,
                    fontsize=HEADING_SIZE)  # fmt: skip
    figure.supxlabel(axis_labels[0], x=center, y=(bottom - LINE) / height, va="top",
                     fontproperties=properties)  # fmt: skip
    figure.supylabel(axis_labels[1], x=0.08 / width, y=(height - top - grid_height / 2) / height,
                     fontproperties=properties, linespacing=1.4)  # fmt: skip
    if legend:
        figure.legend(handles=legend, loc="lower center", bbox_to_anchor=(center, 0),
                      prop=properties, frameon=False)  # fmt: skip
    return figure


def legend_patches(tokens: Sequence[str], any_forbidden: bool) -> list[Patch]:
    """Return what a legend has to say of special tokens and of cells that may not attend."""
    special = ", ".join(f"{t} {text}" for t, text in SPECIAL_TOKENS.items() if t in tokens)
    patches = [Patch(color=SPECIAL_COLOR, label=special)] if special else []
    if any_forbidden:
        patches.append(Patch(**FORBIDDEN, label="may not attend 不可关注"))
    return patches


def shown(token: str) -> str:
    """Return a token as it is drawn: in one line, all of it visible, not too long."""
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in token)
    ends = np.cumsum([2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text])
    fitting = int((ends <= LABEL_WIDTH).sum())
    return text if fitting == len(text) else text[: fitting - 1] + "…"


def most_dpi(width: float, height: float) -> float:
    """Return the highest resolution at which a picture of so many inches can be opened."""
    return min(MAX_SIDE / max(width, height), (MAX_PIXELS / (width * height)) ** 0.5)


def _inches(texts: Sequence[str], properties: FontProperties, size: float) -> float:
    """Return how wide the widest text is."""
    sized = properties.copy()
    sized.set_size(size)
    measured = [text_to_path.get_text_width_height_descent(t, sized, False)[0] for t in set(texts)]
    return max(measured) / 72
