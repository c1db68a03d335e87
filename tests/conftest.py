"""What several test modules share: quiet TensorFlow, a tiny corpus, a tiny trained run."""

import fcntl
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import subprocess
import sys

import pytest
from toy_pairs import PAIRS
from typer.testing import CliRunner


@pytest.fixture(scope="session")
def pairs_file(tmp_path_factory):
    """A TSV file of 20 sentence pairs."""
    path = tmp_path_factory.mktemp("corpus") / "pairs.tsv"
    path.write_text("".join(f"{en}\t{zh}\n" for en, zh in PAIRS), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def user_environment():
    """The environment of a user's shell: what quiets TensorFlow in the tests is not in it."""
    return {key: value for key, value in os.environ.items() if key != "TF_CPP_MIN_LOG_LEVEL"}


@pytest.fixture(scope="session")
def nmt_command(user_environment):
    """Run `nmt ARGUMENTS` in a process of its own, as a user would; returns CompletedProcess."""

    def run(*arguments, **kwargs):
        options = {"env": user_environment, "timeout": 300, "encoding": "utf-8"} | kwargs
        return subprocess.run(
            [sys.executable, "-m", "nmt", *map(str, arguments)], capture_output=True, **options
        )

    return run


@pytest.fixture(scope="session")
def in_process():
    """Run `nmt ARGUMENTS` in this process, which has TensorFlow already; returns typer's Result."""

    def run(*arguments):
        from nmt.cli import main  # noqa: F401  brings the commands
        from nmt.cli.app import app

        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    return run


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory, pairs_file, nmt_command, worker_id):
    """A run folder of a tiny model, trained by the command line until it knows its 18 pairs.

    Nobody changes it, so that tests in several processes share one.
    """
    alone = worker_id == "master"
    shared = tmp_path_factory.mktemp("runs") if alone else tmp_path_factory.getbasetemp().parent
    path = shared / "tiny"
    with open(shared / "tiny.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (path / "model.weights.h5").is_file():
            train_tiny(path, pairs_file, nmt_command)
    return path


def train_tiny(path, pairs_file, nmt_command):
    settings = (
        "model.num_layers=2 model.d_model=32 model.num_heads=4 model.dff=64 "
        "model.dropout_rate=0.0 training.max_minutes=null training.max_steps=300 "
        "training.warmup_steps=50 training.peak_learning_rate=0.005 training.precision=float32"
    )
    options = [option for setting in settings.split() for option in ("--set", setting)]
    done = nmt_command("train", path, "--data", pairs_file, *options)
    assert done.returncode == 0, done.stderr
