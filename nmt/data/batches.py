"""Batches of similar length, in an order that is a pure function of (seed, epoch).

Padding is wasted work: sentences of 3 and 30 tokens in one batch cost as much as two of 30. So
batches are cut from pairs sorted by length, and counted in tokens, not in sentences.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from nmt.data.prepared import Prepared
from nmt.text.tokenizer import BOS, PAD

# Rows come in such steps: every shape that differs costs oneDNN a kernel, its time and memory.
ROWS_MULTIPLE = 16


class Batch(NamedTuple):
    """Padded token ids; the decoder reads `target_in_ids` and has to predict `target_out_ids`."""

    source_ids: np.ndarray  # (B, S) int32: tokens EOS PAD...
    target_in_ids: np.ndarray  # (B, T) int32: BOS tokens (EOS) PAD...
    target_out_ids: np.ndarray  # (B, T) int32: tokens EOS PAD..., one step ahead


def plan_epoch(data: Prepared, batch_tokens: int, seed: int, epoch: int) -> list[np.ndarray]:
    """Assign every pair to one batch of this epoch.

    Args:
      data: encoded pairs.
      batch_tokens: most padded source + target positions in a batch; a longer pair is alone.
      seed: with `epoch`, all that the order depends on.
      epoch: counted from 0.

    Returns:
      Pair indices of each batch, int arrays, in the order of training.
    """
    random = np.random.default_rng([seed, epoch])
    order = random.permutation(len(data.source.lengths))
    # lexsort is stable: among pairs of equal lengths the permutation decides.
    order = order[np.lexsort((data.source.lengths[order], data.target.lengths[order]))]
    batches, start = [], 0
    while start < len(order):
        rows = _rows_that_fit(data, order[start:], batch_tokens)
        batches.append(order[start : start + rows])
        start += rows
    return [batches[i] for i in random.permutation(len(batches))]


def _rows_that_fit(data, order, batch_tokens):
    """Return how many pairs, taken from the front of `order`, make one batch."""
    window = order[: batch_tokens // 2 + 1]  # even pairs of one token a side fill it
    longest = np.maximum.accumulate(data.source.lengths[window])
    longest = longest + np.maximum.accumulate(data.target.lengths[window])
    rows = np.arange(1, len(window) + 1)
    fitting = max(1, int(np.count_nonzero(rows * longest <= batch_tokens)))
    if fitting == len(order) or fitting < ROWS_MULTIPLE:
        return fitting
    return fitting // ROWS_MULTIPLE * ROWS_MULTIPLE


def batches_from(data: Prepared, batch_tokens: int, seed: int, step: int) -> Iterator[Batch]:
    """Yield batches without end, epoch after epoch, beginning with number `step` (from 0).

    The position in the data is this one number, so a resumed training repeats nothing and skips
    nothing.
    """
    sources, targets = data.source.split(), data.target.split()
    # Every epoch has the same lengths to cut, so the same number of batches.
    epoch, skipped = divmod(step, len(plan_epoch(data, batch_tokens, seed, epoch=0)))
    while True:
        for indices in plan_epoch(data, batch_tokens, seed, epoch)[skipped:]:
            yield make_batch([sources[i] for i in indices], [targets[i] for i in indices])
        epoch, skipped = epoch + 1, 0


def make_batch(sources: list[np.ndarray], targets: list[np.ndarray]) -> Batch:
    """Pad sentences, each closed by EOS, and shift the target for teacher forcing."""
    target_out = pad(targets)
    first = np.full((len(targets), 1), BOS, np.int32)
    target_in = np.concatenate([first, target_out[:, :-1]], axis=1)
    return Batch(pad(sources), target_in, target_out)


def pad(sentences: list[np.ndarray]) -> np.ndarray:
    """Return sentences as one (B, longest) int32 array, PAD to the right."""
    padded = np.full((len(sentences), max(map(len, sentences))), PAD, np.int32)
    for row, ids in zip(padded, sentences, strict=True):
        row[: len(ids)] = ids
    return padded
