"""The film of a training: what is in its frames, its page and its GIF."""

import json
import re
import shutil
import time

import numpy as np
import pytest
from browser import CHROMIUM, Browser
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from nmt.config import ConfigError
from nmt.decoding.translation import Attention, Translation
from nmt.run_folder import RunFolder
from nmt.visualize.film import Frame, describe, film_frames, film_page, plot_frame, write_gif
from nmt.visualize.fonts import font_for

HOSTILE = [
    "</script><script>broken = 1</script>",
    "<!-- data -->",
    "$\\frac$",
    "'\"&amp;",
    "\u2028",
]


def made(source, target, seed=0):
    """A translation with some attention, 2 layers and 3 heads."""
    source, target = [*source, "</s>"], [*target, "</s>"]
    random = np.random.default_rng(seed)

    def weights(*shape):
        return random.dirichlet(np.ones(shape[-1]), (2, 3, shape[0])).astype(np.float32)

    s, t = len(source), len(target)
    attention = Attention(weights(s, s), weights(t, t), weights(t, s))
    return Translation("".join(source[:-1]), "".join(target[:-1]), source, target,
                       attention=attention)  # fmt: skip


FRAMES = [
    Frame(100, [made(["▁I", "▁run"], ["我", "我", "我", "我"]), made(HOSTILE, HOSTILE)],
          {"validation_loss": 4.0, "validation_bleu": 1.5}),
    Frame(2000, [made(["▁I", "▁run"], ["我", "跑"], 1), made(HOSTILE, HOSTILE, 1)],
          {"validation_loss": 3.0, "validation_bleu": 9.5}),
    Frame(None, [made(["▁I", "▁run"], ["我", "跑", "。"], 2), made(HOSTILE, HOSTILE, 2)], {}),
]  # fmt: skip


@pytest.fixture(scope="module")
def run(tiny_run, tmp_path_factory):
    """A copy of the tiny run with weights of step 100 that know nothing, and broken ones."""
    import tensorflow as tf

    from nmt.model.transformer import build_transformer
    from nmt.model.weights import save_weights

    folder = RunFolder(tmp_path_factory.mktemp("film") / "run")
    shutil.copytree(tiny_run, folder.path)
    model = build_transformer(folder.model_config(), seed=7)

    def write(step, variables):
        values = [tf.Variable(variable) for variable in variables]
        tf.train.Checkpoint(averaged=values).write(str(folder.checkpoints / f"step-{step}"))

    write(100, model.trainable_variables)
    write(250, model.trainable_variables[:-1])  # of another model
    write(275, [variable * np.nan for variable in model.trainable_variables])
    (folder.checkpoints / "step-200.index").write_bytes(b"no checkpoint")
    with folder.metrics_file.open("a") as file:
        file.write('{"step": 100, "validation_loss": 5.25, "validation_bleu": 2.5}\n')
    for variable in model.trainable_variables:
        variable.assign(-variable)
    save_weights(model, folder.weights_file)
    return folder


def test_frames_are_the_checkpoints_in_order_and_then_the_final_weights(run, tiny_run, caplog):
    from nmt.decoding.translator import load_translator

    seen = []
    frames = film_frames(run, ["I like cats.", "Hello, world!"], seen.append)
    assert [frame.step for frame in frames] == [100, 300, None]
    assert frames == seen
    trained = load_translator(tiny_run).translate(["I like cats.", "Hello, world!"], attention=True)
    texts = [[each.text for each in frame.translations] for frame in frames]
    assert texts[1] == ["我喜欢猫。", "你好，世界！"]
    assert texts[0] != texts[1]
    assert texts[2] not in texts[:2]
    for mine, theirs in zip(frames[1].translations, trained, strict=True):
        np.testing.assert_allclose(mine.attention.cross, theirs.attention.cross, atol=1e-5)
    assert frames[0].metrics == {"validation_loss": 5.25, "validation_bleu": 2.5}
    assert set(frames[1].metrics) == {"validation_loss"}  # BLEU was not measured
    assert frames[2].metrics == {}
    left_out = [record.message for record in caplog.records]
    assert len(left_out) == 3
    assert "step-200: cannot read the checkpoint" in left_out[0]
    assert "step 250: its weights do not fit config.json" in left_out[1]
    assert "step 275: its weights are no numbers" in left_out[2]


def test_final_weights_that_are_a_checkpoint_are_no_frame_of_their_own(tiny_run):
    assert [frame.step for frame in film_frames(tiny_run, ["I like cats."])] == [300]


def test_nothing_to_film(tiny_run, tmp_path):
    with pytest.raises(ConfigError, match="no such run folder"):
        film_frames(tmp_path / "none", ["a"])
    with pytest.raises(ValueError, match="each with text; received \\['a', ' '\\]"):
        film_frames(tiny_run, ["a", " "])
    with pytest.raises(ValueError, match="received \\[\\]"):
        film_frames(tiny_run, [])
    bare = RunFolder(shutil.copytree(tiny_run, tmp_path / "bare"))
    for file in bare.checkpoints.iterdir():
        file.write_bytes(b"")
    with pytest.raises(ConfigError, match="none of the 1 checkpoints can be used"):
        film_frames(bare, ["a"])
    shutil.rmtree(bare.checkpoints)
    with pytest.raises(ConfigError, match=r"bare/checkpoints: there are no checkpoints"):
        film_frames(bare.path, ["a"])


def test_describe():
    assert describe(FRAMES[1]) == "step 步 2,000   BLEU 9.5   loss 损失 3.00"
    assert describe(FRAMES[2]) == "final weights 最终权重"


# The page ----------------------------------------------------------------------------------------


def data_of(page):
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    return json.loads(text)


def test_the_page_holds_the_frames_and_loads_nothing():
    page = film_page(FRAMES, "zh")
    data = data_of(page)
    assert data["language"] == "zh"
    assert [frame["step"] for frame in data["frames"]] == [100, 2000, None]
    assert data["frames"][1]["metrics"] == {"validation_loss": 3.0, "validation_bleu": 9.5}
    shown = data["frames"][1]["translations"][0]
    assert (shown["text"], shown["target_tokens"]) == ("我跑", ["我", "跑", "</s>"])
    np.testing.assert_allclose(shown["cross"], FRAMES[1].translations[0].attention.cross, atol=5e-4)
    assert data["frames"][0]["translations"][1]["source_tokens"] == [*HOSTILE, "</s>"]
    assert "default-src 'none'" in page
    urls = set(re.findall(r"https?://[^\s\"']+", page))
    assert urls <= {"http://www.w3.org/2000/svg"}
    with pytest.raises(ValueError, match="frames is empty"):
        film_page([])
    with pytest.raises(ValueError, match="en or zh; received 'fr'"):
        film_page(FRAMES, "fr")


@pytest.mark.skipif(not CHROMIUM, reason="no Chromium here")
def test_the_page_in_a_browser(tmp_path):
    file = tmp_path / "film.html"
    file.write_text(film_page(FRAMES), encoding="utf-8")
    browser = Browser(tmp_path / "profile")
    try:
        browser.open(file.as_uri(), "frames")
        assert browser.text("#when") == "step 100 · validation BLEU 1.5 · validation loss 4.00"
        assert browser.texts(".text")[0] == "我我我我"
        browser.press("ArrowRight", 39)  # wherever the focus is
        assert "step 2,000" in browser.text("#when")
        assert browser.texts(".text") == ["我跑", "".join(HOSTILE)]
        assert browser.evaluate("typeof broken") == "undefined"
        cells = "[...document.querySelector('.heatmap').querySelectorAll('td.weighted')]"
        weight = f"{cells}.map((cell) => Number(cell.style.getPropertyValue('--w')))"
        cross = FRAMES[1].translations[0].attention.cross
        mean = cross.mean(axis=(0, 1)).flatten()
        np.testing.assert_allclose(browser.evaluate(weight), mean, atol=1e-3)
        browser.evaluate(
            "for (const [id, value] of [['layer', 1], ['head', 2]]) { $(id).value = value;"
            "$(id).dispatchEvent(new Event('change')); }"
        )
        np.testing.assert_allclose(browser.evaluate(weight), cross[1, 2].flatten(), atol=1e-3)
        browser.evaluate("document.getElementById('head').focus()")
        browser.press("ArrowRight", 39)  # which there chooses a head
        assert "step 2,000" in browser.text("#when")
        browser.evaluate("document.getElementById('slider').focus()")
        browser.press("ArrowRight", 39)  # on the slider it moves one, not two
        assert browser.text("#when") == "final weights"
        browser.evaluate("document.getElementById('play').click()")
        assert "step 100" in browser.text("#when")  # at the end it begins again
        browser.until("document.getElementById('when').innerText.includes('2,000')")
        browser.evaluate("document.getElementById('play').click()")
        browser.evaluate("document.getElementById('language').click()")
        assert browser.text("h1") == "训练过程的影片"
        assert browser.text("#when").startswith("第 2,000 步")
        time.sleep(0.1)
        assert not browser.complaints()
    finally:
        browser.close()


# The moving picture ------------------------------------------------------------------------------


@pytest.mark.parametrize("sentence", [0, 1])
def test_the_gif_has_a_picture_for_each_frame_all_of_one_size(tmp_path, sentence, recwarn):
    shortest_first = [FRAMES[1], FRAMES[2], FRAMES[0]]
    write_gif(shortest_first, tmp_path / "film.gif", sentence)
    assert [file.name for file in tmp_path.iterdir()] == ["film.gif"]
    assert not [w for w in recwarn if "Glyph" in str(w.message)]
    with Image.open(tmp_path / "film.gif") as gif:
        assert gif.n_frames == 3
        pictures, durations = [], []
        for number in range(3):
            gif.seek(number)
            durations.append(gif.info["duration"])
            pictures.append(np.asarray(gif.convert("RGB"), int))
    longest = FRAMES[0].translations[sentence]
    full = plot_frame(longest, "", len(longest.target_tokens), font_for(["猫"]))
    assert {picture.shape[0] for picture in pictures} == {int(100 * full.get_figheight())}
    assert durations[-1] > durations[0] == durations[1]
    assert np.abs(pictures[0] - pictures[1]).max() > 50


def drawn(translation, rows):
    figure = plot_frame(translation, "title", rows, font_for(["猫…"]))
    FigureCanvasAgg(figure).draw()
    return figure


def test_a_stammer_is_cut_and_a_short_translation_has_empty_rows():
    long = drawn(made(["▁I"], ["我"] * 9), rows=4)
    (axis,) = long.axes
    assert [label.get_text() for label in axis.get_yticklabels()] == ["我", "我", "我", "…"]
    short = drawn(made(["▁I"], ["我"]), rows=4)
    (axis,) = short.axes
    assert [label.get_text() for label in axis.get_yticklabels()] == ["我", "</s>"]
    assert axis.images[0].get_array().mask[2:].all()
    assert tuple(long.get_size_inches()) == tuple(short.get_size_inches())
    assert not any(text.get_parse_math() for text in short.texts)


def test_a_gif_ends_in_gif_and_a_failed_one_leaves_nothing(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"must end in \.gif"):
        write_gif(FRAMES, tmp_path / "film.png")
    with pytest.raises(ConfigError, match="no such folder"):
        write_gif(FRAMES, tmp_path / "none" / "film.gif")
    save = Image.Image.save

    def fail(image, file, format=None, **rest):
        save(image, file, format, **rest)
        if format == "GIF":
            raise ZeroDivisionError

    monkeypatch.setattr(Image.Image, "save", fail)
    with pytest.raises(ZeroDivisionError):
        write_gif(FRAMES, tmp_path / "film.gif")
    assert not list(tmp_path.iterdir())


def test_the_command_writes_page_and_gif(in_process, run, tmp_path, caplog):
    page, gif = tmp_path / "film.html", tmp_path / "film.gif"
    done = in_process("film", run.path, "I like cats.", "-o", page, "--gif", gif)
    assert done.exit_code == 0, done.output
    assert done.stdout == ""
    assert "nmt: step 步 300" in done.stderr
    assert "step-200: cannot read the checkpoint" in caplog.text
    assert len(data_of(page.read_text(encoding="utf-8"))["frames"]) == 3
    with Image.open(gif) as opened:
        assert opened.n_frames == 3
