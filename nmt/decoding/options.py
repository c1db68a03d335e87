"""How to search for a translation; plain values, no TensorFlow."""

import dataclasses

from nmt.config import ConfigError

LARGEST_BEAM = 64


@dataclasses.dataclass(frozen=True)
class SearchOptions:
    """Greedy search by default; beam search with `beam` > 1; random draws with `sampling`."""

    beam: int = 1  # hypotheses kept side by side; with sampling: drawn side by side
    nbest: int = 1  # hypotheses returned for a sentence, 1 <= nbest <= beam
    length_penalty: float = 0.6  # alpha, >= 0; 0: none (Wu et al. 2016, equation 14)
    coverage_penalty: float = 0.0  # beta, >= 0; 0: none (likewise)
    no_repeat_ngram: int = 0  # no n subwords in a row come twice; 0: they may
    sampling: bool = False  # draw each token by its probability instead of searching
    temperature: float = 1.0  # of sampling, > 0: below 1 bolder, above 1 wilder
    top_k: int = 0  # draw among so many likeliest tokens; 0: all
    top_p: float = 1.0  # draw among the likeliest tokens of this much probability, 0 < p <= 1
    seed: int = 1  # of sampling

    def __post_init__(self):
        for name in ("beam", "nbest", "no_repeat_ngram", "top_k", "seed"):
            if type(getattr(self, name)) is not int:
                raise ConfigError(
                    f"{name} must be a whole number; received {getattr(self, name)!r}"
                )
        for name, holds, rule in (
            ("beam", 1 <= self.beam <= LARGEST_BEAM, f"from 1 to {LARGEST_BEAM}"),
            ("nbest", 1 <= self.nbest <= self.beam, f"from 1 to beam, which is {self.beam}"),
            ("length_penalty", 0 <= self.length_penalty < 100, "from 0 to 100"),
            ("coverage_penalty", 0 <= self.coverage_penalty < 100, "from 0 to 100"),
            ("no_repeat_ngram", 0 <= self.no_repeat_ngram <= 16, "from 0 to 16"),
            ("temperature", 1e-3 <= self.temperature <= 1e3, "from 0.001 to 1000"),
            ("top_k", self.top_k >= 0, "at least 0"),
            ("top_p", 0 < self.top_p <= 1, "above 0 and at most 1"),
            ("seed", 0 <= self.seed < 2**32, "in [0, 2**32)"),
        ):
            if not holds:
                raise ConfigError(f"{name} must be {rule}; received {getattr(self, name)}")


GREEDY = SearchOptions()
