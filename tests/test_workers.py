"""Training in several processes: the result of one, and clear words when someone is missing."""

import dataclasses
import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from nmt.config import Config, ConfigError, DataConfig, ModelConfig, TrainingConfig
from nmt.data.batches import plan_epoch
from nmt.data.prepared import load_train, prepare
from nmt.run_folder import RunFolder
from nmt.training.workers import cluster, meet, start_workers

SCRIPT = Path(__file__).with_name("multi_worker.py")


def free_addresses(count):
    """Return addresses of this machine that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    return addresses


def tf_config(addresses, index):
    return json.dumps(
        {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
    )


def start(arguments, environment, addresses, index):
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        env={**environment, "TF_CONFIG": tf_config(addresses, index)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )


def finish(processes, timeout=240):
    """Wait for processes; return [(exit code, standard output, standard error)]."""
    try:
        outputs = [process.communicate(timeout=timeout) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(p.returncode, *output) for p, output in zip(processes, outputs, strict=True)]


def prepared_run(path, pairs_file, pairs, **training):
    """Prepare a run of the first `pairs` pairs of the tiny corpus, without held-out ones of them.

    The corpus is split by content, so training pairs are counted afterwards.
    """
    lines = pairs_file.read_text("utf-8").splitlines()[:pairs]
    path.mkdir()
    corpus = path / "pairs.tsv"
    corpus.write_text("".join(line + "\n" for line in lines), "utf-8")
    model = ModelConfig(1, 16, 2, 32, 0.0, 500, 500)
    settings = {"batch_tokens": 64, "warmup_steps": 4, "peak_learning_rate": 0.3, **training}
    run = RunFolder(path / "run")
    prepare(run, Config(DataConfig(corpus=str(corpus)), model, TrainingConfig(**settings)), {})
    return run


def train_with(count, run, tmp_path, environment):
    """Train `run` with `count` processes; return what each of them wrote."""
    addresses = free_addresses(count)
    files = [tmp_path / f"{run.path.parent.name}-{count}-{i}.npz" for i in range(count)]
    processes = [
        start([SCRIPT, run.path, file], environment, addresses, i) for i, file in enumerate(files)
    ]
    for code, _, error in finish(processes, timeout=120):
        assert code == 0, error[-2000:]
    return [dict(np.load(file)) for file in files]


@pytest.mark.parametrize("pairs", [12, pytest.param(3, marks=pytest.mark.slow)])
def test_two_workers_train_to_the_weights_of_one(tmp_path, pairs_file, user_environment, pairs):
    """With a last batch that is smaller than the others, and with fewer sentences than workers."""
    runs = [
        prepared_run(tmp_path / f"{name}", pairs_file, pairs, max_epochs=3, clip_norm=1.0)
        for name in ("alone", "together")
    ]
    data = load_train(runs[0])
    sizes = [len(rows) for rows in plan_epoch(data, 64, seed=1, epoch=0)]
    assert min(sizes) < max(sizes) if pairs > 3 else min(sizes) < 2
    (alone,) = train_with(1, runs[0], tmp_path, user_environment)
    together = train_with(2, runs[1], tmp_path, user_environment)
    assert len(alone["losses"]) == 3 * len(sizes)
    np.testing.assert_allclose(together[0]["losses"], alone["losses"], rtol=1e-5)
    for worker in together:
        for name in alone.keys() - {"losses", "epochs"}:
            np.testing.assert_allclose(worker[name], alone[name], atol=1e-5, err_msg=name)
    # It did learn something: the weights are not equal because nothing moved.
    assert alone["losses"][-1] < alone["losses"][0] - 0.1
    # Only the chief reports and writes.
    assert len(together[1]["losses"]) == 0


@pytest.mark.slow
def test_lost_worker(tmp_path, pairs_file, user_environment):
    """A worker is killed; the other says so; both go on from one step; one alone gives up."""
    run = tmp_path / "run"
    settings = [
        "model.num_layers=1",
        "model.d_model=16",
        "model.num_heads=2",
        "model.dff=32",
        "training.batch_parts=1",
        "training.batch_tokens=64",
        "training.checkpoint_steps=20",
        "training.max_minutes=null",
        "training.precision=float32",
    ]
    options = [option for setting in settings for option in ("--set", setting)]
    command = ["-m", "nmt", "train", run, "--data", pairs_file, "--worker-timeout", 60, *options]
    addresses = free_addresses(2)
    first = [
        start([*command, "--set", "training.max_steps=100000"], user_environment, addresses, i)
        for i in range(2)
    ]
    try:
        wait_for(lambda: list((run / "checkpoints").glob("step-*.index")), first)
    finally:
        first[1].kill()
    code, _, error = finish(first)[0]
    assert code == 1
    assert "a worker was lost; start all of them again" in error
    assert "Traceback" not in error
    assert not list((run / "checkpoints").glob("*_temp*worker*"))

    newest = max(int(file.stem[5:]) for file in (run / "checkpoints").glob("step-*.index"))
    limit = ["--set", f"training.max_steps={newest + 30}"]
    results = finish([start([*command, *limit], user_environment, addresses, i) for i in range(2)])
    for code, _, error in results:
        assert code == 0, error[-2000:]
        assert f"going on from step {newest:,}" in error
    assert f"step {newest + 30:,}: validation loss" in results[0][1]
    assert results[1][1] == ""
    # What two wrote, one can read.
    done = subprocess.run(
        [sys.executable, "-m", "nmt", "translate", run, "I like cats."],
        env=user_environment,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr

    for index in (0, 1):
        short = [*command, *limit, "--worker-timeout", 2]
        ((code, output, error),) = finish([start(short, user_environment, addresses, index)], 60)
        assert (code, output) == (1, "")
        other = f"worker {1 - index} at {addresses[1 - index]}"
        assert f"gave up after 2 s of waiting for {other}" in error


def wait_for(condition, processes, timeout=120):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline
        assert all(process.poll() is None for process in processes), finish(processes)
        time.sleep(0.1)


def test_replicas_of_one_process_make_the_same_step(user_environment):
    """MirroredStrategy on two devices, and gradient accumulation, against one device at once."""
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("mirrored.py")],
        env=user_environment,
        capture_output=True,
        encoding="utf-8",
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ([], 0)),
        ('{"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}',
         (["a:1", "b:2"], 1)),
        ('{"cluster": {"chief": ["c:1"], "worker": ["a:1", "b:2"]}, '
         '"task": {"type": "worker", "index": 1}}', (["c:1", "a:1", "b:2"], 2)),
        ('{"cluster": {"chief": ["c:1"], "worker": ["a:1"]}, '
         '"task": {"type": "chief", "index": "0"}, "environment": "cloud"}', (["c:1", "a:1"], 0)),
        ("{}", ([], 0)),
    ],
)  # fmt: skip
def test_cluster(monkeypatch, text, expected):
    monkeypatch.setenv("TF_CONFIG", text)
    assert cluster() == expected


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "3",
        '{"cluster": {"worker": ["a:1"]}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": -1}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "chief", "index": 0}}',
        '{"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 0}}',
    ],
)
def test_wrong_tf_config_is_explained(monkeypatch, text):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(ConfigError, match="TF_CONFIG must be JSON such as"):
        cluster()


def test_unknown_strategy(monkeypatch):
    with pytest.raises(ConfigError, match="--strategy must be one of auto, one, mirrored, multi"):
        start_workers("multi", timeout=1)
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(ConfigError, match="needs TF_CONFIG"):
        start_workers("multi-worker", timeout=1)


@pytest.mark.parametrize("address", ["localhost", ":2222", "host:port", ""])
def test_wrong_address(address):
    with pytest.raises(ConfigError, match="must be HOST:PORT"):
        meet(["127.0.0.1:1", address], 1, timeout=1)


def test_port_in_use():
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"worker 0: cannot listen on port {port}"):
            meet([f"127.0.0.1:{port}", "127.0.0.1:1"], 0, timeout=1)


def test_accumulation_must_be_positive():
    with pytest.raises(ConfigError, match="accumulation must be at least 1"):
        dataclasses.replace(TrainingConfig(), accumulation=0)
