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
    source_tokens: list[str]  # subwords, EOS included; empty for an empty source
    target_tokens: list[str]  # subwords, EOS included unless truncated
    score: float  # log-probability of the target tokens, nats
    truncated: bool  # stopped by the length limit, not by EOS
    attention: Attention | None  # None unless asked for
