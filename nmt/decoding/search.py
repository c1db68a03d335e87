"""Search over a step function. Knows no model and no text.

Axis legend: B batch, N hypotheses of a sentence side by side, T target length, V vocabulary.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

# Given the newest token of each hypothesis (B, N) int32 and a state, returns log-probabilities
# (B, N, V) float32 of the next token, and the state that goes with them. A state is any nest of
# tensors (B, N, ...), so that the search can follow a hypothesis from one place to another.
StepFunction = Callable[[tf.Tensor, Any], tuple[tf.Tensor, Any]]

# Given log-probabilities (B, N, V), the tokens so far (B, N, T) and how many they are, returns the
# log-probabilities with -inf at tokens that must not come next.
Permit = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]

NEVER = float("-inf")

# Tokens that stand for each other when the best of a large vocabulary are looked for.
GROUP = 32


class Hypotheses(NamedTuple):
    """What a search found for each sentence, best first.

    Where there are fewer than N of them, the score of the others is -inf.
    """

    ids: tf.Tensor  # (B, N, T) int32: tokens EOS PAD..., without BOS
    lengths: tf.Tensor  # (B, N) int32: tokens, EOS included
    log_probs: tf.Tensor  # (B, N, T) float32: of each token given those before it, 0 at PAD
    scores: tf.Tensor  # (B, N) float32: sum of the log_probs over the length penalty
    truncated: tf.Tensor  # (B, N) bool: stopped by the length limit, not by EOS
    settled: tf.Tensor  # (B,) bool; False: `steps` ended the search, more might change the result


class _Paths(NamedTuple):
    """Hypotheses on their way."""

    position: tf.Tensor  # () int32: tokens so far
    newest: tf.Tensor  # (B, N) int32: the token that the next step reads
    ids: tf.Tensor  # (B, N, T) int32, PAD from `position` on
    log_probs: tf.Tensor  # (B, N, T) float32
    totals: tf.Tensor  # (B, N) float32: sum of the log_probs; -inf: nothing stands here
    lengths: tf.Tensor  # (B, N) int32
    ended: tf.Tensor  # (B, N) bool: by EOS or the length limit; frozen from then on
    state: Any


def length_penalty(lengths, alpha):
    """Return ((5 + length) / 6)^alpha, EOS counted (Wu et al. 2016, equation 14).

    For length 1 it is 1 whatever alpha is; 5 tokens at alpha 0.6 have 1.358655.
    """
    return tf.pow((5.0 + tf.cast(lengths, tf.float32)) / 6.0, alpha)


def permit_tokens(*, forbidden, pad, prefix_BP=None, no_repeat_ngram=0) -> Permit:
    """Return the rules that every search here obeys.

    Args:
      forbidden: ids that never come, such as BOS and PAD.
      pad: id that fills `prefix_BP` on the right.
      prefix_BP: (B, P) int32, P >= 1, tokens that a translation must begin with; None: any.
      no_repeat_ngram: n > 0: no n tokens in a row come twice in a hypothesis.
    """

    def permit(log_probs_BNV, ids_BNT, position):
        # A vocabulary of known size makes this a constant, not a computation for every token.
        vocabulary = log_probs_BNV.shape[2] or tf.shape(log_probs_BNV)[2]
        never_V = tf.reduce_min(tf.one_hot(forbidden, vocabulary, NEVER, 0.0), axis=0)
        if prefix_BP is None and not no_repeat_ngram:
            return log_probs_BNV + never_V
        tokens_V = tf.range(vocabulary)
        allowed = never_V == 0
        if no_repeat_ngram:
            allowed &= ~_repeating(ids_BNT, position, no_repeat_ngram, vocabulary)
        if prefix_BP is not None:
            length = tf.shape(prefix_BP)[1]
            forced_B = tf.gather(prefix_BP, tf.minimum(position, length - 1), axis=1)
            is_free_B = (position >= length) | (forced_B == pad)
            is_forced_BV = tokens_V[None] == forced_B[:, None]
            # A prefix may repeat itself: else nothing at all could come.
            allowed = tf.where(is_free_B[:, None, None], allowed, is_forced_BV[:, None])
        return tf.where(allowed, log_probs_BNV, NEVER)

    return permit


def most_likely(log_probs_BNV, position):
    """Choose the likeliest token; of equals the one with the lowest id."""
    _, token_BN1 = _top(log_probs_BNV, 1)  # sooner than tf.argmax
    return token_BN1[:, :, 0]


def sampler(uniforms_BNT, temperature, top_k, top_p):
    """Return a choice that draws tokens by their probability.

    Args:
      uniforms_BNT: (B, N, T) float32 in [0, 1), the chance itself: given from outside, a draw can
        depend on its own sentence only.
      temperature: divides the log-probabilities before they are normalised again, > 0.
      top_k: draw among so many likeliest tokens; 0: all.
      top_p: draw among the fewest likeliest tokens that have this probability together
        (Holtzman et al. 2020).
    """

    def choose(log_probs_BNV, position):
        vocabulary = tf.shape(log_probs_BNV)[2]
        sharpened = tf.nn.softmax(log_probs_BNV / temperature)
        probabilities, order = tf.math.top_k(sharpened, vocabulary)
        up_to = tf.cumsum(probabilities, axis=-1)
        count = tf.where(top_k == 0, vocabulary, tf.minimum(top_k, vocabulary))
        # The first always stays: nothing comes before it.
        kept = (up_to - probabilities < top_p) & (tf.range(vocabulary) < count)
        mass = tf.reduce_max(tf.where(kept, up_to, 0.0), axis=-1, keepdims=True)
        drawn = uniforms_BNT[:, :, position, None] * mass
        place = tf.reduce_sum(tf.cast(kept & (up_to <= drawn), tf.int32), axis=-1)
        # Rounding must not lead behind the last token that has any probability.
        possible = tf.reduce_sum(tf.cast(kept & (probabilities > 0), tf.int32), axis=-1)
        return tf.gather(order, tf.minimum(place, possible - 1), batch_dims=2)

    return choose


def follow(
    step: StepFunction,
    state,
    max_lengths,
    *,
    bos: int,
    eos: int,
    pad: int,
    permit: Permit,
    choose=most_likely,
    paths: int = 1,
    alpha=0.0,
    longest=None,
    steps=None,
) -> Hypotheses:
    """Choose one token at a time until EOS or the maximum length: greedy search, or sampling.

    Args:
      step: the step function. A finished path goes on being computed until all are done, but
        nothing of it is used.
      state: the state before the first token, tensors (B, N, ...).
      max_lengths: (B,) int32, most tokens of each sentence, EOS included, >= 1. A sentence's
        limit is its own, so its translation does not depend on its neighbours.
      bos: id that begins a sentence.
      eos: id that ends one.
      pad: id behind the end.
      permit: which tokens may come next, see `permit_tokens`.
      choose: takes (B, N, V) log-probabilities and the position, returns (B, N) ids.
      paths: N, independent of each other; more than one is of use for sampling only.
      alpha: of the length penalty, by which several paths are ranked.
      longest: T, at least the largest of `max_lengths`; None: just that. A Python number gives
        the compiler (XLA) shapes that it knows.
      steps: scalar int32, give up after so many, see `Hypotheses.settled`; None: go on to the end.
    """
    at_start = _start(state, max_lengths, longest, paths, bos, pad)

    def body(*path):
        path = _Paths(*path)
        log_probs, state = step(path.newest, path.state)
        log_probs = permit(log_probs, path.ids, path.position)
        chosen = choose(log_probs, path.position)
        gained = tf.gather(log_probs, chosen, batch_dims=2)
        return _extended(path, chosen, gained, state, max_lengths, eos, pad)

    def settled_B(path):
        return tf.reduce_all(path.ended, axis=1)

    return _ranked(_loop(settled_B, body, at_start, steps), alpha, eos, settled_B)


def beam_search(
    step: StepFunction,
    state,
    max_lengths,
    *,
    bos: int,
    eos: int,
    pad: int,
    permit: Permit,
    beam: int,
    nbest=1,
    alpha=0.0,
    steps=None,
) -> Hypotheses:
    """Keep the `beam` likeliest hypotheses of each sentence, and return them ranked.

    A hypothesis that ends keeps its place, frozen, and the others compete for the places left
    (as in Marian). So a beam of 1 is greedy search, whatever the penalty is. A sentence is done
    when no live hypothesis can still come among its `nbest`: its score can at best become its sum
    so far, which only falls, over the largest penalty, that of the maximum length.

    Args:
      step: the step function.
      state: the state before the first token, tensors (B, N, ...) with N = beam.
      max_lengths: (B,) int32, most tokens of each sentence, EOS included, >= 1.
      bos: id that begins a sentence.
      eos: id that ends one.
      pad: id behind the end.
      permit: which tokens may come next, see `permit_tokens`.
      beam: N.
      nbest: how many hypotheses have to be the right ones, 1 <= nbest <= beam.
      alpha: of the length penalty, >= 0.
      steps: scalar int32, give up after so many, see `Hypotheses.settled`; None: go on to the end.

    Returns:
      Hypotheses; those that reached EOS come before those that are truncated.
    """
    at_start = _start(state, max_lengths, None, beam, bos, pad)
    # One live hypothesis at the start: from several equal ones only clones would come.
    first = tf.one_hot(tf.zeros_like(max_lengths), beam, on_value=0.0, off_value=NEVER)
    at_start = at_start._replace(totals=first)
    largest_penalty_B = length_penalty(max_lengths, alpha)

    def body(*path):
        path = _Paths(*path)
        log_probs, state = step(path.newest, path.state)
        log_probs = permit(log_probs, path.ids, path.position)
        # The best of each hypothesis first, then the best of all: much less to sort.
        width = tf.minimum(beam, tf.shape(log_probs)[2])
        gained, tokens = _top(log_probs, width)  # (B, N, width)
        totals = path.totals[:, :, None] + gained
        # A frozen hypothesis is a single candidate, and takes its place before all others.
        is_frozen = path.ended & (path.totals > NEVER)
        is_first = tf.range(width) == 0
        totals = tf.where(is_frozen[:, :, None], tf.where(is_first, float("inf"), NEVER), totals)
        flat = [tf.shape(totals)[0], -1]
        ranks, places = tf.math.top_k(tf.reshape(totals, flat), beam)  # (B, N)
        parents = places // width
        gained = tf.gather(tf.reshape(gained, flat), places, batch_dims=1)
        tokens = tf.gather(tf.reshape(tokens, flat), places, batch_dims=1)
        path = _Paths(
            path.position,
            *(_follow_parents(parents, tensor) for tensor in path[1:7]),
            tf.nest.map_structure(lambda tensor: _follow_parents(parents, tensor), state),
        )
        # Where candidates run out, nothing stands: not a second copy of a frozen hypothesis.
        is_real = ranks > NEVER
        path = path._replace(
            totals=tf.where(is_real, path.totals, NEVER), ended=path.ended & is_real
        )
        return _extended(path, tokens, gained, path.state, max_lengths, eos, pad)

    def settled_B(path):
        scores = path.totals / length_penalty(path.lengths, alpha)
        has_eos = path.ended & (_last(path) == eos)
        found = tf.sort(tf.where(has_eos, scores, NEVER), direction="DESCENDING")
        to_beat_B = tf.gather(found, nbest - 1, axis=1)
        live_B = tf.reduce_max(tf.where(path.ended, NEVER, path.totals), axis=1)
        return ~(live_B / largest_penalty_B > to_beat_B)

    return _ranked(_loop(settled_B, body, at_start, steps), alpha, eos, settled_B)


def _start(state, max_lengths, longest, paths, bos, pad):
    batch = max_lengths.shape[0] or tf.shape(max_lengths)[0]  # a compiler wants to know
    longest = tf.reduce_max(max_lengths) if longest is None else longest
    return _Paths(
        tf.constant(0),
        tf.fill([batch, paths], bos),
        tf.fill([batch, paths, longest], pad),
        tf.zeros([batch, paths, longest]),
        tf.zeros([batch, paths]),
        tf.zeros([batch, paths], tf.int32),
        tf.zeros([batch, paths], tf.bool),
        state,
    )


def _extended(path, chosen, gained, state, max_lengths, eos, pad):
    """Return the paths with one more token; those that have ended stay as they are."""
    is_new = ~path.ended
    chosen = tf.where(is_new, chosen, pad)
    gained = tf.where(is_new, gained, 0.0)
    here = tf.range(tf.shape(path.ids)[2]) == path.position
    lengths = path.lengths + tf.cast(is_new, tf.int32)
    return _Paths(
        path.position + 1,
        chosen,
        tf.where(here, chosen[:, :, None], path.ids),
        tf.where(here, gained[:, :, None], path.log_probs),
        path.totals + gained,
        lengths,
        path.ended | (chosen == eos) | (lengths >= max_lengths[:, None]),
        state,
    )


def _loop(settled_B, body, at_start, steps):
    # A cache grows from step to step, so the shapes of the state are not fixed; all others are.
    free = tf.nest.map_structure(
        lambda tensor: tf.TensorShape([None] * len(tensor.shape)), at_start.state
    )
    shapes = _Paths(*(tensor.shape for tensor in at_start[:7]), free)

    def unfinished(*path):
        path = _Paths(*path)
        goes_on = ~tf.reduce_all(settled_B(path))
        return goes_on if steps is None else goes_on & (path.position < steps)

    return _Paths(*tf.while_loop(unfinished, body, at_start, shape_invariants=shapes))


def _top(values_BNV, k):
    """Return what tf.math.top_k does, (B, N, k) values and their places, much sooner.

    The k best are in the k groups whose best are best; only those are sorted. Of equals the first
    is taken, here as there: groups stay in the order of their places.
    """
    vocabulary = values_BNV.shape[2]
    if vocabulary is None or vocabulary % GROUP:
        return tf.math.top_k(values_BNV, k)
    shape = tf.shape(values_BNV)
    grouped = tf.reshape(values_BNV, [shape[0], shape[1], vocabulary // GROUP, GROUP])
    count = tf.minimum(k, vocabulary // GROUP)
    _, groups = tf.math.top_k(tf.reduce_max(grouped, axis=3), count)
    groups = tf.sort(groups, axis=2)
    candidates = tf.gather(grouped, groups, batch_dims=2)
    candidates = tf.reshape(candidates, [shape[0], shape[1], count * GROUP])
    values, places = tf.math.top_k(candidates, k)
    return values, tf.gather(groups, places // GROUP, batch_dims=2) * GROUP + places % GROUP


def _follow_parents(parents_BN, tensor):
    return tf.gather(tensor, parents_BN, batch_dims=1)


def _last(path):
    return tf.gather(path.ids, tf.maximum(path.lengths - 1, 0), batch_dims=2)


def _ranked(path, alpha, eos, settled_B):
    """Return the paths as Hypotheses: those that ended by EOS, the truncated, empty places."""
    truncated = _last(path) != eos
    scores = path.totals / length_penalty(path.lengths, alpha)
    kind = tf.where(scores == NEVER, 2, tf.cast(truncated, tf.int32))
    by_score = tf.argsort(-scores, axis=1, stable=True)
    by_kind = tf.argsort(tf.gather(kind, by_score, batch_dims=1), axis=1, stable=True)
    order = tf.gather(by_score, by_kind, batch_dims=1)
    found = (path.ids, path.lengths, path.log_probs, scores, truncated)
    found = (tf.gather(tensor, order, batch_dims=1) for tensor in found)
    found = Hypotheses(*found, settled_B(path))
    longest = tf.reduce_max(path.lengths)
    return found._replace(ids=found.ids[:, :, :longest], log_probs=found.log_probs[:, :, :longest])


def _repeating(ids_BNT, position, n, vocabulary):
    """Return (B, N, V) bool: which tokens would complete n in a row that came before."""
    shape = tf.shape(ids_BNT)
    starts = tf.range(tf.maximum(shape[2] - n + 1, 0))
    seen = starts + n <= position  # n-grams that lie among the tokens so far
    for offset in range(n - 1):
        newest = tf.gather(ids_BNT, tf.maximum(position - n + 1 + offset, 0), axis=2)
        seen &= tf.gather(ids_BNT, starts + offset, axis=2) == newest[:, :, None]
    seen = tf.broadcast_to(seen, [shape[0], shape[1], tf.size(starts)])
    where = tf.where(seen)
    last = tf.gather(ids_BNT, starts + n - 1, axis=2)
    tokens = tf.cast(tf.gather_nd(last, where), tf.int64)
    places = tf.concat([where[:, :2], tokens[:, None]], axis=1)
    counts = tf.scatter_nd(
        places, tf.ones_like(tokens), tf.cast([shape[0], shape[1], vocabulary], tf.int64)
    )
    return counts > 0
