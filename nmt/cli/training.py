"""Commands that make a model: prepare, train, and all that belongs to a training."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Annotated, Literal

import typer

from nmt.cli.app import Font, Run, app, fail, import_tensorflow, valid
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
from nmt.run_folder import RunFolder, write_text

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

# What may differ when a run is continued; anything else would make it another run.
LIMITS = (
    *("max_minutes", "max_steps", "max_epochs", "patience", "validation_sentences"),
    *("checkpoint_minutes", "checkpoint_steps", "keep_checkpoints"),
)


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
    import_tensorflow()
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
    save_figure(valid(plot_curves, folder.metrics(), font), output)
    print(f"nmt: wrote {output}", file=sys.stderr)


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
            fail(
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
        fail(error, 1)
    except (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError):
        fail(
            "a worker was lost; start all of them again with the same command, and they go on "
            "from the last checkpoint",
            1,
        )
    except KeyboardInterrupt:
        fail("stopped and saved; the same command goes on from here", 130)


def _import_tensorflow_for_training(config):
    import_tensorflow(for_training=True)
    from nmt.training.strategy import share_cores

    # Before anything computes, the reading of TFDS included.
    share_cores(config.training.batch_parts)
