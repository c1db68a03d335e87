"""How a training went, as a picture."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from nmt.visualize.fonts import font_for

# A panel each: its title, what is on its axis, and the metrics in it with their labels.
PANELS = (
    (
        "Loss 损失",
        "nats a target token 奈特/词元",
        {"loss": "training 训练", "validation_loss": "validation 验证"},
    ),
    (
        "Token accuracy 词元准确率",
        "share predicted right 预测正确的比例",
        {"token_accuracy": "training 训练", "validation_accuracy": "validation 验证"},
    ),
    (
        "Validation BLEU 验证集 BLEU",
        "of greedy translation 贪心解码",
        {"validation_bleu": "validation 验证"},
    ),
    ("Learning rate 学习率", "", {"learning_rate": "learning rate 学习率"}),
)


def plot_curves(records: Sequence[dict], font: str | Path | None = None) -> Figure:
    """Draw loss, accuracy, BLEU if it was measured, and learning rate against the step.

    Args:
      records: the lines of metrics.jsonl, in any order of kinds.
      font: see `font_for`.

    Returns:
      A matplotlib Figure that belongs to nobody: show it in a notebook or save it.

    Raises:
      ValueError: there is nothing to draw yet.
    """
    panels = [
        (title, unit, curves)
        for title, unit, lines in PANELS
        if (curves := {label: _curve(records, name) for name, label in lines.items()})
        and any(curves.values())
    ]
    if not panels:
        raise ValueError("there is nothing to draw: the training has not reported yet")
    figure = Figure(figsize=(5.2 * min(2, len(panels)), 3.4 * -(-len(panels) // 2)),
                    layout="constrained")  # fmt: skip
    axes = figure.subplots(-(-len(panels) // 2), min(2, len(panels)), squeeze=False).flatten()
    texts = [text for title, unit, curves in panels for text in (title, unit, *curves)]
    properties = font_for([*texts, "step 步"], font)
    for axis, (title, unit, curves) in zip(axes, panels, strict=False):
        for label, points in curves.items():
            if points:
                # The few validations are marked: between them nothing was measured.
                axis.plot(*zip(*points, strict=True), label=label, marker="o" * (len(points) < 50),
                          markersize=3)  # fmt: skip
        axis.set_title(title, fontproperties=properties)
        axis.set_ylabel(unit, fontproperties=properties)
        axis.set_xlabel("step 步", fontproperties=properties)
        axis.grid(alpha=0.3)
        if len(curves) > 1:
            axis.legend(prop=properties)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    return figure


def _curve(records, name):
    """Return (step, value) of a metric where it was measured."""
    return [(r["step"], r[name]) for r in records if r.get(name) is not None]
