"""Attention weights as a picture: a row for each target token, a column for each source token."""

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from nmt.config import ConfigError
from nmt.decoding.translation import Translation
from nmt.run_folder import replacing
from nmt.visualize.fonts import font_for

log = logging.getLogger(__name__)

FORMATS = ("png", "svg", "pdf")


def plot_attention(
    weights: np.ndarray,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    titles: Sequence[str],
    font: str | Path | None = None,
) -> Figure:
    """Draw one heatmap for each matrix, all on the same scale from 0 to 1.

    Args:
      weights: (N, T, S) attention weights; each row sums to 1.
      source_tokens: S labels of the columns, drawn literally.
      target_tokens: T labels of the rows.
      titles: N titles.
      font: see `font_for`.

    Returns:
      A matplotlib Figure that belongs to nobody: show it in a notebook or save it.

    Raises:
      ValueError: lengths that do not agree, or nothing to draw.
    """
    weights = np.asarray(weights)
    expected = (len(titles), len(target_tokens), len(source_tokens))
    if weights.shape != expected:
        raise ValueError(
            f"weights must be (titles, target tokens, source tokens) = {expected}; "
            f"received {weights.shape}"
        )
    if 0 in expected:
        raise ValueError(f"there is nothing to draw: weights have the shape {weights.shape}")
    if weights[0].size > 1 and np.all(weights.std(axis=-1) < 1e-6):
        log.warning(
            "every row is uniform: an untrained model, or weights of something that looked nowhere"
        )

    columns = int(np.ceil(np.sqrt(len(titles)))) if len(titles) < 5 else min(4, len(titles))
    rows = -(-len(titles) // columns)
    cell = 0.34 if len(titles) == 1 else 0.24  # inches
    width = max(2.4, cell * len(source_tokens)) + 1.1
    height = max(1.8, cell * len(target_tokens)) + 1.3
    figure = Figure(figsize=(columns * width + 0.6, rows * height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    labels = ["source 原文", "target 译文", "attention weight 注意力权重"]
    texts = [*source_tokens, *target_tokens, *titles, *labels]
    properties = font_for(texts, font)
    for axis, matrix, title in zip(axes, weights, titles, strict=False):
        image = axis.imshow(matrix, vmin=0, vmax=1, cmap="viridis", aspect="auto")
        axis.set_xticks(range(len(source_tokens)), labels=source_tokens, rotation=90)
        axis.set_yticks(range(len(target_tokens)), labels=target_tokens)
        axis.set_title(title)
        for text in [*axis.get_xticklabels(), *axis.get_yticklabels(), axis.title]:
            text.set_fontproperties(properties)
            text.set_parse_math(False)  # tokens are literal: "$" begins no formula
            text.set_fontsize(9 if len(titles) > 1 else 12)
    for axis in axes[len(titles) :]:
        axis.remove()
    bar = figure.colorbar(image, ax=list(axes[: len(titles)]), fraction=0.04, pad=0.02)
    bar.set_label(labels[2], fontproperties=properties)
    figure.supxlabel(labels[0], fontproperties=properties)
    figure.supylabel(labels[1], fontproperties=properties)
    return figure


def plot_translation(
    translation: Translation,
    layer: int | None = None,
    head: int | None = None,
    font: str | Path | None = None,
) -> Figure:
    """Draw where a translation looked in its source: its cross-attention.

    Args:
      translation: made with `attention=True`.
      layer: decoder layer, from 1; None: the last.
      head: attention head, from 1; None: all heads of the layer, side by side.
      font: see `font_for`.

    Raises:
      ValueError: the translation is empty, has no attention, or no such layer or head.
    """
    if not translation.source_tokens:
        raise ValueError("there is nothing to draw: the sentence is empty")
    if translation.attention is None:
        raise ValueError("the translation carries no attention; translate with attention=True")
    cross = translation.attention.cross  # (L, H, T, S)
    layer = _checked("layer", layer or len(cross), len(cross))
    heads = [_checked("head", head, cross.shape[1])] if head else range(1, cross.shape[1] + 1)
    return plot_attention(
        np.stack([cross[layer - 1, h - 1] for h in heads]),
        translation.source_tokens,
        translation.target_tokens,
        [f"layer {layer}, head {h}" for h in heads],
        font,
    )


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure to a .png, .svg or .pdf file, all or nothing."""
    path = check_picture_path(path)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=150, format=path.suffix[1:].lower())


def check_picture_path(path: str | Path) -> Path:
    """Return `path` if a picture can be written there; ConfigError otherwise."""
    path = Path(path)
    if path.suffix[1:].lower() not in FORMATS:
        raise ConfigError(f"{path}: a picture's name must end in .{', .'.join(FORMATS)}")
    if not path.parent.is_dir():
        raise ConfigError(f"{path.parent}: no such folder")
    return path


def _checked(name, value, largest):
    if not 1 <= value <= largest:
        raise ValueError(f"{name} must be from 1 to {largest}; received {value}")
    return value
