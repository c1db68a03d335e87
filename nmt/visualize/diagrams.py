"""Diagrams of what a Transformer is made of: positions, masks, learning rates."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import SupportsFloat

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from nmt.visualize.fonts import font_for
from nmt.visualize.panels import draw_panels, legend_patches

# Lines that lie on each other, or are seen without colours, still differ.
LINE_STYLES = ("-", "--", ":", "-.")

ALLOWED = 0.6  # of the colour scale
DRAWN_STEPS = 500


def plot_positions(length: int, d_model: int, font: str | Path | None = None) -> Figure:
    """Draw the sinusoidal positions, and how alike a position is to its neighbours.

    Left: the encodings, a row for each position. Right: the dot product of a position with those
    around it, divided by d_model / 2. It is 1 for the position itself and depends on the distance
    alone, so the lines of different positions lie on each other; this lets attention look "three
    tokens back" wherever it is.

    Args:
      length: number of positions, at least 2.
      d_model: M, even.
      font: see `font_for`.

    Returns:
      A matplotlib Figure that belongs to nobody.

    Raises:
      ValueError: fewer than 2 positions, or a d_model that is odd or not positive.

    Source: Vaswani et al. 2017, section 3.5.
    """
    if length < 2:
        raise ValueError(f"length must be at least 2; received {length}")
    if d_model < 2 or d_model % 2:
        raise ValueError(f"d_model must be even and positive; received {d_model}")
    # Here, so that the other pictures need not wait for TensorFlow.
    from nmt.model.positions import sinusoidal_positions

    encodings = np.asarray(sinusoidal_positions(length, d_model))  # (length, M)
    likeness = encodings @ encodings.T / (d_model / 2)
    labels = {
        "title": "sinusoidal positions 正弦位置编码",
        "x": "dimension 维度",
        "y": "position 位置",
        "bar": "value 数值",
        "right title": "dot product with the neighbours 与邻近位置的点积",
        "right x": "distance 距离",
        "right y": "dot product ÷ (d_model / 2) 点积",
    }
    properties = font_for(labels.values(), font)
    figure = Figure(figsize=(10.5, 4), layout="constrained")
    left, right = figure.subplots(1, 2)

    image = left.imshow(encodings, vmin=-1, vmax=1, cmap="RdBu", aspect="auto")
    left.set_title(labels["title"], fontproperties=properties)
    left.set_xlabel(labels["x"], fontproperties=properties)
    left.set_ylabel(labels["y"], fontproperties=properties)
    figure.colorbar(image, ax=left).set_label(labels["bar"], fontproperties=properties)

    shown = sorted({length // 4, length // 2, 3 * length // 4})
    for position, style in zip(shown, LINE_STYLES, strict=False):
        right.plot(np.arange(length) - position, likeness[position], style,
                   label=f"{labels['y']} {position}")  # fmt: skip
    right.set_title(labels["right title"], fontproperties=properties)
    right.set_xlabel(labels["right x"], fontproperties=properties)
    right.set_ylabel(labels["right y"], fontproperties=properties)
    right.grid(alpha=0.3)
    for axis in (left.xaxis, left.yaxis, right.xaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    right.legend(prop=properties)
    return figure


def plot_masks(
    masks: Mapping[str, np.ndarray], tokens: Sequence[str], font: str | Path | None = None
) -> Figure:
    """Draw which token may attend to which under several masks.

    Args:
      masks: title → bool, True = may attend; (K, K), or what broadcasts to (1, 1, K, K), as the
        functions of `nmt.model.masks` return it for one sentence.
      tokens: K labels of both queries (rows) and keys (columns), padding included.
      font: see `font_for`.

    Returns:
      A matplotlib Figure that belongs to nobody.

    Raises:
      ValueError: no masks, no tokens, or a mask that is not boolean or has another shape.
    """
    if not masks or not tokens:
        raise ValueError(f"there is nothing to draw: {len(masks)} masks, {len(tokens)} tokens")
    count = len(tokens)
    allowed = np.stack([_square(name, mask, count) for name, mask in masks.items()])
    color = matplotlib.colormaps["viridis"](ALLOWED)
    figure = draw_panels(
        np.ma.array(np.full(allowed.shape, ALLOWED), mask=~allowed),
        tokens,
        tokens,
        list(masks),
        axis_labels=["keys, looked at 键（被关注）", "queries, looking\n查询（关注者）"],
        font=font,
        legend=[
            Patch(color=color, label="may attend 可以关注"),
            *reversed(legend_patches(tokens, any_forbidden=True)),
        ],
    )
    for axis in figure.axes:
        # Cells of one colour are to be told apart, too.
        axis.set_xticks(np.arange(count - 1) + 0.5, minor=True)
        axis.set_yticks(np.arange(count - 1) + 0.5, minor=True)
        axis.grid(which="minor", color="white")
        axis.tick_params(which="minor", length=0)
    return figure


def plot_schedule(
    schedules: Mapping[str, Callable[[int], SupportsFloat]],
    steps: int,
    font: str | Path | None = None,
) -> Figure:
    """Draw learning rates against the step.

    Args:
      schedules: label → Keras LearningRateSchedule, or anything that takes the number of updates
        made so far and returns the rate of the next one. Step 1 is `schedule(0)`.
      steps: last step drawn, at least 2.
      font: see `font_for`.

    Returns:
      A matplotlib Figure that belongs to nobody.

    Raises:
      ValueError: no schedules, or fewer than 2 steps.
    """
    if not schedules:
        raise ValueError("there is nothing to draw: no schedules")
    if steps < 2:
        raise ValueError(f"steps must be at least 2; received {steps}")
    title, across = "learning rate 学习率", "step 步"
    properties = font_for([title, across, *schedules], font)
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axis = figure.subplots()
    drawn = np.unique(np.linspace(1, steps, DRAWN_STEPS, dtype=int))
    for i, (label, schedule) in enumerate(schedules.items()):
        rates = [float(schedule(int(step) - 1)) for step in drawn]
        axis.plot(drawn, rates, LINE_STYLES[i % len(LINE_STYLES)], label=label)
    axis.set_xlabel(across, fontproperties=properties)
    axis.set_ylabel(title, fontproperties=properties)
    axis.ticklabel_format(axis="y", scilimits=(-2, 2))
    axis.grid(alpha=0.3)
    for text in axis.legend(prop=properties).get_texts():
        text.set_parse_math(False)
    return figure


def _square(name, mask, count):
    """Return a mask as (count, count)."""
    mask = np.asarray(mask)
    try:
        square = np.broadcast_to(mask, (1, 1, count, count))[0, 0]
    except ValueError:
        square = None
    if mask.dtype != bool or square is None:
        raise ValueError(
            f"mask {name!r} must be boolean and broadcast to (1, 1, {count}, {count}) for "
            f"{count} tokens; received {mask.dtype} {mask.shape}"
        )
    return square
