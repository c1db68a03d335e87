"""The proof that an exported model translates as its run does."""

from collections.abc import Sequence
from typing import NamedTuple

from nmt.decoding.translation import Translation

# Nats. Log-probabilities may differ by so much, and of two tokens as close as that either is right.
TOLERANCE = 1e-3

# Besides sentences of the test set: no text, one letter, what is cleaned away, bytes, great length.
ODD_SENTENCES = (
    "",
    " \u200b",
    "a",
    "\u3000Good\tmorning\ufeff . ",
    "Ａ　full-width sentence，with 中文 and 😀!",
    "x" * 40,
    " ".join(["and then he said that"] * 12),
)


class Parity(NamedTuple):
    """How the translations of an exported model compare with those of its run."""

    sentences: int
    identical: int  # the same text
    difference: float  # nats: largest of a sentence's log-probability, among the identical
    differing: list[tuple[Translation, Translation]]  # the run's and the other, but for ties

    @property
    def holds(self) -> bool:
        """Whether there is no difference but by rounding."""
        return not self.differing and self.difference <= TOLERANCE


def compare(expected: Sequence[Translation], received: Sequence[Translation]) -> Parity:
    """Compare translations of the same sentences: those of the run, and those of the export."""
    pairs = list(zip(expected, received, strict=True))
    identical = [pair for pair in pairs if pair[0].text == pair[1].text]
    return Parity(
        sentences=len(pairs),
        identical=len(identical),
        difference=max((abs(a.log_prob - b.log_prob) for a, b in identical), default=0.0),
        differing=[pair for pair in pairs if pair[0].text != pair[1].text and not _is_tie(*pair)],
    )


def format_parity(parity: Parity) -> str:
    """Return a line that says how good the parity is."""
    return (
        f"{parity.identical} of {parity.sentences} translations are those of the run; "
        f"largest difference of a log-probability {parity.difference:.1e}"
    )


def _is_tie(a, b):
    """Whether both are as likely where they part."""
    tokens = zip(a.target_tokens, b.target_tokens, strict=False)
    parting = next((i for i, (one, other) in enumerate(tokens) if one != other), None)
    if parting is None:
        return False
    return abs(a.token_log_probs[parting] - b.token_log_probs[parting]) <= TOLERANCE
