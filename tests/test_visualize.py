"""Pictures: what is drawn, with which font, from which numbers, and that it can be read."""

import logging
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from nmt.config import ConfigError
from nmt.decoding.translation import Attention, Translation
from nmt.decoding.translator import Translator, load_translator
from nmt.model.masks import look_ahead_mask, padding_mask
from nmt.model.transformer import build_transformer
from nmt.training.schedule import WarmupSchedule
from nmt.visualize import fonts, heatmap
from nmt.visualize.curves import plot_curves
from nmt.visualize.diagrams import plot_masks, plot_positions, plot_schedule
from nmt.visualize.fonts import font_for
from nmt.visualize.heatmap import plot_attention, plot_translation, save_figure
from nmt.visualize.panels import FORBIDDEN, SPECIAL_COLOR

ODD_TOKENS = [
    "$$", r"$\frac$", "cost $5 and $6", "a_b", "^", "%", "#", r"\n", "{", "_foo", "-->", "<b>", "&",
]  # fmt: skip


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


def panels(figure):
    """Return title → axes of the heatmaps of a figure, without the colour bar."""
    return {axis.get_title(): axis for axis in figure.axes if axis.images}


def values(axis):
    return axis.images[0].get_array().data


def labels(axis):
    """Return what stands at the rows and at the columns."""
    return [
        [label.get_text() for label in ticks]
        for ticks in (axis.get_yticklabels(), axis.get_xticklabels())
    ]


def words(figure):
    """Return all that is written in a figure."""
    return " ".join(text.get_text() for text in figure.findobj(Text) if text.get_visible())


def unreadable(figure):
    """Return texts that lie on one another or are cut off by the edge of the picture."""
    pixels(figure)
    outside_the_view = {
        label
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for tick in axis.get_major_ticks()
        if not min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
        for label in (tick.label1, tick.label2)
    }
    texts = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
    texts = [text for text in texts if text not in outside_the_view]
    boxes = np.array([t.get_window_extent().extents for t in texts])  # (N, left low right high)
    low, high = boxes[:, :2], boxes[:, 2:]
    meet = np.all((low[:, None] < high) & (low < high[:, None]), axis=-1)
    outside = np.any((low < 0) | (high > figure.bbox.size), axis=-1)
    bad = outside | (meet.sum(axis=1) > 1)
    return [text.get_text() for text, is_bad in zip(texts, bad, strict=True) if is_bad]


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
    (axis,) = panels(figure).values()
    assert labels(axis) == [ODD_TOKENS, ODD_TOKENS]
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


def test_plot_05_scale_is_fixed_and_labelled():
    figure = plot_attention(uniform_rows(2, 3, 20) / 9, ["s"] * 20, ["t"] * 3, ["a", "b"])
    assert [axis.images[0].get_clim() for axis in panels(figure).values()] == [(0, 1), (0, 1)]
    assert "attention weight 注意力权重" in words(figure)


def test_plot_05_constant_maps_are_named(caplog):
    caplog.set_level(logging.WARNING)
    weights = uniform_rows(2, 3, 20)
    weights[1] = 0.05
    plot_attention(weights, ["s"] * 20, ["t"] * 3, ["trained", "constant"])
    assert "uniform in constant:" in caplog.text
    caplog.clear()
    triangle = np.tri(4, dtype=bool)
    as_read = [triangle / triangle.sum(axis=1, keepdims=True)]
    plot_attention(as_read, ["s"] * 4, ["t"] * 4, ["causal"], may_attend=triangle)
    assert "uniform in causal" in caplog.text
    # Where there is nothing to choose from, nothing is remarkable.
    caplog.clear()
    plot_attention(np.ones((1, 3, 1)), ["s"], ["t"] * 3, ["t"])
    assert not caplog.records


# Kinds, layers, heads ----------------------------------------------------------------------------

SHOWN = translation(["I", "cat", "s", "</s>"], ["我", "猫", "</s>"], layers=3, heads=2)


@pytest.mark.parametrize(
    ("kind", "rows", "columns", "said"),
    [
        ("cross", SHOWN.target_tokens, SHOWN.source_tokens, "译文 → 原文"),
        ("encoder", SHOWN.source_tokens, SHOWN.source_tokens, "原文 → 原文"),
        ("decoder", SHOWN.target_tokens, ["<s>", "我", "猫"], "译文 → 译文"),
    ],
)
def test_a_kind_has_its_weights_its_tokens_and_says_what_they_are(kind, rows, columns, said):
    figure = plot_translation(SHOWN, kind, layers=[2], heads=[1])
    axis = panels(figure)["layer 层 2, head 头 1"]
    np.testing.assert_array_equal(values(axis), getattr(SHOWN.attention, kind)[1, 0])
    assert labels(axis) == [rows, columns]
    assert said in words(figure)


def test_all_heads_of_the_last_layer_by_default():
    figure = plot_translation(SHOWN)
    assert list(panels(figure)) == ["layer 层 3, head 头 1", "layer 层 3, head 头 2"]


def test_a_grid_has_a_row_for_each_layer_and_a_column_for_each_head():
    shown = panels(plot_translation(SHOWN, layers=[1, 3, 2], heads=[2, 1]))
    places = {}
    for title, axis in shown.items():
        layer, head = int(title[8]), int(title[-1])
        np.testing.assert_array_equal(values(axis), SHOWN.attention.cross[layer - 1, head - 1])
        places[layer, head] = (
            axis.get_subplotspec().rowspan.start,
            axis.get_subplotspec().colspan.start,
        )
    assert places == {(1, 2): (0, 0), (1, 1): (0, 1), (3, 2): (1, 0), (3, 1): (1, 1),
                      (2, 2): (2, 0), (2, 1): (2, 1)}  # fmt: skip


def test_the_mean_is_that_of_the_chosen_heads():
    shown = translation(["a", "</s>"], ["b", "</s>"])
    figure = panels(plot_translation(shown, layers=[2], mean=True))
    mean = figure["layer 层 2, mean 平均 of all heads 所有头"]
    np.testing.assert_allclose(values(mean), shown.attention.cross[1].mean(axis=0))
    figure = panels(plot_translation(shown, layers=[1, 2], heads=[1, 4], mean=True))
    assert len(figure) == 2
    mean = figure["layer 层 1, mean 平均 of heads 头 1, 4"]
    np.testing.assert_allclose(values(mean), shown.attention.cross[0, [0, 3]].mean(axis=0))


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"layers": [4]}, r"layers must be .* from 1 to 3; received \[4\]"),
        ({"layers": [0]}, "layers must be .* from 1 to 3"),
        ({"layers": 2}, "layers must be a list .* received 2"),
        ({"heads": [1, 3]}, r"heads must be .* from 1 to 2; received \[1, 3\]"),
        ({"heads": []}, "heads must be a list"),
        ({"heads": [1.0]}, "heads must be a list of whole numbers"),
        ({"kind": "self"}, "kind must be one of cross, encoder, decoder; received 'self'"),
    ],
)
def test_what_is_chosen_must_exist(choice, message):
    with pytest.raises(ValueError, match=message):
        plot_translation(SHOWN, **choice)


def test_a_translation_without_attention_is_refused():
    with pytest.raises(ValueError, match="translate with attention=True"):
        plot_translation(SHOWN._replace(attention=None))


def test_the_future_is_hatched_and_a_weight_of_0_is_not():
    shown = translation(["a", "</s>"], ["b", "c", "</s>"])
    shown.attention.decoder[:] = np.eye(3)
    figure = plot_translation(shown, "decoder", layers=[1], heads=[1])
    (axis,) = panels(figure).values()
    picture = pixels(figure)[::-1]  # (height, width, 4), from below

    def cell(row, column):
        (left, low), (right, high) = axis.transData.transform(
            [(column - 0.4, row + 0.4), (column + 0.4, row - 0.4)]
        ).astype(int)
        return picture[low:high, left:right, :3].reshape(-1, 3)

    assert len(np.unique(cell(2, 0), axis=0)) == 1  # one colour, viridis' darkest
    assert cell(2, 0).max() < 100
    assert len(np.unique(cell(0, 2), axis=0)) > 3  # lines on grey
    assert cell(0, 2).min() > 100
    assert "may not attend 不可关注" in words(figure)
    assert "may not attend" not in words(plot_translation(shown))


def test_special_tokens_have_a_colour_and_the_legend_says_what_they_mean():
    figure = plot_translation(SHOWN, "decoder", heads=[1])
    (axis,) = panels(figure).values()
    colors = {
        label.get_text(): label.get_color()
        for label in [*axis.get_xticklabels(), *axis.get_yticklabels()]
    }
    assert colors == {"<s>": SPECIAL_COLOR, "我": "black", "猫": "black", "</s>": SPECIAL_COLOR}
    assert "<s> start 句首, </s> end 句尾" in words(figure)
    plain = plot_attention(np.ones((1, 1, 1)), ["a"], ["b"], ["t"])
    assert not plain.legends


# Readable ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "tokens", "heads"), [("cross", 1, 2), ("decoder", 4, 4), ("cross", 100, 1)]
)
def test_nothing_lies_on_anything_at_any_length(kind, tokens, heads):
    shown = translation(["▁Wednesday"] * (tokens - 1) + ["</s>"], ["星期三"] * tokens, 1, heads)
    figure = plot_translation(shown, kind)
    assert unreadable(figure) == []
    for axis in panels(figure).values():  # the cells keep a size
        assert np.all(axis.get_window_extent().size / figure.dpi / tokens > 0.23)


def test_odd_tokens_are_shown_in_one_line_and_not_too_long():
    tokens = ["\n", "a\tb", "x" * 60, "字" * 60, "\u3000", "x" * 24]
    figure = plot_attention(uniform_rows(1, 6, 6), tokens, tokens, ["a title that is long"])
    (axis,) = panels(figure).values()
    shown = [r"\n", r"a\tb", "x" * 23 + "…", "字" * 11 + "…", r"\u3000", "x" * 24]
    assert labels(axis) == [shown, shown]
    assert unreadable(figure) == []


def test_a_large_picture_gets_fewer_pixels_an_inch_and_a_larger_one_is_refused(
    tmp_path, monkeypatch
):
    resolutions = []

    def savefig(figure, path, dpi, format):
        path.touch()
        resolutions.append(dpi)

    monkeypatch.setattr(Figure, "savefig", savefig)
    for inches in ((100, 80), (1000, 1), (5, 5)):
        save_figure(Figure(figsize=inches), tmp_path / "a.png")
    assert resolutions == [pytest.approx(100), pytest.approx(65.535), 150]
    with pytest.raises(ValueError, match=r"60 matrices of 100 x 100 tokens .* choose fewer"):
        plot_attention(uniform_rows(60, 100, 100), ["s"] * 100, ["t"] * 100, ["t"] * 60)
    with pytest.raises(ValueError, match="too large a picture"):
        plot_attention(uniform_rows(1, 1, 5000), ["s"] * 5000, ["t"], ["t"])


def test_importing_the_pictures_needs_no_tensorflow():
    code = (
        "import sys, nmt.visualize.heatmap, nmt.visualize.diagrams, nmt.visualize.curves;"
        "sys.exit('tensorflow' in sys.modules or 'matplotlib.pyplot' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], env=os.environ).returncode == 0


# Of a real translation ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tiny_run):
    return load_translator(tiny_run)


def untrained(trained):
    """Return a translator of the same vocabularies whose weights are random."""
    model = build_transformer(trained.searcher.models[0].config, seed=1)
    return Translator([model], trained.source_tokenizer, trained.target_tokenizer)


def test_plot_04_a_batch_is_drawn_without_padding_and_rows_sum_to_1(trained):
    sentences = ["I like cats.", "Where is the big black dog now?", "Tom 𠮷 龘 left.", "I", ""]
    *some, empty = trained.translate(sentences, attention=True)
    assert len({len(each.source_tokens) for each in some}) == 4
    for each in some:
        assert each.source_tokens[-1] == "</s>"
        for kind, weights in each.attention._asdict().items():
            drawn = panels(plot_translation(each, kind, layers=[1, 2], heads=[1, 4])).values()
            expected = weights[:, [0, 3]].reshape(4, *weights.shape[2:])
            np.testing.assert_array_equal([values(axis) for axis in drawn], expected)
            np.testing.assert_allclose(expected.sum(axis=-1), 1, atol=1e-4)
            for axis in drawn:
                assert [len(tokens) for tokens in labels(axis)] == list(expected.shape[1:])
                assert all("<pad>" not in tokens for tokens in labels(axis))
    with pytest.raises(ValueError, match="the sentence is empty"):
        plot_translation(empty)


def test_plot_05_overfitted_random_and_constant(trained, caplog):
    caplog.set_level(logging.WARNING)
    random = untrained(trained)
    sharpness = []
    for translator in (trained, random):
        translated = translator.translate("I like cats.", attention=True)
        drawn = panels(plot_translation(translated)).values()
        np.testing.assert_array_equal([values(a) for a in drawn], translated.attention.cross[-1])
        sharpness.append(np.mean([values(axis).max(axis=1) for axis in drawn]))
    assert sharpness[0] > sharpness[1] + 0.1
    assert not caplog.records
    for weight in random.searcher.models[0].trainable_weights:
        if "query" in weight.path:
            weight.assign(weight * 0)
    plot_translation(random.translate("I like cats.", attention=True))
    assert "every row is uniform in layer 层 2, head 头 1; " in caplog.text


def test_plot_04_and_05_by_the_command(tiny_run, trained, in_process, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(heatmap, "save_figure", lambda figure, _: drawn.append(figure))
    sentence = "Tom 𠮷 likes $5."
    for options in (
        ["--layer", 1, "--head", 2, "--head", 3],
        ["--kind", "decoder", "--grid"],
        ["--kind", "encoder", "--mean"],
    ):
        done = in_process("attention", tiny_run, sentence, *options, "-o", tmp_path / "a.png")
        assert done.exit_code == 0, done.stderr
    attention = trained.translate(sentence, attention=True).attention
    expected = [
        attention.cross[0, 1:3],
        np.concatenate(attention.decoder),
        attention.encoder[1].mean(axis=0, keepdims=True),
    ]
    for figure, weights in zip(drawn, expected, strict=True):
        shown = [values(axis) for axis in panels(figure).values()]
        np.testing.assert_allclose(shown, weights, atol=1e-6)
    done = in_process("attention", tiny_run, " ", "-o", tmp_path / "a.png")
    assert isinstance(done.exception, ConfigError)
    assert "the sentence is empty" in str(done.exception)


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


# Diagrams ----------------------------------------------------------------------------------------


def test_positions_and_their_likeness():
    figure = plot_positions(16, 8)
    matrix, right, _ = figure.axes
    np.testing.assert_allclose(matrix.images[0].get_array()[0], [0, 1] * 4)
    np.testing.assert_allclose(matrix.images[0].get_array()[3, :2], [np.sin(3), np.cos(3)])
    assert matrix.images[0].get_clim() == (-1, 1)
    at_4, at_8, at_12 = (dict(line.get_xydata()) for line in right.lines)
    assert (min(at_8), max(at_8)) == (-8, 7)
    for line in (at_4, at_8, at_12):  # a function of the distance alone
        assert line[0] == pytest.approx(1)
        for distance, value in line.items():
            angles = distance / 10000 ** (np.arange(4) / 4)
            assert value == pytest.approx(np.cos(angles).mean(), abs=1e-5)
    assert unreadable(figure) == []


@pytest.mark.parametrize(("length", "d_model"), [(1, 8), (4, 7), (4, 0)])
def test_positions_refuse_what_has_none(length, d_model):
    with pytest.raises(ValueError, match=r"(length|d_model) must be .*; received (1|7|0)"):
        plot_positions(length, d_model)


def test_masks_are_drawn_as_the_model_makes_them():
    tokens = ["<s>", "我", "猫", "<pad>"]
    padding, future = padding_mask(np.array([[1, 7, 8, 0]])), look_ahead_mask(4, 4)
    figure = plot_masks({"padding 填充": padding, "both 两者": padding & future}, tokens)
    first, second = panels(figure).values()
    forbidden = [axis.images[0].get_array().mask for axis in (first, second)]
    np.testing.assert_array_equal(forbidden[0], [[False, False, False, True]] * 4)
    np.testing.assert_array_equal(
        forbidden[1], ~np.tri(4, dtype=bool) | [False, False, False, True]
    )
    assert first.patch.get_hatch() == FORBIDDEN["hatch"]
    assert labels(first) == [tokens, tokens]
    for said in ("may attend 可以关注", "may not attend 不可关注", "<pad> padding 填充"):
        assert said in words(figure)
    assert unreadable(figure) == []


@pytest.mark.parametrize(
    "mask", [np.ones((3, 3), bool), np.ones((2, 2)), np.ones((2, 1, 1, 2), bool)]
)
def test_masks_must_be_boolean_and_fit_the_tokens(mask):
    with pytest.raises(ValueError, match=r"mask 'm' must be boolean and broadcast to \(1, 1, 2, 2"):
        plot_masks({"m": mask}, ["a", "b"])
    with pytest.raises(ValueError, match="nothing to draw: 0 masks"):
        plot_masks({}, ["a"])


def test_schedules_against_the_step():
    figure = plot_schedule(
        {"paper 论文": WarmupSchedule(64, 100), "$x$": lambda made: made / 1e5}, 400
    )
    (axis,) = figure.axes
    paper, mine = (dict(line.get_xydata()) for line in axis.lines)
    assert max(paper, key=paper.get) == 100  # step = warmup_steps
    assert paper[100] == pytest.approx((64 * 100) ** -0.5)
    assert paper[400] == pytest.approx(paper[100] / 2)
    assert (mine[1], mine[400]) == (0, 399 / 1e5)
    assert len({line.get_linestyle() for line in axis.lines}) == 2
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["paper 论文", "$x$"]
    assert unreadable(figure) == []
    with pytest.raises(ValueError, match="no schedules"):
        plot_schedule({}, 10)
    with pytest.raises(ValueError, match="steps must be at least 2; received 1"):
        plot_schedule({"a": float}, 1)
