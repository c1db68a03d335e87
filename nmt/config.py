"""Configuration: frozen dataclasses, presets, JSON in and out, typed overrides. No TensorFlow."""

import dataclasses
import difflib
import json
import math
import types
import typing
from pathlib import Path
from typing import Literal


class ConfigError(ValueError):
    """Something a user wrote or pointed to is wrong; the command line prints it as one line."""


def _check(holds, name, rule, received):
    if not holds:
        raise ConfigError(f"{name} must be {rule}; received {received}")


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Where the sentence pairs come from and what is done to them."""

    corpus: str = "tatoeba"  # "tatoeba", "hsk", a .tsv file, or "tfds:NAME[/CONFIG]"
    source_language: str = "en"  # key of the source side in a TFDS translation feature
    target_language: str = "zh"  # key of the target side
    target_script: Literal["keep", "simplified", "traditional"] = "simplified"
    max_tokens: int = 64  # longest side of a training pair, in subwords with EOS, >= 2

    def __post_init__(self):
        _check(self.max_tokens >= 2, "data.max_tokens", "at least 2", self.max_tokens)
        _check(bool(self.corpus), "data.corpus", "not empty", repr(self.corpus))


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Everything that fixes the shape of a Transformer; names as in Vaswani et al. 2017."""

    num_layers: int = 4  # N: layers in the encoder, and again in the decoder
    d_model: int = 128  # width of the residual stream
    num_heads: int = 8  # h: attention heads; divides d_model
    dff: int = 512  # d_ff: inner width of the feed-forward sub-layer
    dropout_rate: float = 0.1  # probability of zeroing, 0 <= rate < 1
    source_vocab_size: int = 8000  # at most; a prepared run holds the tokenizer's real size
    target_vocab_size: int = 8000  # at most; likewise
    norm: Literal["pre", "post"] = "post"  # LayerNorm before each sub-layer, or after (paper)
    tie_embeddings: bool = True  # the output projection is the target embedding, transposed
    attention_dropout_rate: float = 0.0  # of attention weights, as in the authors' own code
    activation_dropout_rate: float = 0.0  # behind the ReLU of the feed-forward layers, likewise

    def __post_init__(self):
        for name in ("num_layers", "d_model", "num_heads", "dff"):
            _check(getattr(self, name) >= 1, f"model.{name}", "at least 1", getattr(self, name))
        for name in ("source_vocab_size", "target_vocab_size"):
            _check(getattr(self, name) >= 4, f"model.{name}", "at least 4", getattr(self, name))
        for name in ("dropout_rate", "attention_dropout_rate", "activation_dropout_rate"):
            value = getattr(self, name)
            _check(0 <= value < 1, f"model.{name}", "in [0, 1)", value)
        _check(
            self.d_model % self.num_heads == 0,
            "model.d_model",
            "divisible by model.num_heads",
            f"d_model={self.d_model}, num_heads={self.num_heads}",
        )
        # Sine and cosine come in pairs.
        _check(self.d_model % 2 == 0, "model.d_model", "even", self.d_model)


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """How a model is trained. Training ends at whichever limit is reached first."""

    batch_tokens: int = 4096  # padded source + target positions in a batch: one update
    batch_parts: int = 1  # pieces of a batch that are computed side by side, on a thread each
    accumulation: int = 1  # pieces of a batch computed one after another, to save memory
    optimizer: Literal["adam", "muon"] = "adam"  # adam: the paper's; muon: learns in fewer steps
    warmup_steps: int = 4000  # steps over which the learning rate rises
    peak_learning_rate: float | None = None  # at warmup_steps; None: the paper's own scale
    clip_norm: float | None = None  # longest gradient, over all weights together; None: any
    label_smoothing: float = 0.1  # epsilon_ls, mass spread over the vocabulary, 0 <= e < 1
    weight_average: float = 0.0  # decay per step of the averaged weights; 0: no averaging
    max_epochs: int | None = None  # passes over the training pairs
    max_steps: int | None = None  # optimizer updates
    max_minutes: float | None = None  # minutes of training, validation and saving included
    checkpoint_minutes: float = 5.0  # minutes between checkpoints with validation, > 0
    checkpoint_steps: int | None = None  # steps between them, instead of minutes
    keep_checkpoints: int = 3  # newest checkpoints kept on disk
    validation_sentences: int = 0  # validation pairs translated at every checkpoint, for BLEU
    patience: int | None = None  # stop after so many validations without a better BLEU
    precision: Literal["auto", "float32", "bfloat16"] = "float32"  # auto: bfloat16 if in hardware
    deterministic: bool = False  # same command, same machine: the same bits; somewhat slower
    seed: int = 1  # of weights, dropout and batch order

    def __post_init__(self):
        for name in (
            *("batch_tokens", "batch_parts", "accumulation", "warmup_steps"),
            *("keep_checkpoints", "patience", "checkpoint_steps"),
        ):
            value = getattr(self, name)
            _check(value is None or value >= 1, f"training.{name}", "at least 1", value)
        for name in (
            *("peak_learning_rate", "clip_norm"),
            *("max_epochs", "max_steps", "max_minutes"),
        ):
            value = getattr(self, name)
            _check(value is None or value > 0, f"training.{name}", "positive", value)
        _check(
            self.checkpoint_minutes > 0,
            "training.checkpoint_minutes",
            "positive",
            self.checkpoint_minutes,
        )
        _check(
            self.validation_sentences >= 0,
            "training.validation_sentences",
            "at least 0",
            self.validation_sentences,
        )
        _check(
            self.patience is None or self.validation_sentences > 0,
            "training.patience",
            "null unless training.validation_sentences says how many are translated for BLEU",
            self.patience,
        )
        _check(0 <= self.seed < 2**32, "training.seed", "in [0, 2**32)", self.seed)
        for name in ("label_smoothing", "weight_average"):
            value = getattr(self, name)
            _check(0 <= value < 1, f"training.{name}", "in [0, 1)", value)


@dataclasses.dataclass(frozen=True)
class Config:
    """A whole experiment."""

    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()


PRESETS = {
    # Small enough to learn something on two CPU cores in six minutes: few subwords that are seen
    # often, small batches that make many updates, an optimizer that gets much out of each, no
    # dropout in so few epochs.
    "quickstart": Config(
        data=DataConfig(max_tokens=40),
        model=ModelConfig(
            3, 128, 4, 512, 0.0, source_vocab_size=3000, target_vocab_size=4000, norm="pre"
        ),
        training=TrainingConfig(
            batch_tokens=1024,
            batch_parts=2,
            optimizer="muon",
            warmup_steps=400,
            peak_learning_rate=3e-3,
            weight_average=0.998,
            max_minutes=6.5,
            checkpoint_minutes=2.0,
            precision="auto",
        ),
    ),
    # The size of the classic TensorFlow tutorial: post-norm, no tying, no smoothing.
    "tutorial": Config(
        data=DataConfig(max_tokens=40),
        model=ModelConfig(tie_embeddings=False),
        training=TrainingConfig(batch_parts=2, label_smoothing=0.0, max_epochs=20),
    ),
    # For the same corpora and hours instead of minutes: more epochs, so dropout.
    "small": Config(
        model=ModelConfig(
            *(4, 256, 4, 1024), source_vocab_size=3000, target_vocab_size=4000, norm="pre"
        ),
        training=TrainingConfig(
            batch_tokens=1024,
            batch_parts=2,
            optimizer="muon",
            warmup_steps=400,
            peak_learning_rate=3e-3,
            weight_average=0.998,
            max_epochs=20,
            validation_sentences=200,
            patience=10,
            precision="auto",
        ),
    ),
    # Table 3 of the paper. Its batches held 25,000 source and 25,000 target tokens.
    "base": Config(
        data=DataConfig(max_tokens=256),
        model=ModelConfig(6, 512, 8, 2048, source_vocab_size=32000, target_vocab_size=32000),
        training=TrainingConfig(
            batch_tokens=50000, max_steps=100_000, checkpoint_minutes=30.0, validation_sentences=500
        ),
    ),
    "big": Config(
        data=DataConfig(max_tokens=256),
        model=ModelConfig(6, 1024, 16, 4096, 0.3, source_vocab_size=32000, target_vocab_size=32000),
        training=TrainingConfig(
            batch_tokens=50000, max_steps=300_000, checkpoint_minutes=30.0, validation_sentences=500
        ),
    ),
}


def preset(name: str) -> Config:
    """Return the preset called `name`; ConfigError lists the near names otherwise."""
    if name not in PRESETS:
        raise ConfigError(f"unknown preset {name!r}; {_suggest(name, PRESETS)}")
    return PRESETS[name]


def override(config: Config, assignments: list[str]) -> Config:
    """Return `config` with typed assignments such as `model.dropout_rate=0.2` applied.

    All assignments take effect together, so two values that must agree (d_model and num_heads)
    may both be changed.

    Raises:
      ConfigError: not KEY=VALUE, an unknown key (the near ones are named), a value of another
        type, or a value out of range.
    """
    sections: dict[str, dict] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        section, dot, field = key.strip().partition(".")
        if not equals or not dot:
            raise ConfigError(
                f"expected SECTION.KEY=VALUE, as in model.d_model=256; received {assignment!r}"
            )
        if field in sections.setdefault(section, {}):
            raise ConfigError(f"{section}.{field} is given twice")
        try:
            value = json.loads(text)
        except ValueError:  # no JSON, or a number of thousands of digits: words are text
            value = text
        sections[section][field] = value
    return _merge(config, sections)


def differences(current: Config, wanted: Config, ignoring: tuple[str, ...]) -> list[str]:
    """Return what `wanted` changes, a sentence for each key that is not in `ignoring`."""
    return [
        f"{section}.{key} is {before!r}, not {vars(getattr(wanted, section))[key]!r}"
        for section in _fields(Config)
        for key, before in vars(getattr(current, section)).items()
        if before != vars(getattr(wanted, section))[key] and key not in ignoring
    ]


def to_json(config: Config) -> str:
    """Return `config` as indented JSON."""
    return json.dumps(dataclasses.asdict(config), indent=2, ensure_ascii=False) + "\n"


def read_json(path: str | Path, base: Config | None = None) -> Config:
    """Read a configuration file; what it leaves out comes from `base`.

    Raises:
      ConfigError: the file is missing, is not JSON, holds a key that is unknown or given twice,
        or a value of the wrong type or range. The message names the file.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot read the configuration: {error}") from None
    try:
        sections = json.loads(text, object_pairs_hook=_unique_keys)
        if not isinstance(sections, dict):
            raise ConfigError(
                f"the file must hold an object with {', '.join(_fields(Config))}; "
                f"received {type(sections).__name__}"
            )
        return _merge(base or Config(), sections)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}:{error.lineno}: not JSON: {error.msg}") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _unique_keys(pairs):
    result = dict(pairs)
    if len(result) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ConfigError(f"key {twice!r} is given twice")
    return result


def _merge(config: Config, sections: dict) -> Config:
    changed = {}
    for section, values in sections.items():
        if section not in _fields(Config):
            raise ConfigError(f"unknown section {section!r}; {_suggest(section, _fields(Config))}")
        if not isinstance(values, dict):
            raise ConfigError(f"{section} must be an object; received {values!r}")
        current = getattr(config, section)
        hints = typing.get_type_hints(type(current))
        for field, value in values.items():
            if field not in hints:
                raise ConfigError(f"unknown key {section}.{field}; {_suggest(field, hints)}")
            values = {**values, field: _typed(f"{section}.{field}", value, hints[field])}
        changed[section] = dataclasses.replace(current, **values)
    return dataclasses.replace(config, **changed)


def _typed(name, value, hint):
    """Return `value` as the type `hint`, or raise ConfigError; 1 is accepted as 1.0."""
    if typing.get_origin(hint) is Literal:
        choices = typing.get_args(hint)
        if value not in choices:
            raise ConfigError(f"{name} must be one of {', '.join(choices)}; received {value!r}")
        return value
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if value is None and type(None) in kinds:
        return None
    if float in kinds and type(value) is int and abs(value) < 2**53:
        return float(value)
    if type(value) not in kinds or (type(value) is float and not math.isfinite(value)):
        wanted = " or ".join("null" if kind is type(None) else kind.__name__ for kind in kinds)
        raise ConfigError(f"{name} must be {wanted}; received {value!r}")
    return value


def _fields(cls):
    return [field.name for field in dataclasses.fields(cls)]


def _suggest(name, choices):
    near = difflib.get_close_matches(name, list(choices), n=3, cutoff=0.5)
    if near:
        return f"did you mean {' or '.join(near)}? Allowed: {', '.join(choices)}"
    return f"allowed: {', '.join(choices)}"
