"""The command line. Wiring only: options are checked here, the work is done elsewhere.

Results go to standard output; progress, logs and errors to standard error. TensorFlow is imported
inside the commands, after arguments and paths have been checked.
"""

import json
import logging
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Literal

import typer

from nmt import __version__
from nmt.config import (
    PRESETS,
    Config,
    ConfigError,
    differences,
    override,
    preset,
    read_json,
    to_json,
)
from nmt.run_folder import RunFolder, replacing, write_text

app = typer.Typer(
    help="Train a Transformer that translates English to Chinese, and look inside it.",
    epilog="Start with: nmt quickstart",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)

Run = Annotated[
    Path, typer.Argument(metavar="RUN", help="Run folder, such as checkpoints/quickstart.")
]
Data = Annotated[
    str | None,
    typer.Option(
        "--data",
        help="tatoeba, hsk, a TSV file (source, tab, target), or tfds:NAME such as "
        "tfds:wmt19_translate/zh-en. Default: tatoeba.",
    ),
]
Preset = Annotated[
    str | None, typer.Option("--preset", help=f"One of {', '.join(PRESETS)}. Default: quickstart.")
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="JSON file with what differs from the preset.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="For example model.dropout_rate=0.2."),
]
Script = Annotated[
    str | None,
    typer.Option("--target-script", help="keep, simplified or traditional. Default: simplified."),
]
Minutes = Annotated[
    float | None, typer.Option("--minutes", help="Train for so many minutes at most.")
]
Strategy = Annotated[
    Literal["auto", "one", "mirrored", "multi-worker"],
    typer.Option(
        "--strategy",
        help="one: one device. mirrored: all GPUs of this machine. multi-worker: the processes "
        "that TF_CONFIG lists. auto: whichever fits.",
    ),
]
WorkerTimeout = Annotated[
    float,
    typer.Option("--worker-timeout", help="Seconds to wait for workers that are missing."),
]
Deterministic = Annotated[
    bool,
    typer.Option("--deterministic", help="The same bits every time, somewhat slower."),
]
Font = Annotated[
    Path | None, typer.Option("--font", help="Font file for the labels; found by itself otherwise.")
]

# What may differ when a run is continued; anything else would make it another run.
LIMITS = (
    *("max_minutes", "max_steps", "max_epochs", "patience", "validation_sentences"),
    *("checkpoint_minutes", "checkpoint_steps", "keep_checkpoints"),
)


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
):
    if version:
        print(f"nmt {__version__}")
        raise typer.Exit()


@app.command(epilog="Example: nmt quickstart --data hsk --minutes 1")
def quickstart(
    data: Data = None,
    target_script: Script = None,
    minutes: Minutes = None,
    run: Annotated[
        Path | None, typer.Option("--run", help="Default: checkpoints/quickstart, or -hsk ...")
    ] = None,
    font: Font = None,
):
    """Prepare, train, evaluate and look at a small model: the whole road in one command."""
    config = _config(None, data, "quickstart", None, None, target_script, minutes)
    name = "quickstart" if data in (None, "tatoeba") else f"quickstart-{Path(data).stem}"
    folder = RunFolder(run or Path("checkpoints") / name)
    _check_run(folder, config)
    _import_tensorflow_for_training(config)
    _prepare(folder, config)
    _train(folder)
    from nmt.quickstart import report

    print("nmt: translating the held-out test sentences", file=sys.stderr)
    print(report(folder, font))


@app.command(epilog="Example: nmt prepare checkpoints/mine --data pairs.tsv --preset small")
def prepare(
    run: Run,
    data: Data = None,
    preset: Preset = None,
    config: ConfigFile = None,
    set: Set = None,
    target_script: Script = None,
):
    """Make a run folder: clean and split the pairs, train the tokenizers, write token ids."""
    folder = RunFolder(run)
    wanted = _config(folder, data, preset, config, set, target_script, None)
    _check_run(folder, wanted)
    _prepare(folder, wanted)
    print(f"prepared {folder.path}")


@app.command(epilog="Example: nmt train checkpoints/mine --preset small --minutes 60")
def train(
    run: Run,
    data: Data = None,
    preset: Preset = None,
    config: ConfigFile = None,
    set: Set = None,
    target_script: Script = None,
    minutes: Minutes = None,
    deterministic: Deterministic = False,
    strategy: Strategy = "auto",
    worker_timeout: WorkerTimeout = 300.0,
):
    """Train a run, preparing it first if need be; the same command goes on where it stopped."""
    folder = RunFolder(run)
    if deterministic:
        set = [*(set or []), "training.deterministic=true"]
    wanted = _config(folder, data, preset, config, set, target_script, minutes)
    _check_run(folder, wanted)
    together = "TF_CONFIG" in os.environ
    if not together:
        _prepare(folder, wanted)
    # Several workers have to be set up before TensorFlow does anything, such as reading a corpus.
    workers = _start_workers(wanted, strategy, worker_timeout)
    if together and workers.is_chief:
        _prepare(folder, wanted)
    elif together:
        _wait_until_prepared(folder, worker_timeout)
    validation = _train(folder, workers)
    if validation is None:
        return  # the chief prints the result
    bleu = validation.validation_bleu
    print(
        f"step {validation.step:,}: validation loss {validation.validation_loss:.3f} nats a token, "
        f"token accuracy {validation.validation_accuracy:.1%}"
        + ("" if bleu is None else f", BLEU {bleu:.2f} of greedy translation")
    )


@app.command(epilog="Example: nmt average checkpoints/mine --last 3")
def average(
    run: Run,
    last: Annotated[
        int, typer.Option("--last", min=1, help="How many of the newest checkpoints.")
    ] = 3,
):
    """Translate with the mean of the last checkpoints' weights from now on."""
    folder = RunFolder(run)
    folder.require(folder.config_file, folder.weights_file)
    _import_tensorflow()
    from nmt.training.trainer import average_checkpoints

    steps, before, after = average_checkpoints(folder, last)
    print(
        f"{folder.weights_file}: mean of steps {', '.join(f'{step:,}' for step in steps)}; "
        f"validation loss {before.validation_loss:.3f} before, {after.validation_loss:.3f} now"
    )


@app.command(epilog="Example: nmt curves checkpoints/mine -o curves.png")
def curves(
    run: Run,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Picture to write: .png, .svg or .pdf.")
    ] = Path("curves.png"),
    font: Font = None,
):
    """Draw how loss, accuracy, BLEU and learning rate went while a run was trained."""
    folder = RunFolder(run)
    folder.require(folder.config_file, folder.metrics_file)
    from nmt.visualize.curves import plot_curves
    from nmt.visualize.fonts import font_for
    from nmt.visualize.heatmap import check_picture_path, save_figure

    check_picture_path(output)
    font_for([], font)
    save_figure(_valid(plot_curves, folder.metrics(), font), output)
    print(f"nmt: wrote {output}", file=sys.stderr)


@app.command(epilog="Example: nmt evaluate checkpoints/quickstart")
def evaluate(
    run: Annotated[
        Path | None, typer.Argument(metavar="[RUN]", help="Run folder whose test set to translate.")
    ] = None,
    split: Annotated[str, typer.Option("--split", help="test or validation.")] = "test",
    pairs: Annotated[
        Path | None, typer.Option("--pairs", help="TSV file to translate instead of the split.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="Also write the translations to this file.")
    ] = None,
    hypotheses: Annotated[
        Path | None, typer.Option("--hypotheses", help="Score this file instead of a run.")
    ] = None,
    reference: Annotated[
        list[Path] | None,
        typer.Option("--reference", help="Reference file for --hypotheses; may be repeated."),
    ] = None,
    language: Annotated[
        str, typer.Option("--language", help="Target language of --hypotheses.")
    ] = "zh",
):
    """Translate held-out sentences and print BLEU and chrF with their signatures."""
    from nmt.data.corpora import read_lines, read_tsv

    if hypotheses is not None:
        if run is not None or not reference:
            raise ConfigError("--hypotheses needs at least one --reference, and no run folder")
        _print_scores(read_lines(hypotheses), [read_lines(file) for file in reference], language)
        return
    if run is None:
        raise ConfigError("give a run folder, or --hypotheses with --reference")
    if split not in ("test", "validation"):
        raise ConfigError(f"--split must be test or validation; received {split!r}")
    _check_output(output)
    folder = RunFolder(run)
    file = pairs or (folder.test_file if split == "test" else folder.validation_file)
    folder.require(folder.config_file, folder.weights_file)
    held_out = read_tsv(file)
    data = folder.config().data
    if pairs is not None:
        from nmt.data.cleaning import clean_pairs

        held_out, dropped = clean_pairs(held_out, data.target_script)
        if dropped:
            from nmt.data.corpora import format_dropped

            print(f"nmt: {pairs}: {format_dropped(dropped)}", file=sys.stderr)
    if not held_out:
        raise ConfigError(f"{file}: no sentence pairs to evaluate")
    translations = _load(folder).translate([pair.source for pair in held_out])
    texts = [translation.text for translation in translations]
    if output is not None:
        write_text(output, "".join(text + "\n" for text in texts))
    _print_scores(texts, [[pair.target for pair in held_out]], data.target_language)


@app.command(epilog='Example: nmt translate checkpoints/quickstart "Good morning."')
def translate(
    run: Run,
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="[TEXT]...", help="Sentences; none: read stdin.")
    ] = None,
    input: Annotated[
        Path | None, typer.Option("--input", help="Translate the lines of this file.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="Write here instead of to stdout.")
    ] = None,
):
    """Translate sentences: one line out for each line in."""
    if texts and input:
        raise ConfigError("give either sentences or --input, not both")
    folder = RunFolder(run)
    folder.require(folder.config_file, folder.weights_file)
    _check_output(output)
    lines: Iterable[str]
    if texts:
        lines = texts
    elif input:
        from nmt.data.corpora import read_lines

        lines = read_lines(input)
    else:
        if sys.stdin.isatty():
            print(
                "nmt: reading sentences from the keyboard, one a line; end with Ctrl-D",
                file=sys.stderr,
            )
        lines = _stdin_lines()
    translator = _load(folder)
    translated = _translate_lines(translator, lines)
    if output is None:
        for text in translated:
            print(text, flush=sys.stdout.isatty())
        return
    with replacing(output) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as f:
        f.writelines(text + "\n" for text in translated)


@app.command(epilog='Example: nmt attention checkpoints/quickstart "I like cats." -o cats.png')
def attention(
    run: Run,
    sentence: Annotated[str, typer.Argument(help="The sentence to translate and look into.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Picture to write: .png, .svg or .pdf.")
    ] = Path("attention.png"),
    layer: Annotated[
        int | None, typer.Option("--layer", help="Decoder layer, from 1. Default: the last.")
    ] = None,
    head: Annotated[
        int | None, typer.Option("--head", help="Attention head, from 1. Default: all.")
    ] = None,
    font: Font = None,
):
    """Translate a sentence and draw which source words each target word looked at."""
    folder = RunFolder(run)
    folder.require(folder.config_file, folder.weights_file)
    model = folder.config().model
    for name, value, largest in (
        ("--layer", layer, model.num_layers),
        ("--head", head, model.num_heads),
    ):
        if value is not None and not 1 <= value <= largest:
            raise ConfigError(f"{name} must be from 1 to {largest}; received {value}")
    from nmt.text.normalize import clean

    if not _valid(clean, sentence):
        raise ConfigError("there is nothing to draw: the sentence is empty")
    from nmt.visualize.fonts import font_for
    from nmt.visualize.heatmap import check_picture_path, plot_translation, save_figure

    check_picture_path(output)
    font_for([], font)
    translation = _valid(_load(folder).translate, sentence, attention=True)
    save_figure(plot_translation(translation, layer, head, font), output)
    print(translation.text)
    print(f"nmt: wrote {output}", file=sys.stderr)


@app.command(epilog="Example: nmt info checkpoints/quickstart")
def info(run: Run):
    """Show what is in a run folder."""
    folder = RunFolder(run)
    folder.require(folder.config_file)
    from nmt.info import describe

    print(describe(folder))


def main():
    """Run the command line; a user's mistake is one line and exit code 2, never a traceback."""
    # Whatever the locale says: Chinese must come out, and come out right.
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    log = logging.getLogger("nmt")
    log.addHandler(handler := logging.StreamHandler(sys.stderr))
    handler.setFormatter(logging.Formatter("nmt: %(message)s"))
    log.setLevel(logging.INFO)
    log.propagate = False  # the root logger's handlers are other libraries'
    # What TFDS warns of on the way is no news to a user; its errors are exceptions.
    for name in ("absl", "urllib3"):
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        app(prog_name="nmt")
    except ConfigError as error:
        _fail(error, 2)
    except BrokenPipeError:
        # Whoever reads the output, `head` for one, has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        _fail(error, 1)
    except KeyboardInterrupt:
        _fail("interrupted", 130)


def _fail(message, code):
    print(f"nmt: {message}", file=sys.stderr)
    sys.exit(code)


def _config(folder, data, preset_name, config_file, assignments, target_script, minutes) -> Config:
    """Return what is asked for: the run's own or a preset's settings, then file, then options."""
    if folder is not None and folder.is_prepared and preset_name is None:
        config = folder.config()
    else:
        config = preset(preset_name or "quickstart")
    if config_file is not None:
        config = read_json(config_file, config)
    extra = list(assignments or [])
    for key, value in (
        ("data.corpus", data),
        ("data.target_script", target_script),
        ("training.max_minutes", minutes),
    ):
        if value is not None:
            extra.append(f"{key}={json.dumps(value)}")
    return override(config, extra)


def _check_run(folder, config):
    """Refuse a run folder or a corpus that will not do, before TensorFlow is imported.

    A run that exists may get new limits; anything else would make it another run.
    """
    from nmt.data.corpora import check_corpus

    if folder.path.exists() and not folder.path.is_dir():
        raise ConfigError(f"{folder.path}: not a folder")
    if not folder.is_prepared:
        check_corpus(config.data.corpus)
        return
    changed = differences(folder.config(), config, ignoring=LIMITS)
    if changed:
        raise ConfigError(
            f"{folder.path} was prepared with other settings: {'; '.join(changed)}. "
            f"Choose another run folder"
        )


def _prepare(folder, config):
    """Prepare a run, or take the one that is there, with new limits."""
    if folder.is_prepared:
        if folder.config() != config:
            write_text(folder.config_file, to_json(config))
        print(f"nmt: using what is prepared in {folder.path}", file=sys.stderr)
        return
    from nmt.data.prepared import prepare as prepare_run
    from nmt.info import provenance

    if not Path(config.data.corpus).is_file():
        _import_tensorflow_for_training(config)
    print(f"nmt: preparing {config.data.corpus} in {folder.path}", file=sys.stderr)
    prepare_run(folder, config, provenance(" ".join(["nmt", *sys.argv[1:]])))


def _start_workers(config, strategy, timeout):
    _import_tensorflow_for_training(config)
    from nmt.training.workers import start_workers

    return start_workers(strategy, timeout)


def _wait_until_prepared(folder, timeout):
    """Wait for the chief, who prepares the run."""
    started = time.monotonic()
    while not folder.is_prepared:
        if time.monotonic() - started > timeout:
            _fail(
                f"{folder.path}: not prepared by worker 0 within {timeout:.0f} s; do all workers "
                f"share this folder? --worker-timeout waits longer",
                1,
            )
        time.sleep(0.5)


def _train(folder, workers=None):
    import tensorflow as tf

    from nmt.progress import training_progress
    from nmt.training.trainer import TrainingError, train

    try:
        with training_progress() as show:
            return train(folder, show, workers)
    except TrainingError as error:
        _fail(error, 1)
    except (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError):
        _fail(
            "a worker was lost; start all of them again with the same command, and they go on "
            "from the last checkpoint",
            1,
        )
    except KeyboardInterrupt:
        _fail("stopped and saved; the same command goes on from here", 130)


def _import_tensorflow_for_training(config):
    _import_tensorflow()
    from nmt.training.strategy import share_cores

    # Before anything computes, the reading of TFDS included.
    share_cores(config.training.batch_parts)


def _import_tensorflow():
    """Import TensorFlow without the notices of its C++ side; errors are exceptions all the same."""
    if "TF_CPP_MIN_LOG_LEVEL" in os.environ:
        return  # someone wants to see them
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    # The first few are printed before that variable is looked at.
    with open(os.devnull, "wb") as nowhere:
        standard_error = os.dup(2)
        os.dup2(nowhere.fileno(), 2)
        try:
            import tensorflow  # noqa: F401
        finally:
            os.dup2(standard_error, 2)
            os.close(standard_error)


def _load(folder):
    _import_tensorflow()
    from nmt.decoding.translator import load_translator

    return load_translator(folder.path)


def _valid(function, *args, **kwargs):
    """Call `function`; what it says about the user's text becomes the message."""
    try:
        return function(*args, **kwargs)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _check_output(output):
    if output is not None and not output.parent.is_dir():
        raise ConfigError(f"{output.parent}: no such folder")


def _stdin_lines() -> Iterator[str]:
    """Yield lines of standard input as UTF-8, whatever the locale."""
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise ConfigError(f"standard input, line {number}: not UTF-8: {error}") from None


def _translate_lines(translator, lines: Iterable[str], chunk: int = 512) -> Iterator[str]:
    """Yield a translation for each line, reading `chunk` lines ahead at most."""
    waiting = []
    # A person who types wants an answer to every line.
    chunk = 1 if sys.stdin.isatty() and not isinstance(lines, list) else chunk
    for line in lines:
        waiting.append(line)
        if len(waiting) == chunk:
            yield from (t.text for t in _valid(translator.translate, waiting))
            waiting = []
    if waiting:
        yield from (t.text for t in _valid(translator.translate, waiting))


def _print_scores(hypotheses, references, language):
    from nmt.evaluation.scores import corpus_scores, format_scores

    print(format_scores(_valid(corpus_scores, hypotheses, references, language)))
