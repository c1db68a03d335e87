"""Attention weights as pictures: a row for each token that looks, a column for each looked at."""

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from nmt.config import ConfigError
from nmt.decoding.translation import Translation
from nmt.run_folder import check_writable, replacing
from nmt.visualize.panels import BEST_DPI, draw_panels, legend_patches, most_dpi

log = logging.getLogger(__name__)

FORMATS = ("png", "svg", "pdf")

# Of each kind of attention: its name, what its columns are and what its rows are.
LABELS = {
    "cross": (
        "cross-attention: target → source\n交叉注意力：译文 → 原文",
        "source tokens, looked at 原文词元（被关注）",
        "target tokens, being predicted\n译文词元（正在预测）",
    ),
    "encoder": (
        "encoder self-attention: source → source\n编码器自注意力：原文 → 原文",
        "source tokens, looked at 原文词元（被关注）",
        "source tokens that look\n原文词元（关注者）",
    ),
    "decoder": (
        "decoder self-attention: target → target\n解码器自注意力：译文 → 译文",
        "target tokens, already read 译文词元（已读入）",
        "target tokens, being predicted\n译文词元（正在预测）",
    ),
}
KINDS = tuple(LABELS)


def plot_attention(
    weights: np.ndarray,
    column_tokens: Sequence[str],
    row_tokens: Sequence[str],
    titles: Sequence[str],
    font: str | Path | None = None,
    *,
    axis_labels: Sequence[str] = ("looked at 被关注", "looking 关注者"),
    heading: str = "",
    may_attend: np.ndarray | None = None,
    across: int | None = None,
) -> Figure:
    """Draw one heatmap for each matrix, all on the same scale from 0 to 1.

    Args:
      weights: (N, Q, K) attention weights; each row sums to 1.
      column_tokens: K labels: what is looked at. Drawn literally; unprintable characters as
        escapes, very long tokens cut.
      row_tokens: Q labels: what looks.
      titles: N titles.
      font: see `font_for`.
      axis_labels: what the columns and what the rows are.
      heading: a line or two above the panels.
      may_attend: bool, broadcastable to (N, Q, K); cells where it is False are hatched. None: all
        may attend.
      across: panels side by side; None: as many as make a handy picture.

    Returns:
      A matplotlib Figure that belongs to nobody: show it in a notebook or save it.

    Raises:
      ValueError: lengths that do not agree, nothing to draw, or more than fits in a picture.
    """
    weights = np.asarray(weights)
    expected = (len(titles), len(row_tokens), len(column_tokens))
    if weights.shape != expected:
        raise ValueError(
            f"weights must be (titles, row tokens, column tokens) = {expected}; "
            f"received {weights.shape}"
        )
    if 0 in expected:
        raise ValueError(f"there is nothing to draw: weights have the shape {weights.shape}")
    allowed = np.broadcast_to(True if may_attend is None else may_attend, weights.shape)
    _remark_on_constant_maps(weights, allowed, titles)

    return draw_panels(
        np.ma.array(weights, mask=~allowed),
        column_tokens,
        row_tokens,
        titles,
        axis_labels=axis_labels,
        font=font,
        heading=heading,
        scale="attention weight 注意力权重",
        legend=legend_patches([*column_tokens, *row_tokens], not allowed.all()),
        across=across,
    )


def plot_translation(
    translation: Translation,
    kind: str = "cross",
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    mean: bool = False,
    font: str | Path | None = None,
) -> Figure:
    """Draw what looked at what in a translation.

    One layer's heads stand side by side; several layers make a grid, a row of panels for each
    layer and a column for each head.

    Args:
      translation: made with `attention=True`.
      kind: "cross", "encoder" or "decoder", the latter two being self-attention. Row t of "cross"
        and "decoder" belongs to the prediction of target token t, when <s> and the tokens before
        it had been read: these are the columns of "decoder".
      layers: from 1; None: the last.
      heads: from 1; None: all.
      mean: one panel for each layer, the mean of `heads`, instead of one for each head.
      font: see `font_for`.

    Returns:
      A matplotlib Figure that belongs to nobody.

    Raises:
      ValueError: the translation is empty or has no attention, no such kind, layer or head, or
        more of them than fit in a picture.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}; received {kind!r}")
    if not translation.source_tokens:
        raise ValueError("there is nothing to draw: the sentence is empty")
    if translation.attention is None:
        raise ValueError("the translation carries no attention; translate with attention=True")
    weights = getattr(translation.attention, kind)  # (L, H, Q, K)
    all_layers, all_heads, *shape = weights.shape
    layers = _checked("layers", [all_layers] if layers is None else layers, all_layers)
    heads = _checked("heads", range(1, all_heads + 1) if heads is None else heads, all_heads)
    chosen = weights[np.ix_(np.subtract(layers, 1), np.subtract(heads, 1))]
    if mean:
        chosen = chosen.mean(axis=1, keepdims=True)
        of = "all heads 所有头" if len(heads) == all_heads else f"heads 头 {_listed(heads)}"
        titles = [f"layer 层 {layer}, mean 平均 of {of}" for layer in layers]
    else:
        titles = [f"layer 层 {layer}, head 头 {head}" for layer in layers for head in heads]

    source, target = translation.source_tokens, translation.target_tokens
    heading, *axis_labels = LABELS[kind]
    return plot_attention(
        chosen.reshape(-1, *shape),
        ["<s>", *target[:-1]] if kind == "decoder" else source,
        source if kind == "encoder" else target,
        titles,
        font,
        axis_labels=axis_labels,
        heading=heading,
        may_attend=np.tri(*shape, dtype=bool) if kind == "decoder" else None,
        across=None if mean or len(layers) == 1 else len(heads),
    )


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure to a .png, .svg or .pdf file, all or nothing.

    Large pictures get fewer pixels an inch, so that programs can still open them.
    """
    path = check_picture_path(path)
    dpi = min(BEST_DPI, most_dpi(*figure.get_size_inches()))
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=dpi, format=path.suffix[1:].lower())


def check_picture_path(path: str | Path) -> Path:
    """Return `path` if a picture can be written there; ConfigError otherwise."""
    path = Path(path)
    if path.suffix[1:].lower() not in FORMATS:
        raise ConfigError(f"{path}: a picture's name must end in .{', .'.join(FORMATS)}")
    check_writable(path)
    return path


def _checked(name, numbers, largest):
    """Return `numbers` as a list if they are whole ones from 1 to `largest`, at least one."""
    chosen = list(numbers) if np.iterable(numbers) else []
    if not chosen or not all(isinstance(n, int | np.integer) and 1 <= n <= largest for n in chosen):
        raise ValueError(
            f"{name} must be a list of whole numbers from 1 to {largest}; received {numbers}"
        )
    return chosen


def _listed(numbers):
    return ", ".join(map(str, numbers))


def _remark_on_constant_maps(weights, allowed, titles):
    """Log which maps are constant where there was something to choose from."""
    choice = allowed.sum(axis=-1) > 1  # (N, Q)
    spread = np.ma.array(weights, mask=~allowed).std(axis=-1).filled(0)
    constant = choice.any(axis=-1) & ((spread < 1e-6) | ~choice).all(axis=-1)
    if constant.any():
        log.warning(
            "every row is uniform in %s: an untrained model, or weights of something that looked "
            "nowhere",
            "; ".join(title for title, is_constant in zip(titles, constant, strict=True)
                      if is_constant),
        )  # fmt: skip
