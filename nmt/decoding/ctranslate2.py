"""Translating with CTranslate2, a C++ engine for CPUs. No TensorFlow.

Greedy search finds what ours finds. Beam search is another kind: it goes on until as many
hypotheses have ended as the beam is wide, and one that ends makes room for another, where ours
freezes it. What it finds is ranked as ours is: by the log-probability over ((5 + length) / 6)^α,
which CTranslate2 itself would divide by length^α. Sampling by `top_k` and `top_p` together takes
`top_p` of the probability that the `top_k` tokens have, ours of that which all tokens have.
"""

import dataclasses
import itertools
import math
import os
import threading
import time
import weakref
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, overload

import ctranslate2
import numpy as np

from nmt.config import ConfigError
from nmt.decoding.exported import read_description
from nmt.decoding.options import GREEDY, SearchOptions
from nmt.decoding.sentences import (
    EXTRA_TARGET_TOKENS,
    best_first,
    by_length,
    encode_sentences,
    make_translation,
)
from nmt.decoding.translation import Translation
from nmt.run_folder import sha256
from nmt.text.tokenizer import BOS, EOS, PAD, Tokenizer, load_tokenizer

MODEL_FILES = ("model.bin", "config.json", "source_vocabulary.json", "target_vocabulary.json")
TOKENIZER_FILES = ("source.model", "target.model")

# The seed of CTranslate2 belongs to the process, and a thread looks at it once in its life.
_SEEDING = threading.Lock()


class _Sentence(NamedTuple):
    """What is to be translated, in subwords."""

    source: list[str]  # with EOS
    prefix: list[str]  # what the translation must begin with
    limit: int  # most tokens of the translation, EOS and prefix included


class _Hypothesis(NamedTuple):
    """What the search found."""

    ids: tuple[int, ...]  # with EOS, unless the limit stopped it
    log_prob: float  # of all tokens together, nats, as the search counts it
    token_log_probs: list[float] | None = None  # None: not known yet
    attention_TS: np.ndarray | None = None  # mean of the last layer's heads, if asked for


class CTranslate2Translator:
    """An exported model with its tokenizers; translates as a `Translator` does."""

    def __init__(
        self,
        folder: str | Path,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        target_language: str = "zh",
        segment_tokens: int = 64,
    ):
        self._folder = Path(folder)
        self._engine = _open(self._folder, _cores())
        # Also at the end of the process, before Python is taken down.
        weakref.finalize(self, _settle, self._engine)
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.target_language = target_language
        self.segment_tokens = segment_tokens
        pieces = target_tokenizer.pieces(range(target_tokenizer.vocab_size))
        self._ids = {piece: i for i, piece in enumerate(pieces)}
        self._forbidden = [[pieces[BOS]], [pieces[PAD]]]

    @overload
    def translate(
        self,
        texts: str,
        options: SearchOptions = ...,
        *,
        attention: bool = False,
        prefixes: str | None = None,
        batch_tokens: int = 2048,
    ) -> Translation: ...

    @overload
    def translate(
        self,
        texts: list[str],
        options: SearchOptions = ...,
        *,
        attention: bool = False,
        prefixes: list[str] | None = None,
        batch_tokens: int = 2048,
    ) -> list[Translation]: ...

    def translate(
        self,
        texts: str | list[str],
        options: SearchOptions = GREEDY,
        *,
        attention: bool = False,
        prefixes: str | list[str] | None = None,
        batch_tokens: int = 2048,
    ) -> Translation | list[Translation]:
        """Translate one sentence, or several at once; see `Translator.translate`.

        Raises:
          ConfigError: attention is asked for, which CTranslate2 has of one layer only.
          ValueError: as from `Translator.translate`.
        """
        if attention:
            raise ConfigError(
                "CTranslate2 does not give the attention of all layers and heads; "
                "use `--engine tensorflow` for it"
            )
        if isinstance(texts, str):
            prefixes = [prefixes] if isinstance(prefixes, str) else None
            return self.translate([texts], options, prefixes=prefixes)[0]
        sources = encode_sentences(self.source_tokenizer, texts)
        if prefixes is not None and len(prefixes) != len(texts):
            raise ValueError(
                f"each of the {len(texts)} sentences needs a prefix, or none of them; received "
                f"{len(prefixes)} prefixes"
            )
        forced = encode_sentences(self.target_tokenizer, prefixes or [""] * len(texts))
        results = [Translation(text, "") for text in texts]
        if options.sampling and options.top_k == 1:  # nothing is left to chance
            options = dataclasses.replace(options, sampling=False, beam=1, nbest=1)

        def translate_batch(indices):
            batch = [self._sentence(sources[i], forced[i][:-1]) for i in indices]
            found = [_best(each, options) for each in self._search(batch, options)]
            found = self._with_log_probs(batch, found, options)
            for index, sentence, hypotheses in zip(indices, batch, found, strict=True):
                results[index] = self._translation(texts[index], sentence, hypotheses, options)

        # Every core takes batches of its own; of few sentences, each core its share.
        share = math.ceil(len(texts) / _cores()) * max(map(len, sources), default=0)
        batches = by_length(sources, min(batch_tokens // options.beam, share))
        with ThreadPoolExecutor(_cores()) as pool:
            list(pool.map(translate_batch, batches))
        return results

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[Translation]:
        """Return given translations with the log-probability of each of their tokens.

        See `Translator.score`.
        """
        if len(sources) != len(targets):
            raise ValueError(
                f"each source needs one target; received {len(sources)} sources and "
                f"{len(targets)} targets"
            )
        source_ids = encode_sentences(self.source_tokenizer, sources)
        target_ids = encode_sentences(self.target_tokenizer, targets)
        results = [Translation(*pair) for pair in zip(sources, targets, strict=True)]
        for indices in by_length(source_ids, batch_tokens=1024):
            batch = [self._sentence(source_ids[i], []) for i in indices]
            ids = [tuple(map(int, target_ids[i])) or (EOS,) for i in indices]
            log_probs = self._log_probs([sentence.source for sentence in batch], ids)
            for row, index in enumerate(indices):
                results[index] = results[index]._replace(
                    source_tokens=batch[row].source,
                    target_tokens=self.target_tokenizer.pieces(ids[row]),
                    token_log_probs=log_probs[row],
                    score=sum(log_probs[row]),
                )
        return results

    def _sentence(self, source_ids, prefix_ids):
        return _Sentence(
            self.source_tokenizer.pieces(source_ids),
            self.target_tokenizer.pieces(prefix_ids),
            len(source_ids) + EXTRA_TARGET_TOKENS + len(prefix_ids),
        )

    def _search(self, batch, options):
        """Return the hypotheses of each sentence, in any order."""
        if options.sampling:
            return [self._draw(sentence, options) for sentence in batch]
        if options.coverage_penalty:
            # In a batch, CTranslate2 4.8 gives the beams of shorter sentences wrong attention.
            found = [self._beam([sentence], options)[0] for sentence in batch]
        else:
            found = (self._greedy if options.beam == 1 else self._beam)(batch, options)
        # A beam search has one limit for the whole batch, and no token is forbidden in either, as
        # CTranslate2 would distribute its probability over the others. Where a sentence made use
        # of that, it is done again on its own.
        return [
            hypotheses
            if all(_obeys(each, sentence.limit) for each in hypotheses)
            else self._beam([sentence], options, suppress_sequences=self._forbidden)[0]
            for sentence, hypotheses in zip(batch, found, strict=True)
        ]

    def _greedy(self, batch, options):
        """Search greedily, and watch each token: that tells probabilities, and stops in time."""
        found: list[tuple[list[int], list[float]]] = [([], []) for _ in batch]

        def is_last(step):
            ids, log_probs = found[step.batch_id]
            ids.append(step.token_id)
            log_probs.append(step.log_prob)
            return len(ids) >= batch[step.batch_id].limit

        self._engine.translate_batch(**_arguments(batch, options), beam_size=1, callback=is_last)
        return [
            [
                _Hypothesis(
                    tuple(ids),
                    sum(log_probs),
                    # What is forced, or forbidden, is not counted as the model would.
                    None if sentence.prefix or options.no_repeat_ngram else log_probs,
                )
            ]
            for sentence, (ids, log_probs) in zip(batch, found, strict=True)
        ]

    def _beam(self, batch, options, **more):
        results = self._engine.translate_batch(
            **_arguments(batch, options),
            beam_size=options.beam,
            num_hypotheses=options.beam,
            return_attention=bool(options.coverage_penalty),
            **more,
        )
        return [self._hypotheses(result, options) for result in results]

    def _draw(self, sentence, options):
        """Draw translations of one sentence, by a chance that depends on it and the seed only."""
        with _SEEDING:
            seed = zlib.crc32("".join(sentence.source).encode(), options.seed)
            ctranslate2.set_random_seed(seed % (2**32 - 1))  # the last one means: by the clock
            results = _open(self._folder, 1).translate_batch(
                **_arguments([sentence], options),
                beam_size=1,
                num_hypotheses=options.beam,
                return_attention=bool(options.coverage_penalty),
                sampling_topk=min(options.top_k, self.target_tokenizer.vocab_size),
                sampling_topp=options.top_p,
                sampling_temperature=options.temperature,
                suppress_sequences=self._forbidden,
            )
        return self._hypotheses(results[0], options)

    def _hypotheses(self, result, options):
        """Return what CTranslate2 found for a sentence."""
        return [
            _Hypothesis(
                tuple(self._ids[token] for token in tokens),
                score * len(tokens) ** options.length_penalty,
                attention_TS=attention,
            )
            for tokens, score, attention in itertools.zip_longest(
                result.hypotheses, result.scores, map(np.array, result.attention)
            )
        ]

    def _with_log_probs(self, batch, found, options):
        """Return the hypotheses of a batch with the log-probability of each token, best first."""
        unknown = [
            (sentence, hypothesis)
            for sentence, hypotheses in zip(batch, found, strict=True)
            for hypothesis in hypotheses
            if hypothesis.token_log_probs is None
        ]
        if not unknown:
            return found
        log_probs = iter(
            self._log_probs(
                [sentence.source for sentence, _ in unknown], [each.ids for _, each in unknown]
            )
        )

        def known(hypothesis):
            if hypothesis.token_log_probs is not None:
                return hypothesis
            values = next(log_probs)
            return hypothesis._replace(log_prob=sum(values), token_log_probs=values)

        return [_best(map(known, hypotheses), options) for hypotheses in found]

    def _log_probs(self, sources, targets):
        """Return the log-probability of each token of target ids, given those before it."""
        # CTranslate2 puts an EOS behind every target by itself.
        tokens = [
            self.target_tokenizer.pieces(ids[:-1] if ids[-1] == EOS else ids) for ids in targets
        ]
        scored = self._engine.score_batch(sources, tokens, max_input_length=0)
        return [
            [float(value) for value in result.log_probs[: len(ids)]]
            for result, ids in zip(scored, targets, strict=True)
        ]

    def _translation(self, text, sentence, hypotheses, options):
        """Return the best hypothesis as a Translation, with the others as its alternatives."""
        translations = [
            make_translation(
                text,
                sentence.source,
                each.ids,
                each.token_log_probs,
                _score(each, options),
                self.target_tokenizer,
            )
            for each in hypotheses
        ]
        return best_first(translations, options.nbest)


def load_ctranslate2(path: str | Path) -> CTranslate2Translator:
    """Load a folder that `nmt export --format ctranslate2` wrote; the run is not needed.

    Raises:
      ConfigError: the folder is missing, incomplete, damaged, or something else.
    """
    folder = Path(path)
    description = read_description(folder)
    if not description.format.startswith("ctranslate2"):
        raise ConfigError(f"{folder}: exported as {description.format}, not for CTranslate2")
    missing = [name for name in (*MODEL_FILES, *TOKENIZER_FILES) if not (folder / name).is_file()]
    if missing:
        raise ConfigError(f"{folder}: incomplete export: {', '.join(missing)} missing")
    for name in TOKENIZER_FILES:
        if sha256((folder / name).read_bytes()) != description.sha256.get(name):
            raise ConfigError(f"{folder / name}: the vocabulary has changed; export the run again")
    source, target = (load_tokenizer(folder / name) for name in TOKENIZER_FILES)
    try:
        return CTranslate2Translator(
            folder, source, target, description.target_language, description.segment_tokens
        )
    except (RuntimeError, ValueError) as error:  # whatever C++ found in the files
        raise ConfigError(f"{folder}: cannot load the model: {error}") from None


def _open(folder, threads):
    """Open the model for so many sentences, or batches, at a time, each on one core.

    Cores that share a sentence wait for each other at every operation: of a small model that
    takes longer than it saves, and many times longer where other programs run.
    """
    return ctranslate2.Translator(str(folder), device="cpu", inter_threads=threads, intra_threads=1)


def _settle(engine):
    """Wait until the thread of the engine has let go of what it called back.

    It does so a moment after the result is there. If Python ends in that moment, it aborts.
    """
    while engine.num_active_batches:
        time.sleep(0.001)


def _cores():
    """Return how many cores this process may use; in a container, not all that there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _arguments(batch, options):
    """Return what every search here tells CTranslate2."""
    prefixes = [sentence.prefix for sentence in batch]
    return dict(
        source=[sentence.source for sentence in batch],
        target_prefix=prefixes if any(prefixes) else None,
        max_input_length=0,  # no limit: `encode_sentences` has one
        min_decoding_length=0,  # an EOS may come at once
        max_decoding_length=max(sentence.limit for sentence in batch),
        length_penalty=options.length_penalty,
        no_repeat_ngram_size=options.no_repeat_ngram,
        return_scores=True,
        return_end_token=True,
    )


def _obeys(hypothesis, limit):
    return len(hypothesis.ids) <= limit and not {BOS, PAD}.intersection(hypothesis.ids)


def _best(hypotheses, options):
    """Return the `nbest` distinct hypotheses, best first; the truncated come last."""
    ranked = sorted(hypotheses, key=lambda each: (each.ids[-1] != EOS, -_score(each, options)))
    return list({each.ids: each for each in ranked}.values())[: options.nbest]


def _score(hypothesis, options):
    """Return what hypotheses are ranked by (Wu et al. 2016, equation 14)."""
    penalty = ((5 + len(hypothesis.ids)) / 6) ** options.length_penalty
    score = hypothesis.log_prob / penalty
    if options.coverage_penalty:
        got_S = hypothesis.attention_TS.sum(axis=0)
        score += options.coverage_penalty * float(np.log(np.clip(got_S, 1e-6, 1.0)).sum())
    return score
