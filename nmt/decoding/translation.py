"""What translating gives back: plain values, so that looking at them needs no TensorFlow."""

from typing import NamedTuple

import numpy as np


class Attention(NamedTuple):
    """The weights of every layer L and head H for one sentence, float32; each row sums to 1."""

    encoder: np.ndarray  # (L, H, S, S): source token → source token
    decoder: np.ndarray  # (L, H, T, T): target position → target positions so far
    cross: np.ndarray  # (L, H, T, S): target token → source token


class Translation(NamedTuple):
    """A translated sentence. Row t of the attention belongs to the prediction of token t."""

    source: str  # as it was given
    text: str
    source_tokens: list[str] = []  # subwords, EOS included; empty for an empty source
    target_tokens: list[str] = []  # subwords, EOS included unless truncated
    token_log_probs: list[float] = []  # of each target token given those before it, nats
    score: float = 0.0  # what hypotheses are ranked by: log_prob over the length penalty
    truncated: bool = False  # stopped by the length limit, not by EOS
    attention: Attention | None = None  # None unless asked for
    alternatives: list["Translation"] = []  # the next best hypotheses, best first

    @property
    def log_prob(self) -> float:
        """Log-probability of the target tokens together, nats."""
        return float(sum(self.token_log_probs))


class Document(NamedTuple):
    """A translated text of any length: lines, and within a line sentences."""

    source: str  # as it was given
    text: str  # as many lines as the source has
    segments: list[Translation]  # what was translated on its own, in order; none for empty text
