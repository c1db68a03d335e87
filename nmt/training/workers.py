"""The processes that train together: who they are, waiting for them, agreeing with them."""

import contextlib
import json
import logging
import os
import re
import socket
import time
from typing import NamedTuple

import tensorflow as tf

from nmt.config import ConfigError

log = logging.getLogger(__name__)

STRATEGIES = ("auto", "one", "mirrored", "multi-worker")

# Seconds between two looks at who is missing.
LOOK_SECONDS = 10.0


class Workers(NamedTuple):
    """A tf.distribute strategy, and this process's place among those that share it."""

    strategy: tf.distribute.Strategy
    size: int = 1
    rank: int = 0

    @property
    def is_chief(self) -> bool:
        """Whether this process is the one that writes; there is exactly one."""
        return self.rank == 0

    def sum(self, values: list[float]) -> list[float]:
        """Return the sums of `values` over all workers, the same list on each; all must call it.

        Clocks and keyboards differ from worker to worker, yet all must stop at the same step, or
        the others wait for a gradient that never comes.
        """
        if self.size == 1:
            return values
        return [float(value) for value in _summed(self.strategy, tf.constant(values, tf.float64))]


@tf.function
def _summed(strategy, values):
    def on_replica():
        # The copy is on the replica's device; a value from outside has no device to reduce to.
        return tf.distribute.get_replica_context().all_reduce("sum", tf.identity(values))

    return strategy.experimental_local_results(strategy.run(on_replica))[0]


def one_device() -> Workers:
    """Return this process alone, on one device."""
    return Workers(tf.distribute.get_strategy())


def start_workers(name: str, timeout: float) -> Workers:
    """Start the strategy called `name`, before TensorFlow has computed anything.

    Args:
      name: "one" device; "mirrored", all GPUs of this machine; "multi-worker", the processes
        that TF_CONFIG lists; "auto", whichever of them fits what is there.
      timeout: seconds to wait for workers that are missing.

    Raises:
      ConfigError: an unknown name, or a TF_CONFIG that is missing or wrong.
      TimeoutError: some workers are still missing.
    """
    if name not in STRATEGIES:
        raise ConfigError(f"--strategy must be one of {', '.join(STRATEGIES)}; received {name!r}")
    addresses, index = cluster()
    gpus = tf.config.list_physical_devices("GPU")
    if name == "auto":
        name = "multi-worker" if len(addresses) > 1 else "mirrored" if len(gpus) > 1 else "one"
    for gpu in gpus:
        # Otherwise TensorFlow takes all of it at once, whatever it needs.
        tf.config.experimental.set_memory_growth(gpu, True)
    if name == "one":
        return one_device()
    if name == "mirrored":
        if len(gpus) < 2:
            log.warning("--strategy mirrored: found %s GPU, so there is one replica", len(gpus))
        return Workers(tf.distribute.MirroredStrategy())
    if not addresses:
        raise ConfigError(
            "--strategy multi-worker needs TF_CONFIG in the environment, which lists the workers; "
            "see Beyond one machine in README.md"
        )
    meet(addresses, index, timeout)
    return Workers(tf.distribute.MultiWorkerMirroredStrategy(), len(addresses), index)


def cluster() -> tuple[list[str], int]:
    """Return the workers' addresses, the chief's first, and the place of this process in them.

    Read from TF_CONFIG, as cluster managers set it:
    {"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}
    with "chief" as another type, if any. Without TF_CONFIG: no addresses, and place 0.
    """
    text = os.environ.get("TF_CONFIG", "").strip()
    if not text:
        return [], 0
    try:
        config = json.loads(text)
        jobs, task = config.get("cluster", {}), config.get("task", {})
        unknown = sorted(set(jobs) - {"chief", "worker", "evaluator"})
        if unknown:
            raise ValueError(f"unknown jobs {', '.join(unknown)}; allowed: chief, worker")
        addresses = [*jobs.get("chief", []), *jobs.get("worker", [])]
        if not addresses:
            return [], 0
        kind, index = task["type"], int(task["index"])
        if kind not in jobs or not 0 <= index < len(jobs[kind]):
            raise ValueError(f"task {kind} {index} is not in the cluster")
        return addresses, index + (len(jobs.get("chief", [])) if kind == "worker" else 0)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f'TF_CONFIG must be JSON such as {{"cluster": {{"worker": ["host:port", ...]}}, '
            f'"task": {{"type": "worker", "index": 0}}}}; {type(error).__name__}: {error}; '
            f"received {text[:200]}"
        ) from None


def meet(addresses: list[str], index: int, timeout: float) -> None:
    """Return once all workers are there; say who is missing meanwhile.

    TensorFlow's own waiting can be neither watched nor interrupted nor given up. So before it,
    the chief takes calls on the port that TensorFlow will use, until every worker has called.

    Raises:
      ConfigError: an address is not HOST:PORT, or the chief's port is taken.
      TimeoutError: some are still missing after `timeout` seconds.
    """
    for address in addresses:
        if not re.fullmatch(r".+:\d+", address):
            raise ConfigError(
                f"TF_CONFIG: a worker's address must be HOST:PORT; received {address}"
            )
    host, _, port = addresses[0].rpartition(":")
    wait = _Wait(addresses, timeout)
    if index:
        _call(host.strip("[]"), int(port), index, wait)
    else:
        _take_calls(int(port), wait)


def _take_calls(port, wait):
    callers: dict[int, socket.socket] = {}
    try:
        listener = socket.create_server(("", port))
    except OSError as error:
        raise ConfigError(f"worker 0: cannot listen on port {port}: {error}") from None
    with listener:
        while missing := set(range(1, len(wait.addresses))) - callers.keys():
            listener.settimeout(wait.seconds(missing))
            try:
                caller, _ = listener.accept()
                caller.settimeout(5.0)
                callers[int(caller.recv(16))] = caller  # who calls again has hung up before
            except (OSError, ValueError):
                continue
    for caller in callers.values():
        with caller, contextlib.suppress(OSError):
            caller.sendall(b"go")


def _call(host, port, index, wait):
    while True:
        seconds = wait.seconds({0})
        try:
            with socket.create_connection((host, port), timeout=seconds) as line:
                line.sendall(str(index).encode())
                if line.recv(2) == b"go":
                    return
        except TimeoutError:
            continue
        except OSError:
            pass
        time.sleep(0.5)


class _Wait:
    """How long to wait still; says now and then for whom."""

    def __init__(self, addresses, timeout):
        self.addresses = addresses
        self._started = time.monotonic()
        self._said = self._started
        self._timeout = timeout

    def seconds(self, missing):
        """Return for how long to wait before asking again; TimeoutError when the time is over."""
        names = ", ".join(f"worker {i} at {self.addresses[i]}" for i in sorted(missing))
        now = time.monotonic()
        if now - self._started > self._timeout:
            raise TimeoutError(
                f"gave up after {self._timeout:.0f} s of waiting for {names}; start all workers "
                f"with the same command and the same addresses, or give --worker-timeout"
            )
        if now - self._said > LOOK_SECONDS:
            self._said = now
            log.warning("waiting for %s (%.0f s)", names, now - self._started)
        return max(0.1, min(LOOK_SECONDS, self._started + self._timeout - now))
