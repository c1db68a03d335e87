"""What a training says of itself: reports, and the files they go to."""

import json
import shutil
import time
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from nmt.data.batches import Batch
from nmt.run_folder import RunFolder, write_text
from nmt.text.tokenizer import PAD
from nmt.training.losses import TokenSums


class Report(NamedTuple):
    """Where the training stands; loss, accuracy and speed are means since the report before."""

    step: int
    epoch: float  # passes over the training pairs so far
    minutes: float  # spent training, all starts together
    loss: float  # nats a target token, label smoothing included
    token_accuracy: float  # share of target tokens whose most likely prediction is right
    learning_rate: float
    tokens_per_second: float  # source and target tokens, padding not counted
    done: float | None  # share of the way to the nearest limit, 0 to 1; None without a limit


class Meter:
    """Adds up what happens between two reports."""

    def __init__(self, minutes_before: float = 0.0, sums: tuple = (0.0, 0.0, 0.0)):
        """Begin, or go on from the `minutes` and `sums` of a Meter before."""
        self._started = time.perf_counter() - 60 * minutes_before
        self.sums = TokenSums(*sums)
        self._source_and_target = 0.0
        self._since = time.perf_counter()

    def minutes(self) -> float:
        """Return the minutes spent training, all starts together."""
        return (time.perf_counter() - self._started) / 60

    def add(self, sums: TokenSums, batch: Batch) -> None:
        """Count one update."""
        self.sums = TokenSums(
            *(so_far + float(new) for so_far, new in zip(self.sums, sums, strict=True))
        )
        real = np.count_nonzero(batch.source_ids != PAD) + float(sums.tokens)
        self._source_and_target += real

    def report(self, step: int, epoch: float, rate: float, done: float | None) -> Report:
        """Return the means since the last report, and begin again."""
        seconds = time.perf_counter() - self._since
        report = Report(
            step=step,
            epoch=epoch,
            minutes=self.minutes(),
            loss=self.sums.loss / self.sums.tokens,
            token_accuracy=self.sums.correct / self.sums.tokens,
            learning_rate=rate,
            tokens_per_second=self._source_and_target / seconds,
            done=done,
        )
        self.sums = TokenSums(0.0, 0.0, 0.0)
        self._source_and_target = 0.0
        self._since = time.perf_counter()
        return report


class Metrics:
    """metrics.jsonl, one JSON object a line, and the same numbers for TensorBoard."""

    def __init__(self, run: RunFolder, step: int):
        """Open the files for a training that is at `step`: later lines belong to a lost future."""
        self._path = run.metrics_file
        kept = [record for record in run.metrics() if record["step"] <= step]
        write_text(self._path, "".join(json.dumps(record) + "\n" for record in kept))
        # TensorBoard cannot forget; so its files are written again from what is kept.
        shutil.rmtree(run.tensorboard, ignore_errors=True)
        self._writer = tf.summary.create_file_writer(str(run.tensorboard))
        for record in kept:
            self._write_summary(record)

    def write(self, record: NamedTuple) -> None:
        """Append a record."""
        facts = record._asdict()
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(facts) + "\n")
        self._write_summary(facts)

    def _write_summary(self, facts):
        with self._writer.as_default(step=facts["step"]):
            for name, value in facts.items():
                if name not in ("step", "done") and value is not None:
                    tf.summary.scalar(name, value)
        self._writer.flush()
