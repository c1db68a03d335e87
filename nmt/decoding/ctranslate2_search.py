"""The search of CTranslate2, with our rules, limits and ranking around it. Subwords in and out.

Greedy search finds what ours finds. Beam search is another kind: it goes on until as many
hypotheses have ended as the beam is wide, and one that ends makes room for another, where ours
freezes it. What it finds is ranked as ours is: by the log-probability over ((5 + length) / 6)^α,
which CTranslate2 itself would divide by length^α. Sampling by `top_k` and `top_p` together takes
`top_p` of the probability that the `top_k` tokens have, ours of that which all tokens have.
"""

import dataclasses
import itertools
import os
import threading
import time
import weakref
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import ctranslate2
import numpy as np

from nmt.decoding.options import SearchOptions
from nmt.decoding.sentences import coverage
from nmt.text.tokenizer import BOS, EOS, PAD

# The seed of CTranslate2 belongs to the process, and a thread looks at it once in its life.
_SEEDING = threading.Lock()


class Sentence(NamedTuple):
    """What is to be translated, in subwords."""

    source: list[str]  # with EOS
    prefix: list[str]  # what the translation must begin with
    limit: int  # most tokens of the translation, EOS and prefix included


class Hypothesis(NamedTuple):
    """What the search found."""

    ids: tuple[int, ...]  # with EOS, unless the limit stopped it
    log_prob: float  # of all tokens together, nats, as the search counts it
    token_log_probs: list[float] | None = None  # None: not known yet
    attention_TS: np.ndarray | None = None  # mean of the last layer's heads, if it is needed
    score: float = 0.0  # what hypotheses are ranked by


class CTranslate2Searcher:
    """Finds translations of subwords. Several threads may ask it at a time."""

    def __init__(self, folder: Path, target_pieces: Sequence[str]):
        self._folder = folder
        self._engine = _open(folder, cores())
        # Also at the end of the process, before Python is taken down.
        weakref.finalize(self, _settle, self._engine)
        self._pieces = target_pieces
        self._ids = {piece: i for i, piece in enumerate(target_pieces)}
        self._forbidden = [[target_pieces[BOS]], [target_pieces[PAD]]]

    def search(self, batch: Sequence[Sentence], options: SearchOptions) -> list[list[Hypothesis]]:
        """Return the `nbest` hypotheses of each sentence, best first, with all that is known."""
        if options.sampling and options.top_k == 1:  # nothing is left to chance
            options = dataclasses.replace(options, sampling=False, beam=1, nbest=1)
        found = [_best(each, options) for each in self._search(batch, options)]
        unknown = [
            (sentence.source, hypothesis.ids)
            for sentence, hypotheses in zip(batch, found, strict=True)
            for hypothesis in hypotheses
            if hypothesis.token_log_probs is None
        ]
        if not unknown:
            return found
        log_probs = iter(self.log_probs(*zip(*unknown, strict=True)))

        def known(hypothesis):
            if hypothesis.token_log_probs is not None:
                return hypothesis
            values = next(log_probs)
            return hypothesis._replace(log_prob=sum(values), token_log_probs=values)

        return [_best(map(known, hypotheses), options) for hypotheses in found]

    def log_probs(
        self, sources: Sequence[list[str]], targets: Sequence[Sequence[int]]
    ) -> list[list[float]]:
        """Return the log-probability of each token of target ids, given those before it."""
        # CTranslate2 puts an EOS behind every target by itself.
        tokens = [
            [self._pieces[i] for i in (ids[:-1] if ids[-1] == EOS else ids)] for ids in targets
        ]
        scored = self._engine.score_batch(sources, tokens, max_input_length=0)
        return [
            [float(value) for value in result.log_probs[: len(ids)]]
            for result, ids in zip(scored, targets, strict=True)
        ]

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
                Hypothesis(
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
                sampling_topk=min(options.top_k, len(self._pieces)),
                sampling_topp=options.top_p,
                sampling_temperature=options.temperature,
                suppress_sequences=self._forbidden,
            )
        return self._hypotheses(results[0], options)

    def _hypotheses(self, result, options):
        """Return what CTranslate2 found for a sentence."""
        return [
            Hypothesis(
                tuple(self._ids[token] for token in tokens),
                score * len(tokens) ** options.length_penalty,
                attention_TS=attention,
            )
            for tokens, score, attention in itertools.zip_longest(
                result.hypotheses, result.scores, map(np.array, result.attention)
            )
        ]


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


def cores() -> int:
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
    """Return the `nbest` distinct hypotheses with their scores, best first, truncated ones last."""
    scored = [each._replace(score=_score(each, options)) for each in hypotheses]
    ranked = sorted(scored, key=lambda each: (each.ids[-1] != EOS, -each.score))
    return list({each.ids: each for each in ranked}.values())[: options.nbest]


def _score(hypothesis, options):
    """Return what hypotheses are ranked by (Wu et al. 2016, equation 14)."""
    penalty = ((5 + len(hypothesis.ids)) / 6) ** options.length_penalty
    score = hypothesis.log_prob / penalty
    if options.coverage_penalty:
        score += options.coverage_penalty * coverage(hypothesis.attention_TS)
    return score
