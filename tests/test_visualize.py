"""Heatmaps: what is drawn, with which font, from which numbers."""

import logging
import warnings

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from nmt.config import ConfigError
from nmt.decoding.translation import Attention, Translation
from nmt.visualize import fonts
from nmt.visualize.curves import plot_curves
from nmt.visualize.fonts import font_for
from nmt.visualize.heatmap import plot_attention, plot_translation, save_figure

ODD_TOKENS = ["$$", r"$\frac$", "cost $5 and $6", "a_b", "^", "%", "#", r"\n", "{", "_foo"]


def uniform_rows(*shape):
    weights = np.random.default_rng(0).random(shape)
    return weights / weights.sum(-1, keepdims=True)


def translation(source_tokens, target_tokens, layers=2, heads=4):
    s, t = len(source_tokens), len(target_tokens)
    attention = Attention(
        uniform_rows(layers, heads, s, s), uniform_rows(layers, heads, t, t),
        uniform_rows(layers, heads, t, s),
    )  # fmt: skip
    return Translation("x", "y", source_tokens, target_tokens, attention=attention)


def pixels(figure):
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


def test_plot_01_chinese_labels_are_drawn_and_differ():
    weights = uniform_rows(1, 2, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib only warns of a missing glyph
        cat = pixels(plot_attention(weights, ["I", "cat"], ["我", "猫"], ["注意力"]))
        dog = pixels(plot_attention(weights, ["I", "cat"], ["我", "狗"], ["注意力"]))
    assert cat.shape == dog.shape
    assert np.any(cat != dog)


def test_plot_01_simplified_traditional_and_rare_characters_have_glyphs(caplog):
    font_for(["汉漢", "𠮷野家", "，。", "▁the"])
    assert not caplog.records


def test_plot_01_without_a_cjk_font_the_picture_is_made_and_a_message_says_so(
    monkeypatch, caplog, tmp_path
):
    monkeypatch.setattr(fonts, "packaged_font", lambda: None)
    manager = fonts.font_manager.fontManager
    bundled = [font for font in manager.ttflist if font.name == "DejaVu Sans"]
    monkeypatch.setattr(manager, "ttflist", bundled)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        save_figure(
            plot_attention(uniform_rows(1, 1, 1), ["cat"], ["猫"], ["t"]), tmp_path / "a.png"
        )
    assert (tmp_path / "a.png").stat().st_size > 1000
    assert "猫" in caplog.text
    assert "noto-cjk-sans-otc" in caplog.text


def test_the_last_resort_font_is_never_chosen():
    assert "LastResort" not in font_for(["猫", "\U0010fffd"]).get_file()


def test_font_must_be_a_font(tmp_path):
    file = tmp_path / "not.ttf"
    file.write_text("no font")
    with pytest.raises(ConfigError, match=r"not\.ttf: not a readable font"):
        font_for(["a"], file)


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_plot_02_tokens_are_literal_in_every_format(tmp_path, suffix):
    count = len(ODD_TOKENS)
    figure = plot_attention(uniform_rows(1, count, count), ODD_TOKENS, ODD_TOKENS, ["$x$"])
    labels = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert labels == ODD_TOKENS
    assert not any(label.get_parse_math() for label in figure.axes[0].get_xticklabels())
    save_figure(figure, tmp_path / f"a.{suffix}")
    assert (tmp_path / f"a.{suffix}").stat().st_size > 1000
    assert [file.name for file in tmp_path.iterdir()] == [f"a.{suffix}"]


def test_plot_04_lengths_must_agree():
    with pytest.raises(ValueError, match=r"= \(1, 3, 2\); received \(1, 2, 3\)"):
        plot_attention(uniform_rows(1, 2, 3), ["a", "b"], ["c", "d", "e"], ["t"])


def test_plot_04_one_by_one_is_drawn_and_nothing_is_refused():
    plot_attention(np.ones((1, 1, 1)), ["a"], ["b"], ["t"])
    empty = Translation("", "")
    with pytest.raises(ValueError, match="the sentence is empty"):
        plot_translation(empty)


def test_plot_05_scale_is_fixed_and_a_constant_map_is_remarked_on(caplog):
    caplog.set_level(logging.WARNING)
    figure = plot_attention(np.full((1, 3, 20), 0.05), ["s"] * 20, ["t"] * 3, ["t"])
    assert figure.axes[0].images[0].get_clim() == (0, 1)
    assert "uniform" in caplog.text


def test_plot_05_the_picture_shows_the_translations_own_weights():
    shown = translation(["I", "cat", "</s>"], ["我", "</s>"])
    figure = plot_translation(shown, layer=1, head=3)
    np.testing.assert_array_equal(figure.axes[0].images[0].get_array(), shown.attention.cross[0, 2])


def test_all_heads_of_the_last_layer_by_default():
    figure = plot_translation(translation(["I", "cat", "</s>"], ["我", "</s>"]))
    titles = [axis.get_title() for axis in figure.axes if axis.get_title()]
    assert titles == [f"layer 2, head {h}" for h in (1, 2, 3, 4)]


@pytest.mark.parametrize("choice", [{"layer": 3}, {"layer": -1}, {"head": 5}])
def test_layer_and_head_must_exist(choice):
    with pytest.raises(ValueError, match="must be from 1 to"):
        plot_translation(translation(["a", "</s>"], ["b", "</s>"]), **choice)


def test_a_failed_save_leaves_nothing(tmp_path, monkeypatch):
    figure = plot_attention(np.ones((1, 1, 1)), ["a"], ["b"], ["t"])
    monkeypatch.setattr(figure, "savefig", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        save_figure(figure, tmp_path / "a.png")
    assert not list(tmp_path.iterdir())
    with pytest.raises(ConfigError, match=r"must end in \.png"):
        save_figure(figure, tmp_path / "a.bmp")


# Learning curves ---------------------------------------------------------------------------------

RECORDS = [
    {"step": 20, "loss": 5.0, "token_accuracy": 0.1, "learning_rate": 1e-3, "done": None},
    {"step": 40, "loss": 4.0, "token_accuracy": 0.2, "learning_rate": 2e-3, "done": None},
    {"step": 40, "validation_loss": 4.5, "validation_accuracy": 0.2, "validation_bleu": None},
]


def curves_of(figure):
    return {
        axis.get_title().split()[0]: [line.get_xydata().tolist() for line in axis.lines]
        for axis in figure.axes
        if axis.get_visible()
    }


def test_curves_show_what_was_measured_and_nothing_else():
    assert curves_of(plot_curves(RECORDS)) == {
        "Loss": [[[20, 5.0], [40, 4.0]], [[40, 4.5]]],
        "Token": [[[20, 0.1], [40, 0.2]], [[40, 0.2]]],
        "Learning": [[[20, 1e-3], [40, 2e-3]]],
    }
    bleu = [*RECORDS, {"step": 60, "validation_bleu": 7.5}]
    assert curves_of(plot_curves(bleu))["Validation"] == [[[60, 7.5]]]


def test_no_curves_yet():
    with pytest.raises(ValueError, match="the training has not reported yet"):
        plot_curves([])


def test_curves_have_glyphs(tmp_path, recwarn):
    save_figure(plot_curves(RECORDS), tmp_path / "curves.svg")
    assert not [w for w in recwarn if "Glyph" in str(w.message)]
    assert (tmp_path / "curves.svg").stat().st_size > 10_000
