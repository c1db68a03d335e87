"""The command line, end to end and in processes of its own, as a user meets it."""

import io
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import pytest
from rich.console import Console
from rich.text import Text
from toy_pairs import PAIRS

from nmt import progress
from nmt.cli import looking
from nmt.config import ConfigError
from nmt.training.trainer import Report

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def untrained_run(tmp_path_factory, pairs_file, nmt_command):
    path = tmp_path_factory.mktemp("runs") / "untrained"
    done = nmt_command("prepare", path, "--data", pairs_file)
    assert done.returncode == 0, done.stderr
    return path


def one_line_error(done, *words, code=2):
    """Check that a command failed with one clear line, nothing on stdout and no traceback.

    A line that says what is being prepared may stand before it.
    """
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if not line.startswith("nmt: preparing ")]
    assert len(lines) == 1, done.stderr
    for word in words:
        assert word in lines[0]


def test_a_trained_run_is_complete(tiny_run):
    names = {file.name for file in tiny_run.iterdir()}
    assert names == {
        "config.json", "source.model", "target.model", "train.npz", "validation.tsv", "test.tsv",
        "manifest.json", "checkpoints", "metrics.jsonl", "tensorboard", "model.weights.h5",
    }  # fmt: skip
    steps = [json.loads(line)["step"] for line in (tiny_run / "metrics.jsonl").open()]
    assert steps == sorted(steps)
    assert steps[-1] == 300


def test_translate_arguments_knows_what_it_was_trained_on(tiny_run, nmt_command):
    trained = (tiny_run / "validation.tsv").read_text() + (tiny_run / "test.tsv").read_text()
    pairs = [pair for pair in PAIRS if pair[0] not in trained]
    done = nmt_command("translate", tiny_run, *[source for source, _ in pairs])
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [target for _, target in pairs]
    assert done.stderr == ""


@pytest.mark.parametrize(("chosen", "expected"), [(None, "1"), ("0", "0")])
def test_tensorflow_is_imported_for_training_without_plots(chosen, expected, user_environment):
    program = """if True:
        import os, sys
        from nmt.cli.app import import_tensorflow
        import_tensorflow(for_training=True)
        assert "tensorflow" in sys.modules
        assert "matplotlib" not in sys.modules
        import matplotlib.pyplot
        print(os.environ.get("TF_ENABLE_ONEDNN_OPTS"))
    """
    environment = {**user_environment} | ({"TF_ENABLE_ONEDNN_OPTS": chosen} if chosen else {})
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, encoding="utf-8", timeout=120, env=environment,
    )  # fmt: skip
    assert done.stderr == ""
    on_intel = platform.machine() in ("x86_64", "AMD64")
    assert done.stdout == f"{expected if on_intel else chosen}\n"


def test_cli_01_utf_8_whatever_the_locale(tiny_run, tmp_path):
    environment = {
        "PATH": os.environ["PATH"], "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0",
    }  # fmt: skip
    lines = ["I like cats.", "", "Café 中文 é", "   ", "See you tomorrow."]
    done = subprocess.run(
        [sys.executable, "-m", "nmt", "translate", str(tiny_run)],
        input=("\ufeff" + "\n".join(lines) + "\n").encode(),
        capture_output=True, env=environment, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    translated = done.stdout.decode("utf-8").split("\n")
    assert len(translated) == len(lines) + 1  # one line for each, and the end of the last
    assert translated[0] == "我喜欢猫。"
    assert translated[1] == translated[3] == ""


def test_cli_01_a_closed_pipe_is_quiet(tiny_run, tmp_path, user_environment):
    many = tmp_path / "many.txt"
    many.write_text("I like cats.\n" * 30_000, encoding="utf-8")
    command = f"{sys.executable} -m nmt translate {tiny_run} --input {many} | head -1"
    done = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        env=user_environment,
    )
    assert done.stdout == "我喜欢猫。\n"
    assert done.stderr == ""


def test_translate_a_file_into_a_file(tiny_run, in_process, tmp_path):
    (tmp_path / "in.txt").write_text("I like cats.\r\n\r\nThank you very much.", encoding="utf-8")
    done = in_process(
        "translate", tiny_run, "--input", tmp_path / "in.txt", "--output", tmp_path / "out.txt"
    )
    assert done.exit_code == 0, done.output
    assert done.stdout == ""
    assert (tmp_path / "out.txt").read_text(encoding="utf-8").count("\n") == 3
    assert sorted(file.name for file in tmp_path.iterdir()) == ["in.txt", "out.txt"]


def test_evaluate_prints_three_scores_with_signatures(tiny_run, in_process, tmp_path, pairs_file):
    done = in_process(
        "evaluate", tiny_run, "--pairs", pairs_file, "--output", tmp_path / "hypotheses.txt"
    )
    assert done.exit_code == 0, done.output
    names = [line.split()[0] for line in done.stdout.splitlines()]
    assert names == ["BLEU", "chrF", "NLTK"]
    assert "tok:zh" in done.stdout
    assert float(done.stdout.split()[1]) > 60
    assert len((tmp_path / "hypotheses.txt").read_text(encoding="utf-8").splitlines()) == 20


def test_data_09_evaluate_files_ignores_a_byte_order_mark(nmt_command, tmp_path):
    (tmp_path / "hyp.txt").write_text("我喜欢猫。\n今天很冷。\n", encoding="utf-8")
    (tmp_path / "ref.txt").write_text("我喜欢猫。\n今天很冷。\n", encoding="utf-8-sig")
    done = nmt_command(
        "evaluate", "--hypotheses", tmp_path / "hyp.txt", "--reference", tmp_path / "ref.txt"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].split()[:2] == ["BLEU", "100.00"]


def test_eval_09_files_of_different_length_are_refused(nmt_command, tmp_path):
    (tmp_path / "hyp.txt").write_text("a b c\nd e f\n", encoding="utf-8")
    (tmp_path / "ref.txt").write_text("a b c\n\ng h i\n", encoding="utf-8")
    done = nmt_command(
        "evaluate", "--hypotheses", tmp_path / "hyp.txt", "--reference", tmp_path / "ref.txt"
    )
    one_line_error(done, "3", "2")


def test_attention_writes_a_picture(tiny_run, nmt_command, tmp_path):
    done = nmt_command("attention", tiny_run, "I like cats.", "-o", tmp_path / "cats.svg")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "我喜欢猫。\n"
    assert "<svg" in (tmp_path / "cats.svg").read_text(encoding="utf-8")


def test_what_cannot_be_written_shows_before_the_work(tiny_run, in_process, tmp_path, monkeypatch):
    monkeypatch.setattr(looking, "load", lambda *_: pytest.fail("the model was loaded"))
    picture = tmp_path / "a.png"
    for options, message in (
        (["--html", tmp_path], "a folder, not the name of a file"),
        (["--bertviz", tmp_path / "none" / "a.json"], "no such folder"),
        (["-o", picture, "--html", picture], "must be different files"),
    ):
        done = in_process("attention", tiny_run, "Hello.", *options)
        assert isinstance(done.exception, ConfigError)
        assert message in str(done.exception)
    assert not list(tmp_path.iterdir())


def test_info_says_what_is_in_the_run(tiny_run, nmt_command):
    done = nmt_command("info", tiny_run)
    assert done.returncode == 0, done.stderr
    for words in ("18 train, 1 validation, 1 test", "2 layers, d_model 32", "step 300"):
        assert words in done.stdout
    with h5py.File(tiny_run / "model.weights.h5") as file:
        count = []
        file.visititems(
            lambda _, item: (
                count.append(item.size)
                if isinstance(item, h5py.Dataset) and item.dtype.kind == "f"
                else None
            )
        )
    assert f"{sum(count):,} parameters" in done.stdout


def test_training_goes_on_and_refuses_another_configuration(tiny_run, nmt_command, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    one_line_error(
        nmt_command("train", run, "--set", "model.d_model=64"), "model.d_model is 32, not 64"
    )
    one_line_error(
        nmt_command("train", run, "--preset", "tutorial"), "prepared with other settings"
    )
    done = nmt_command("train", run, "--set", "training.max_steps=320")
    assert done.returncode == 0, done.stderr
    assert "going on from step 300" in done.stderr
    assert done.stdout.startswith("step 320: ")


def test_the_bar_shows_everything_on_eighty_columns(monkeypatch):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80)
    monkeypatch.setattr(progress, "Console", lambda **_: console)
    with progress.training_progress() as show:
        show(Report(12_340, 2.5, 3.0, 3.342, 0.538, 8.8e-4, 18_163.0, 0.25))
    seen = " ".join(Text.from_ansi(screen.getvalue()).plain.split())
    for words in (
        "25%", "step 12,340", "loss 3.342", "token accuracy 53.8%", "rate 8.8e-04",
        "18,163 tokens/s", "9:00 left",
    ):  # fmt: skip
        assert words in seen


def test_a_changed_vocabulary_is_refused(tiny_run, nmt_command, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    shutil.copy(run / "source.model", run / "target.model")
    one_line_error(nmt_command("translate", run, "Hello."), "target.model", "has changed")


def test_ctrl_c_saves_and_the_same_command_goes_on(
    tiny_run, nmt_command, tmp_path, user_environment
):
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    command = [sys.executable, "-m", "nmt", "train", str(run), "--set", "training.max_steps=99999"]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, encoding="utf-8", env=user_environment
    )
    while '"step": 320' not in (run / "metrics.jsonl").read_text(encoding="utf-8"):
        assert process.poll() is None
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped and saved" in stderr
    assert "Traceback" not in stderr
    done = nmt_command("train", run, "--set", "training.max_steps=1")
    assert done.returncode == 0, done.stderr
    assert "going on from step" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["translate", "nowhere", "Hello."], ["nowhere", "no such run folder"]),
        (["translate", "{empty}", "Hello."], ["not a run folder"]),
        (["translate", "{untrained}", "Hello."], ["not trained yet", "nmt train"]),
        (["evaluate", "nowhere"], ["no such run folder"]),
        (["evaluate"], ["run folder"]),
        (["evaluate", "{untrained}", "--split", "tset"], ["--split", "tset"]),
        (["attention", "nowhere", "Hello."], ["no such run folder"]),
        (["info", "{empty}"], ["not a run folder"]),
        (["train", "new", "--data", "nothing.tsv"], ["nothing.tsv", "no such data"]),
        (["train", "new", "--data", "{malformed}"], ["malformed.tsv:2", "two columns"]),
        (["train", "new", "--data", "{latin1}"], ["latin1.tsv:1", "not UTF-8"]),
        (["train", "new", "--data", "{blank}"], ["too little to train on", "2 empty side"]),
        (["train", "new", "--preset", "qickstart"], ["qickstart", "quickstart"]),
        (["train", "new", "--set", "model.droput_rate=0.2"], ["dropout_rate"]),
        (["train", "new", "--set", "model.d_model=130"], ["divisible by model.num_heads"]),
        (["train", "new", "--set", "training.batch_tokens=-1"], ["batch_tokens", "-1"]),
        (["train", "new", "--minutes", "0"], ["max_minutes", "positive"]),
        (["train", "new", "--config", "nothing.json"], ["nothing.json"]),
        (["train", "new", "--config", "{misspelt}"], ["misspelt.json", "warmup_steps"]),
        (["quickstart", "--target-script", "simple"], ["target_script", "simplified"]),
        (["translate", "{untrained}", "a", "--input", "b"], ["not both"]),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_and_exit_code_2(
    arguments, words, nmt_command, tmp_path, untrained_run, user_environment
):
    (tmp_path / "empty").mkdir()
    (tmp_path / "malformed.tsv").write_text("Hi.\t嗨。\nno tab\n", encoding="utf-8")
    (tmp_path / "latin1.tsv").write_bytes("café\t咖啡\n".encode("gbk", "replace") + b"\xe9\t\n")
    (tmp_path / "blank.tsv").write_text("Hi.\t\n\n", encoding="utf-8")
    (tmp_path / "misspelt.json").write_text('{"training": {"warmup_step": 1}}', encoding="utf-8")
    places = {
        "empty": tmp_path / "empty", "untrained": untrained_run,
        "malformed": tmp_path / "malformed.tsv", "latin1": tmp_path / "latin1.tsv",
        "blank": tmp_path / "blank.tsv", "misspelt": tmp_path / "misspelt.json",
    }  # fmt: skip
    # A mistake is found before the seconds that TensorFlow takes: here it cannot be imported.
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked" / "tensorflow.py").write_text("raise AssertionError", encoding="utf-8")
    environment = {**user_environment, "PYTHONPATH": f"{tmp_path / 'blocked'}:{ROOT}"}
    before = sorted(os.listdir(tmp_path))
    arguments = [argument.format(**places) for argument in arguments]
    done = nmt_command(*arguments, cwd=tmp_path, env=environment)
    one_line_error(done, *words)
    assert sorted(os.listdir(tmp_path)) == before


def test_a_line_of_any_length_is_translated(tiny_run, in_process):
    """In parts, as a sentence of 3,000 words is; and a score for each line, next to it."""
    done = in_process("translate", tiny_run, "word " * 3000, "I like cats.", "--scores")
    assert done.exit_code == 0, done.output
    long, short = done.stdout.splitlines()
    assert len(long) > 100
    score, text = short.split("\t")
    assert float(score) < 0
    assert text == dict(PAIRS)["I like cats."]


def test_damaged_weights_are_one_line(tiny_run, nmt_command, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    (run / "model.weights.h5").write_bytes((run / "model.weights.h5").read_bytes()[:5000])
    one_line_error(nmt_command("translate", run, "Hello."), "model.weights.h5", "cannot load")


def test_unknown_commands_and_options_are_usage_errors(nmt_command):
    for arguments in (["trian"], ["train"], ["translate", "run", "--beem", "4"]):
        done = nmt_command(*arguments)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr


def test_every_command_explains_itself_with_an_example(nmt_command):
    for command in (
        "quickstart", "prepare", "train", "evaluate", "translate", "attention", "align", "film",
        "info",
    ):  # fmt: skip
        done = nmt_command(command, "--help")
        assert done.returncode == 0
        assert f"Example: nmt {command}" in done.stdout


def test_quickstart_in_half_a_minute(nmt_command, tmp_path, user_environment):
    environment = {**user_environment, "TFDS_DATA_DIR": str(tmp_path / "tfds")}
    done = nmt_command(
        "quickstart", "--data", "hsk", "--minutes", "0.5", cwd=tmp_path, env=environment
    )
    assert done.returncode == 0, done.stderr
    run = tmp_path / "checkpoints" / "quickstart-hsk"
    assert (run / "attention.png").stat().st_size > 10_000
    for words in ("BLEU", "chrF", "NLTK BLEU", "tok:zh", "attention.png", "nmt translate"):
        assert words in done.stdout
    assert done.stdout.count("\n  ~ ") == 8
    assert "tokens/s" in done.stderr
    assert "tokens/s" not in done.stdout
    losses = [json.loads(line).get("loss") for line in (run / "metrics.jsonl").open()]
    losses = [loss for loss in losses if loss]
    assert losses[-1] < losses[0] - 0.5  # on a busy machine half a minute has few steps
