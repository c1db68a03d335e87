"""Trainings that are killed, starved or told to stop, and go on as if nothing had happened."""

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest

from nmt.run_folder import RunFolder

SETTINGS = [
    *("model.num_layers=1", "model.d_model=16", "model.num_heads=2", "model.dff=32"),
    *("model.dropout_rate=0.1", "training.batch_tokens=64"),
    *("training.warmup_steps=50", "training.peak_learning_rate=0.01", "training.max_minutes=null"),
    *("training.weight_average=0.9", "training.validation_sentences=2", "training.patience=1000"),
    "training.precision=float32",
]


def command(run, pairs_file, *settings, parts=1):
    settings = (*SETTINGS, f"training.batch_parts={parts}", *settings)
    options = [option for setting in settings for option in ("--set", setting)]
    return [
        *(sys.executable, "-m", "nmt", "train", str(run), "--data", str(pairs_file)),
        *("--deterministic", *options),
    ]


def begin(arguments, environment, **options):
    return subprocess.Popen(
        arguments,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        **options,
    )


def finish(process, timeout=400):
    output, error = process.communicate(timeout=timeout)
    assert process.returncode == 0, error[-2000:]
    return output


def result(run):
    """Return the final weights, and every logged number that is not a time."""
    arrays = {}
    with h5py.File(RunFolder(run).weights_file) as file:
        file.visititems(
            lambda name, item: arrays.update({name: item[()]}) if hasattr(item, "shape") else None
        )
    times = {"minutes", "tokens_per_second", "done"}
    records = [
        {name: value for name, value in record.items() if name not in times}
        for record in RunFolder(run).metrics()
    ]
    return arrays, records


def assert_same(run, expected):
    arrays, records = result(run)
    wanted_arrays, wanted_records = result(expected)
    assert records == wanted_records
    assert arrays.keys() == wanted_arrays.keys()
    for name, value in wanted_arrays.items():
        np.testing.assert_array_equal(arrays[name], value, err_msg=name)


def wait_until(condition, process, timeout=120):
    deadline = time.monotonic() + timeout
    while not condition():
        assert process.poll() is None, process.communicate()[1][-2000:]
        assert time.monotonic() < deadline
        time.sleep(0.002)


def kill_again_and_again(run, arguments, environment, kills, seed):
    """Kill a training `kills` times at random moments; returns the steps it had got to."""
    chance = random.Random(seed)
    steps = []
    for _ in range(kills):
        process = begin(arguments, environment)
        try:
            before = len(RunFolder(run).metrics())
            wait_until(lambda before=before: len(RunFolder(run).metrics()) > before, process)
            # Of what follows, half is computing and half is writing.
            time.sleep(chance.uniform(0.0, 1.0))
        finally:
            process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL, "the training ended before it was killed"
        steps.append(max((r["step"] for r in RunFolder(run).metrics()), default=0))
    return steps


@pytest.mark.slow
def test_killed_in_the_middle_of_an_epoch(tmp_path, pairs_file, user_environment):
    """Reports, validations and checkpoints at steps that have no common divisor."""
    settings = ["training.checkpoint_steps=33", "training.max_steps=700"]
    straight = command(tmp_path / "straight", pairs_file, *settings)
    finish(begin(straight, user_environment))
    broken = command(tmp_path / "broken", pairs_file, *settings)
    kill_again_and_again(tmp_path / "broken", broken, user_environment, kills=1, seed=2)
    finish(begin(broken, user_environment))
    assert_same(tmp_path / "broken", tmp_path / "straight")
    records = RunFolder(tmp_path / "broken").metrics()
    assert [r["step"] for r in records if "loss" in r] == list(range(20, 701, 20))
    assert [r["step"] for r in records if "validation_bleu" in r] == [*range(33, 700, 33), 700]


@pytest.mark.slow
def test_twenty_kills(tmp_path, pairs_file, user_environment):
    settings = ["training.checkpoint_steps=7", "training.max_steps=2500"]
    straight = command(tmp_path / "straight", pairs_file, *settings, parts=2)
    finish(begin(straight, user_environment), timeout=1200)
    broken = command(tmp_path / "broken", pairs_file, *settings, parts=2)
    steps = kill_again_and_again(tmp_path / "broken", broken, user_environment, kills=20, seed=1)
    print("killed at steps", steps)
    finish(begin(broken, user_environment), timeout=1200)
    assert_same(tmp_path / "broken", tmp_path / "straight")


@pytest.mark.slow  # test_cli stops a training by Ctrl-C
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_told_to_stop(tmp_path, pairs_file, user_environment, number):
    """Saves where it is, between two reports, and loses nothing."""
    run = tmp_path / "run"
    arguments = command(run, pairs_file, "training.checkpoint_steps=10000")
    process = begin([*arguments, "--set", "training.max_steps=100000"], user_environment)
    try:
        wait_until(lambda: RunFolder(run).metrics(), process)
        process.send_signal(number)
        _, error = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "stopped and saved; the same command goes on from here" in error
    assert "Traceback" not in error
    (checkpoint,) = RunFolder(run).checkpoints.glob("*.index")
    step = int(checkpoint.stem[5:])
    assert RunFolder(run).weights_file.is_file()

    if number == signal.SIGTERM:  # once is enough
        limit = ["--set", f"training.max_steps={step + 30}"]
        finish(begin([*arguments, *limit], user_environment))
        straight = command(tmp_path / "straight", pairs_file, "training.checkpoint_steps=10000")
        finish(begin([*straight, *limit], user_environment))
        assert_same(run, tmp_path / "straight")


@pytest.fixture(scope="module")
def trained(tmp_path_factory, pairs_file, user_environment):
    """A run at step 40, with checkpoints at 20 and 40."""
    run = tmp_path_factory.mktemp("trained") / "run"
    arguments = command(run, pairs_file, "training.checkpoint_steps=20")
    finish(begin([*arguments, "--set", "training.max_steps=40"], user_environment))
    return run


def test_disk_full(trained, tmp_path, pairs_file, user_environment):
    """A file cannot grow beyond a limit: the message is clear and what was saved still loads."""
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    arguments = command(run, pairs_file, "training.checkpoint_steps=20")
    process = begin(
        [*arguments, "--set", "training.max_steps=80"],
        user_environment,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
    )
    _, error = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "Traceback" not in error
    assert f"nmt: {run}" in error.splitlines()[-1], error
    assert not list(run.glob(".*")), "half a file is left"
    finish(begin([*arguments, "--set", "training.max_steps=80"], user_environment))
    assert [r["step"] for r in RunFolder(run).metrics() if "loss" in r] == [20, 40, 60, 80]


@pytest.mark.skipif(os.geteuid() == 0, reason="the administrator may write everywhere")
def test_read_only_folder(trained, tmp_path, pairs_file, user_environment):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    arguments = command(run, pairs_file, "training.checkpoint_steps=20")
    run.chmod(0o500)
    try:
        process = begin([*arguments, "--set", "training.max_steps=80"], user_environment)
        _, error = process.communicate(timeout=120)
    finally:
        run.chmod(0o700)
    assert process.returncode == 1
    assert "Permission denied" in error
    assert "Traceback" not in error
