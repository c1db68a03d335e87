"""Models behind token ids: search, scoring and attention, each traced once."""

import os
import sys
import threading
import zlib
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from nmt.decoding.arranged import arrange
from nmt.decoding.options import GREEDY, SearchOptions
from nmt.decoding.search import (
    Hypotheses,
    beam_search,
    follow,
    most_likely,
    permit_tokens,
    sampler,
)
from nmt.decoding.sentences import EXTRA_TARGET_TOKENS
from nmt.decoding.stepping import cached_step, mean_probability
from nmt.decoding.translation import Attention
from nmt.model.transformer import Transformer
from nmt.text.tokenizer import BOS, EOS, PAD

# Source lengths, EOS included, for which `compile_ahead` makes machine code.
COMPILED_LENGTHS = (16, 32, 64)

# A batch of several is searched for so many tokens more than its sources have, before those that
# have not ended are put into a batch of their own.
FIRST_EXTRA_TOKENS = 6

_TOKENS = dict(bos=BOS, eos=EOS, pad=PAD)
_IDS = tf.TensorSpec([None, None], tf.int32)
_INT = tf.TensorSpec([], tf.int32)
_FLOAT = tf.TensorSpec([], tf.float32)


class Searcher:
    """Finds translations of token ids. Arrays in, arrays out."""

    def __init__(self, models: Sequence[Transformer]):
        self.models = list(models)
        arranged = [arrange(model) for model in models]
        self._weights = tf.nest.map_structure(lambda value: tf.Variable(value, False), arranged)
        self._attend = tf.function(self._all_attention, [_IDS, _IDS], autograph=False)
        self._score = tf.function(self._token_log_probs, [_IDS, _IDS, _IDS], autograph=False)
        self._traced: dict[tuple, Callable] = {}
        self._compiled: dict[int, Callable] = {}  # by source length

    def search(
        self,
        source_ids: np.ndarray,
        options: SearchOptions = GREEDY,
        prefix_ids: np.ndarray | None = None,
    ) -> Hypotheses:
        """Search for translations of (B, S) int32 source ids, closed by EOS, then PAD.

        Args:
          source_ids: as above.
          options: how to search. The coverage penalty is applied later, by whoever has attention.
          prefix_ids: (B, P) int32, tokens that a translation must begin with, then PAD.
        """
        limits = _lengths(source_ids) + np.int32(EXTRA_TARGET_TOKENS)
        compiled = self._compiled_for(source_ids, options, prefix_ids)
        if compiled is not None:
            return _arrays(compiled(source_ids, limits, options.length_penalty))
        if prefix_ids is not None:
            limits = limits + _lengths(prefix_ids)
        inputs = (
            source_ids,
            limits,
            prefix_ids if prefix_ids is not None else np.zeros((len(limits), 0), np.int32),
            _uniforms(source_ids, limits, options),
        )
        # Which hypothesis is first, the coverage penalty may change: all have to be right.
        nbest = options.beam if options.coverage_penalty else options.nbest
        of_length = (nbest, options.length_penalty)
        settings = (*of_length, options.temperature, options.top_k, options.top_p)
        search = self._traced_for(options, prefix_ids is not None)
        steps = max(limits)
        if len(limits) > 1:
            # A batch lasts as long as its longest translation. The few that want much more than
            # their source are searched again, together, so that the others need not wait.
            steps = steps - EXTRA_TARGET_TOKENS + FIRST_EXTRA_TOKENS
        found = _arrays(search(*inputs, *settings, steps))
        again = ~found.settled
        if again.any():
            rest = _arrays(search(*(each[again] for each in inputs), *settings, max(limits[again])))
            found = _merged(found, rest, again)
        return found

    def refresh(self) -> None:
        """Search with the weights that the models have now, after they were changed."""
        arranged = [arrange(model) for model in self.models]
        tf.nest.map_structure(lambda mine, new: mine.assign(new), self._weights, arranged)

    def attend(self, source_ids: np.ndarray, target_ids: np.ndarray) -> Attention:
        """Return the attention by which `target_ids` (B, T) are predicted, each (L, B, H, Q, K).

        One teacher-forced pass over the finished translations: it gives what the steps of the
        search saw, at a fraction of the cost of carrying it through the search. With several
        models, that of the first.
        """
        first = np.full((len(target_ids), 1), BOS, np.int32)
        target_in = np.concatenate([first, target_ids[:, :-1]], axis=1)
        return Attention(*(value.numpy() for value in self._attend(source_ids, target_in)))

    def log_probs(self, source_ids, target_in_ids, target_out_ids) -> np.ndarray:
        """Return the log-probability (B, T) of each target token given those before it."""
        return self._score(source_ids, target_in_ids, target_out_ids).numpy()

    def compile_ahead(self) -> threading.Thread:
        """Make machine code (XLA) for single sentences of usual lengths, beside other work.

        Worth its half minute where many sentences come one by one, as in a server: greedy search
        of a single sentence takes that way as soon as there is one for its length.
        """

        def compile_lengths():
            if sys.platform == "linux":  # where a thread has a priority of its own
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
            for length in COMPILED_LENGTHS:
                compiled = self._compile(length)
                compiled(np.full((1, length), EOS, np.int32), np.array([1], np.int32), 0.0)
                self._compiled[length] = compiled

        thread = threading.Thread(target=compile_lengths, name="compile_ahead", daemon=True)
        thread.start()
        return thread

    def _arranged(self):
        """Return the weights as tensors, and the shape, of each model."""
        weights = tf.nest.map_structure(tf.convert_to_tensor, self._weights)
        return [(each, model.config) for each, model in zip(weights, self.models, strict=True)]

    def _traced_for(self, options, has_prefix):
        """Return the search as a graph: what changes it is its key, all else an argument."""
        key = (options.beam, options.sampling, options.no_repeat_ngram, has_prefix)
        if key in self._traced:
            return self._traced[key]
        paths, sampling, no_repeat_ngram, _ = key

        def search(
            source, limits, prefix, uniforms, nbest, alpha, temperature, top_k, top_p, steps
        ):
            step, state = cached_step(self._arranged(), source, paths)
            permit = permit_tokens(
                forbidden=[BOS, PAD],
                pad=PAD,
                prefix_BP=prefix if has_prefix else None,
                no_repeat_ngram=no_repeat_ngram,
            )
            common = dict(**_TOKENS, permit=permit, alpha=alpha, steps=steps)
            if paths > 1 and not sampling:
                return beam_search(step, state, limits, **common, beam=paths, nbest=nbest)
            choose = sampler(uniforms, temperature, top_k, top_p) if sampling else most_likely
            return follow(step, state, limits, **common, choose=choose, paths=paths)

        lengths = tf.TensorSpec([None], tf.int32)
        uniforms = tf.TensorSpec([None, None, None], tf.float32)
        signature = [_IDS, lengths, _IDS, uniforms, _INT, _FLOAT, _FLOAT, _INT, _FLOAT, _INT]
        traced = tf.function(search, signature, autograph=False)
        self._traced[key] = traced.get_concrete_function()
        return self._traced[key]

    def _compile(self, length):
        """Return greedy search of one sentence in fixed shapes, for XLA."""
        permit = permit_tokens(forbidden=[BOS, PAD], pad=PAD)
        longest = length + EXTRA_TARGET_TOKENS

        def search(source, limits, alpha):
            step, state = cached_step(self._arranged(), source, 1, longest)
            return follow(
                *(step, state, limits), **_TOKENS, permit=permit, alpha=alpha, longest=longest
            )

        signature = [tf.TensorSpec([1, length], tf.int32), tf.TensorSpec([1], tf.int32), _FLOAT]
        compiled = tf.function(search, signature, autograph=False, jit_compile=True)
        compiled = compiled.get_concrete_function()

        def fit(source_ids, limits, alpha):
            room = [(0, 0), (0, length - source_ids.shape[1])]
            return compiled(np.pad(source_ids, room, constant_values=PAD), limits, alpha)

        return fit

    def _compiled_for(self, source_ids, options, prefix_ids):
        """Return the compiled search that fits, if there is one."""
        greedy = options.beam == 1 and not options.sampling and not options.no_repeat_ngram
        if not greedy or prefix_ids is not None or len(source_ids) != 1:
            return None
        fitting = [length for length in self._compiled if length >= source_ids.shape[1]]
        return self._compiled[min(fitting)] if fitting else None

    def _all_attention(self, source_ids, target_in_ids):
        model = self.models[0]
        encoded = model.encode(source_ids)
        decoded = model.decode(target_in_ids, model.project_memory(encoded), encoded.may_attend)
        return Attention(
            tf.stack(encoded.weights),
            tf.stack(decoded.self_weights),
            tf.stack(decoded.cross_weights),
        )

    def _token_log_probs(self, source_ids, target_in_ids, target_out_ids):
        votes = [tf.nn.log_softmax(model((source_ids, target_in_ids))) for model in self.models]
        return tf.gather(mean_probability(votes), target_out_ids, batch_dims=2)


def _lengths(ids: np.ndarray) -> np.ndarray:
    return np.count_nonzero(ids != PAD, axis=1).astype(np.int32)


def _arrays(hypotheses):
    return Hypotheses(*(value.numpy() for value in hypotheses))


def _merged(found, rest, again):
    """Return `found` with the rows `again` replaced by those of `rest`."""
    longest = max(found.ids.shape[2], rest.ids.shape[2])
    merged = []
    for old, new in zip(found, rest, strict=True):
        if old.ndim == 3:  # tokens, PAD and 0 behind the end
            old, new = (
                np.pad(each, [(0, 0), (0, 0), (0, longest - each.shape[2])]) for each in (old, new)
            )
        else:
            old = old.copy()
        old[again] = new
        merged.append(old)
    return Hypotheses(*merged)


def _uniforms(source_ids, limits, options):
    """Return the chance of sampling, (B, N, T): of each sentence its own, whatever its batch."""
    if not options.sampling:
        return np.zeros((len(limits), 0, 0), np.float32)
    uniforms = np.zeros((len(limits), options.beam, max(limits)), np.float32)
    for row, ids, limit in zip(uniforms, source_ids, limits, strict=True):
        random = np.random.default_rng([options.seed, zlib.crc32(ids[ids != PAD].tobytes())])
        row[:, :limit] = random.random((limit, options.beam), np.float32).T
    return uniforms
