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
    segments: list[Translation] = []  # what was translated on its own, in order
    alternatives: list["Document"] = []  # made of the segments' second best, third best ...

    @property
    def score(self) -> float:
        """Sum of the scores of the segments; 0 if there are none."""
        return float(sum(segment.score for segment in self.segments))

    @property
    def truncated(self) -> bool:
        """Whether a segment was stopped by the length limit."""
        return any(segment.truncated for segment in self.segments)


def align(translation: Translation) -> list[tuple[int, int]]:
    """Return (target token, source token) pairs: where each target token looked most.

    By the mean of the heads of the last decoder layer. A rough guide, not a word alignment.

    Args:
      translation: one with attention.

    Raises:
      ValueError: it has none.
    """
    if translation.attention is None:
        raise ValueError("the translation carries no attention; translate with attention=True")
    looked = translation.attention.cross[-1].mean(axis=0)  # (T, S)
    return [(target, int(source)) for target, source in enumerate(looked.argmax(axis=1))]
