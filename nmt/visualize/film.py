"""The film of a training: the same sentences, translated at each of its checkpoints."""

import hashlib
import io
import logging
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from PIL import Image

from nmt.config import ConfigError
from nmt.decoding.translation import Translation
from nmt.run_folder import RunFolder, check_writable, replacing
from nmt.text.normalize import clean
from nmt.visualize.explorer import rounded, whole_page
from nmt.visualize.fonts import font_for
from nmt.visualize.panels import SPECIAL_COLOR, SPECIAL_TOKENS, shown

log = logging.getLogger(__name__)

# What is translated if nothing is given, by the language of the source.
SENTENCES = {
    "en": ("I like cats.", "Where is the station?", "She has lived in Beijing for ten years."),
    "zh": ("我喜欢猫。", "车站在哪里？", "她在北京住了十年。"),
}

# Young models stammer; the rows of a picture after these are cut.
GIF_ROWS = 20
FRAME_SECONDS, LAST_SECONDS = 0.8, 3.0
DPI, CELL = 100, 0.36  # dots an inch, inches


class Frame(NamedTuple):
    """What the weights of one step made of the sentences."""

    step: int | None  # updates made; None: the weights that the run translates with
    translations: list[Translation]  # of each sentence, with attention
    metrics: dict[str, float]  # validation_loss, validation_bleu: those that were measured then


def film_frames(
    run: str | Path | RunFolder,
    sentences: Sequence[str],
    on_frame: Callable[[Frame], None] = lambda frame: None,
) -> list[Frame]:
    """Translate sentences with the weights of every checkpoint of a run, by greedy search.

    Args:
      run: its folder. `training.keep_checkpoints` says how many checkpoints stay there.
      sentences: what to translate.
      on_frame: called with each frame as soon as it is there.

    Returns:
      A frame for each checkpoint that can be used, by step; last one for model.weights.h5, if it
      holds other weights than all of them. Checkpoints that cannot be used are named in a warning.

    Raises:
      ConfigError: what is wrong with the folder, or that it has no checkpoints.
      ValueError: no sentences, or one that is empty or too long.
    """
    from nmt.decoding.translator import Translator
    from nmt.model.transformer import build_transformer
    from nmt.model.weights import load_weights
    from nmt.training.checkpoints import mean_weights, steps_in

    run = run if isinstance(run, RunFolder) else RunFolder(run)
    run.require(run.config_file)
    steps = sorted(steps_in(run.checkpoints))
    if not steps:
        raise ConfigError(
            f"{run.checkpoints}: there are no checkpoints to make a film of; they come with a "
            f"training, and training.keep_checkpoints says how many stay"
        )
    if not sentences or not all(map(clean, sentences)):
        raise ValueError(f"there must be sentences, each with text; received {list(sentences)}")
    measured = {each["step"]: each for each in run.metrics() if "validation_loss" in each}
    model = build_transformer(run.model_config())
    translator = Translator([model], *run.tokenizers())
    variables = model.trainable_variables
    frames: list[Frame] = []
    seen = set()

    def add(step):
        translator.searcher.refresh()
        translations = translator.translate(list(sentences), attention=True)
        metrics = {
            name: value
            for name in ("validation_loss", "validation_bleu")
            if (value := measured.get(step, {}).get(name)) is not None
        }
        frames.append(Frame(step, translations, metrics))
        seen.add(_digest(variables))
        on_frame(frames[-1])

    for step in steps:
        try:
            weights = mean_weights(run.checkpoints, [step])
        except ConfigError as error:
            log.warning("left out: %s", error)
            continue
        if [each.shape for each in weights] != [tuple(each.shape) for each in variables]:
            log.warning("left out: step %s: its weights do not fit config.json", step)
            continue
        if not all(np.isfinite(each).all() for each in weights):
            log.warning("left out: step %s: its weights are no numbers (NaN)", step)
            continue
        for variable, value in zip(variables, weights, strict=True):
            variable.assign(value)
        add(step)
    if not frames:
        raise ConfigError(f"{run.checkpoints}: none of the {len(steps)} checkpoints can be used")
    if run.weights_file.is_file():
        load_weights(model, run.weights_file)
        if _digest(variables) not in seen:
            add(None)
    return frames


def film_page(frames: Sequence[Frame], language: str = "en") -> str:
    """Return an HTML page with a slider over the steps; it needs nothing but itself.

    Args:
      frames: of `film_frames`, at least one.
      language: of the page's words, "en" or "zh"; the page has a switch.

    Raises:
      ValueError: no frames, or an unknown language.
    """
    if not frames:
        raise ValueError("there is nothing to show: frames is empty")
    return whole_page("film.html", language, {"frames": [_frame_data(frame) for frame in frames]})


def write_gif(
    frames: Sequence[Frame],
    path: str | Path,
    sentence: int = 0,
    font: str | Path | None = None,
) -> None:
    """Write the cross-attention of a sentence, the mean of all heads, as a moving picture.

    Args:
      frames: of `film_frames`, at least one.
      path: ends in .gif.
      sentence: which of the sentences.
      font: see `font_for`.

    Raises:
      ConfigError: `path` cannot be a GIF, or `font` is no font.
    """
    path = check_gif_path(path)
    # Chinese fonts lack the sign for bytes that make no character, which young models write.
    translations = [
        each._replace(text=each.text.replace("\ufffd", "□"))
        for each in (frame.translations[sentence] for frame in frames)
    ]
    rows = min(max(len(each.target_tokens) for each in translations), GIF_ROWS)
    titles = [describe(frame) for frame in frames]
    tokens = [
        token for each in translations for token in (*each.source_tokens, *each.target_tokens)
    ]
    texts = [*map(shown, tokens), *titles, *(each.text for each in translations), "…"]
    properties = font_for([*texts, translations[0].source, *SPECIAL_TOKENS], font)
    pictures = [
        _picture(plot_frame(translation, title, rows, properties))
        for translation, title in zip(translations, titles, strict=True)
    ]
    seconds = [FRAME_SECONDS] * (len(pictures) - 1) + [LAST_SECONDS]
    with replacing(path) as temporary:
        pictures[0].save(
            temporary,
            format="GIF",
            save_all=True,
            append_images=pictures[1:],
            duration=[round(1000 * each) for each in seconds],
            loop=0,
        )


def plot_frame(
    translation: Translation, title: str, rows: int, properties: FontProperties
) -> Figure:
    """Draw the mean cross-attention of a translation; source and `rows` alone make the size.

    Args:
      translation: with attention.
      title: the line above the translation.
      rows: room for so many target tokens; of more the last is an ellipsis.
      properties: a font that has all characters.
    """
    columns = [shown(token) for token in translation.source_tokens]
    targets = list(translation.target_tokens)
    weights = translation.attention.cross.mean(axis=(0, 1))  # type: ignore[union-attr]
    drawn = np.full((rows, len(columns)), np.nan)
    count = min(rows, len(targets))
    drawn[:count] = weights[:count]
    if len(targets) > rows:
        targets[rows - 1] = "…"
        drawn[rows - 1] = np.nan
    # Inches, with margins for the labels; the columns are the same in every frame.
    left, top, bottom = 1.6, 1.5 + 0.13 * max(map(len, columns)), 0.3
    across, down = CELL * len(columns), CELL * rows
    width, height = max(5.0, left + across + 0.3), top + down + bottom
    figure = Figure(figsize=(width, height), dpi=DPI)
    axis = figure.add_axes((left / width, bottom / height, across / width, down / height))
    axis.imshow(np.ma.masked_invalid(drawn), vmin=0, vmax=1, cmap="viridis", aspect="auto")
    axis.xaxis.tick_top()
    axis.set_xticks(range(len(columns)), labels=columns, rotation=90)
    axis.set_yticks(range(count), labels=[_fitting(shown(token), 9) for token in targets[:count]])
    axis.spines[:].set_visible(False)
    labels = [*axis.get_xticklabels(), *axis.get_yticklabels()]
    tokens = [*translation.source_tokens, *targets[:count]]
    for label, token in zip(labels, tokens, strict=True):
        label.set(fontproperties=properties, fontsize=11, parse_math=False)
        label.set_color(SPECIAL_COLOR if token in SPECIAL_TOKENS else "black")
    for y, text, size in ((0.3, title, 11), (0.65, translation.source, 12),
                          (1.0, translation.text, 13)):  # fmt: skip
        figure.text(
            *(0.1 / width, 1 - y / height, _fitting(text, (width - 0.2) * 72 / size)),
            fontproperties=properties,
            fontsize=size,
            parse_math=False,
        )
    return figure


def describe(frame: Frame) -> str:
    """Return step and measures of a frame as a line in both languages."""
    name = "final weights 最终权重" if frame.step is None else f"step 步 {frame.step:,}"
    measures = [
        f"{label} {value:.{digits}f}"
        for key, label, digits in (
            ("validation_bleu", "BLEU", 1),
            ("validation_loss", "loss 损失", 2),
        )
        if (value := frame.metrics.get(key)) is not None
    ]
    return "   ".join([name, *measures])


def check_gif_path(path: str | Path) -> Path:
    """Return `path` if a GIF can be written there; ConfigError otherwise."""
    path = Path(path)
    if path.suffix.lower() != ".gif":
        raise ConfigError(f"{path}: a moving picture's name must end in .gif")
    check_writable(path)
    return path


def _digest(variables):
    digest = hashlib.sha256()
    for variable in variables:
        digest.update(np.ascontiguousarray(variable.numpy()).tobytes())
    return digest.digest()


def _frame_data(frame):
    return {
        "step": frame.step,
        "metrics": {name: round(value, 3) for name, value in frame.metrics.items()
                    if math.isfinite(value)},
        "translations": [
            {
                "source": each.source,
                "text": each.text,
                "source_tokens": each.source_tokens,
                "target_tokens": each.target_tokens,
                "truncated": each.truncated,
                "cross": rounded(each.attention.cross),
            }
            for each in frame.translations
        ],
    }  # fmt: skip


def _fitting(text, ems):
    """Return the text, cut to a width; a Han character is about one em, others half of one."""
    used = 0.0
    for place, character in enumerate(text):
        used += 1.0 if ord(character) > 0x2E80 else 0.55
        if used > ems:
            return text[: max(0, place - 1)] + "…"
    return text


def _picture(figure):
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    # All frames get their own colours; without dithering, flat areas stay flat and the file small.
    picture = Image.open(buffer).convert("RGB")
    return picture.quantize(256, dither=Image.Dither.NONE)
