"""Preparing a run folder: corpus → tokenizers → token ids on disk."""

import io
import json
import logging
import zipfile
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nmt.config import Config, ConfigError, to_json
from nmt.data.corpora import format_dropped, load_corpus, read_tsv
from nmt.data.splitting import SentencePair
from nmt.run_folder import RunFolder, replacing, sha256, write_text
from nmt.text.tokenizer import EOS, train_tokenizer

log = logging.getLogger(__name__)


class Encoded(NamedTuple):
    """Token ids of many sentences in one array, each sentence closed by EOS."""

    ids: np.ndarray  # (all tokens,) int32
    lengths: np.ndarray  # (sentences,) int32, EOS included

    def split(self) -> list[np.ndarray]:
        """Return the ids sentence by sentence (views, nothing is copied)."""
        return np.split(self.ids, np.cumsum(self.lengths)[:-1])


class Prepared(NamedTuple):
    """Encoded training pairs: sentence i of `source` belongs to sentence i of `target`."""

    source: Encoded
    target: Encoded


def encode(tokenizer, texts: Sequence[str]) -> Encoded:
    """Turn cleaned `texts` into ids, each sentence closed by EOS."""
    sentences = [ids + [EOS] for ids in tokenizer.encode(texts)]
    lengths = np.array([len(ids) for ids in sentences], np.int32)
    return Encoded(np.array([i for ids in sentences for i in ids], np.int32), lengths)


def prepare(run: RunFolder, config: Config, record: dict, data_dir: str | None = None) -> Counter:
    """Make `run` ready for training: tokenizers, ids, held-out text, manifest.

    Tokenizers learn from training text only. The manifest is written last, so a folder without
    one is known to be unfinished and is simply prepared again.

    Args:
      run: the folder; made if missing.
      config: what to prepare.
      record: facts for the manifest, such as the command and the versions.
      data_dir: see `load_corpus`.

    Returns:
      The number of pairs dropped, by reason.
    """
    left_over = [path for path in (run.checkpoints, run.weights_file) if path.exists()]
    if left_over:
        raise ConfigError(
            f"{run.path}: not prepared, but holds {' and '.join(path.name for path in left_over)} "
            f"of an earlier run, which would not fit; delete them or choose another run folder"
        )
    corpus = load_corpus(config.data, data_dir)
    splits, dropped = corpus
    source_tokenizer = train_tokenizer(
        [pair.source for pair in splits.train],
        config.model.source_vocab_size,
        spaced=not config.data.source_language.startswith("zh"),
    )
    target_tokenizer = train_tokenizer(
        [pair.target for pair in splits.train],
        config.model.target_vocab_size,
        spaced=not config.data.target_language.startswith("zh"),
    )
    for side, tokenizer in (("source", source_tokenizer), ("target", target_tokenizer)):
        asked = getattr(config.model, f"{side}_vocab_size")
        if tokenizer.vocab_size < asked:
            log.warning(
                "the training text supports %s %s subwords, not %s: that is the vocabulary size",
                f"{tokenizer.vocab_size:,}",
                side,
                f"{asked:,}",
            )

    train, too_long = _encode_pairs(
        splits.train, source_tokenizer, target_tokenizer, config.data.max_tokens
    )
    if too_long:
        dropped[f"longer than {config.data.max_tokens} tokens"] += too_long
    if not len(train.source.lengths):
        raise ConfigError(
            f"no training pair is within data.max_tokens={config.data.max_tokens} tokens a side"
        )

    run.path.mkdir(parents=True, exist_ok=True)
    # From here until the new one is written, the folder is not a prepared run.
    run.manifest_file.unlink(missing_ok=True)
    write_text(run.config_file, to_json(config))
    for file, tokenizer in (
        (run.source_tokenizer_file, source_tokenizer),
        (run.target_tokenizer_file, target_tokenizer),
    ):
        with replacing(file) as temporary:
            temporary.write_bytes(tokenizer.model_proto)
    with replacing(run.train_file) as temporary:
        np.savez(
            temporary,
            source_ids=train.source.ids,
            source_lengths=train.source.lengths,
            target_ids=train.target.ids,
            target_lengths=train.target.lengths,
        )
    _write_tsv(run.validation_file, splits.validation)
    _write_tsv(run.test_file, splits.test)
    facts = {
        **record,
        "pairs": {
            "train": len(train.source.lengths),
            "validation": len(splits.validation),
            "test": len(splits.test),
        },
        "dropped": dict(dropped),
        "vocab_size": {
            "source": source_tokenizer.vocab_size,
            "target": target_tokenizer.vocab_size,
        },
        "sha256": {
            file.name: sha256(file.read_bytes())
            for file in (
                run.source_tokenizer_file,
                run.target_tokenizer_file,
                run.train_file,
                run.validation_file,
                run.test_file,
            )
        },
    }
    write_text(run.manifest_file, json.dumps(facts, indent=2, ensure_ascii=False) + "\n")
    log.info(
        "prepared %s training, %s validation and %s test pairs; %s",
        f"{len(train.source.lengths):,}",
        f"{len(splits.validation):,}",
        f"{len(splits.test):,}",
        format_dropped(dropped),
    )
    return dropped


def load_train(run: RunFolder) -> Prepared:
    """Read the training ids of a prepared run, if they are still those that were prepared."""
    try:
        content = run.train_file.read_bytes()
        if sha256(content) != run.fingerprint()[run.train_file.name]:
            raise ValueError("the file has changed since the run was prepared")
        with np.load(io.BytesIO(content)) as arrays:
            return Prepared(
                Encoded(arrays["source_ids"], arrays["source_lengths"]),
                Encoded(arrays["target_ids"], arrays["target_lengths"]),
            )
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{run.train_file}: cannot read the training ids: {error}") from None


def load_held_out(run: RunFolder, split: str) -> list[SentencePair]:
    """Read the "validation" or "test" pairs of a prepared run."""
    return read_tsv(run.validation_file if split == "validation" else run.test_file)


def encode_pairs(pairs: Sequence[SentencePair], source_tokenizer, target_tokenizer) -> Prepared:
    """Turn sentence pairs into ids, whatever their length."""
    return Prepared(
        encode(source_tokenizer, [pair.source for pair in pairs]),
        encode(target_tokenizer, [pair.target for pair in pairs]),
    )


def _encode_pairs(pairs, source_tokenizer, target_tokenizer, max_tokens):
    """Return the encoded pairs of at most `max_tokens` a side, and the number of the others."""
    every = encode_pairs(pairs, source_tokenizer, target_tokenizer)
    fits = np.maximum(every.source.lengths, every.target.lengths) <= max_tokens
    kept = Prepared(_select(every.source, fits), _select(every.target, fits))
    return kept, int(np.sum(~fits))


def _select(encoded, keep):
    return Encoded(encoded.ids[np.repeat(keep, encoded.lengths)], encoded.lengths[keep])


def _write_tsv(path, pairs):
    write_text(path, "".join(f"{source}\t{target}\n" for source, target in pairs))
