"""What a server takes from one request, and how many requests it lets wait. Plain values."""

import dataclasses

from nmt.config import ConfigError

# Wider beams take more memory and time than they are worth to a shared server.
LARGEST_BEAM = 8

# Attention comes for every layer and head; for long texts that is megabytes of numbers.
ATTENTION_CHARACTERS = 300

# The most bytes that one character can take: "\ud83d\ude00" in JSON, "%F0%9F%98%80" in a form.
_BYTES_PER_CHARACTER = 12
_BYTES_PER_TEXT = 8  # quotes, comma, space
_BYTES_OF_THE_REST = 4096  # the other fields


@dataclasses.dataclass(frozen=True)
class Limits:
    """Whatever exceeds one of these is refused whole; nothing is ever cut short."""

    characters: int = 5000  # Unicode characters of a request, all its texts together
    texts: int = 100  # texts in a list
    queue: int = 256  # requests that wait while the engine is busy

    def __post_init__(self):
        for name in ("characters", "texts", "queue"):
            value = getattr(self, name)
            if value < 1:
                raise ConfigError(f"{name} must be at least 1; received {value}")

    @property
    def body_bytes(self) -> int:
        """Bytes of the largest body that can hold an allowed request."""
        return (
            _BYTES_PER_CHARACTER * self.characters
            + _BYTES_PER_TEXT * self.texts
            + _BYTES_OF_THE_REST
        )


DEFAULT_LIMITS = Limits()
