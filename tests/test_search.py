"""Search over hand-made tables: greedy, beams, draws, and what may come next. No model."""

import functools
import itertools
from collections import Counter

import numpy as np
import pytest
import reference
import tensorflow as tf

from nmt.decoding.search import (
    beam_search,
    follow,
    length_penalty,
    permit_tokens,
    sampler,
)
from nmt.text.tokenizer import BOS, EOS, PAD

A, B, C = 4, 5, 6
VOCABULARY = 7
TOKENS = dict(bos=BOS, eos=EOS, pad=PAD)
PERMIT = permit_tokens(forbidden=[BOS, PAD], pad=PAD)
ALPHAS = (0.0, 0.6, 1.0, 2.0)

# Next-token probabilities of </s>, a, b, c; nothing else is possible.
TABLE_GREEDY_LOSES = {
    BOS: (0.01, 0.55, 0.43, 0.01),
    A: (0.36, 0.33, 0.16, 0.15),
    B: (0.90, 0.04, 0.03, 0.03),
    C: (0.25, 0.25, 0.25, 0.25),
}
TABLE_OF_LENGTHS = {
    BOS: (0.03, 0.08, 0.76, 0.13),
    A: (0.10, 0.17, 0.06, 0.67),
    B: (0.47, 0.04, 0.02, 0.47),
    C: (0.93, 0.02, 0.02, 0.03),
}


def log_table(rows, vocabulary=VOCABULARY):
    """Return (V, V) log-probabilities: the next token given the newest."""
    table = np.full((vocabulary, vocabulary), -np.inf, np.float32)
    for token, probabilities in rows.items():
        with np.errstate(divide="ignore"):
            table[token, [EOS, A, B, C][: len(probabilities)]] = np.log(probabilities)
    return tf.constant(table)


def step_of(table, calls=None):
    """Return a step function that looks at the newest token only, and counts its calls."""

    def step(newest, state):
        if calls is not None:
            calls.append(1)
        return tf.gather(table, newest), state

    return step


def search(step, state, max_lengths, beam=None, permit=PERMIT, **options):
    """Search without a graph, greedily unless a beam is given."""
    common = dict(**TOKENS, permit=permit, **options)
    max_lengths = np.array(max_lengths, np.int32)
    if beam is None:
        found = follow(step, state, max_lengths, **common)
    else:
        found = beam_search(step, state, max_lengths, **common, beam=beam)
    return checked(found, options.get("alpha", 0.0))


def checked(found, alpha):
    """Return Hypotheses as NumPy arrays, and hold every one to what they promise."""
    found = type(found)(*(value.numpy() for value in found))
    real = found.scores > -np.inf
    assert (np.diff(real.astype(int), axis=1) <= 0).all()  # empty places are the last
    assert real[:, 0].all()
    for row, place in zip(*np.nonzero(real), strict=True):
        ids, length = found.ids[row, place], found.lengths[row, place]
        assert (ids[length:] == PAD).all()
        assert PAD not in ids[:length]
        assert EOS not in ids[: length - 1]
        assert found.truncated[row, place] == (ids[length - 1] != EOS)
        log_probs = found.log_probs[row, place]
        assert (log_probs[length:] == 0).all()
        expected = log_probs.sum(dtype=float) / reference.length_penalty(length, alpha)
        np.testing.assert_allclose(found.scores[row, place], expected, rtol=1e-5)
    for row in range(len(real)):
        assert len(set(sentences_of(found, row))) == real[row].sum()
        assert (np.diff(found.truncated[row, real[row]].astype(int)) >= 0).all()
        for is_truncated in (False, True):
            scores = found.scores[row, real[row] & (found.truncated[row] == is_truncated)]
            assert (np.diff(scores) <= 0).all()
    return found


def sentences_of(found, row=0):
    """Return the ids of each hypothesis of a sentence, best first, without padding."""
    return [
        tuple(ids[:length].tolist())
        for ids, length, score in zip(
            found.ids[row], found.lengths[row], found.scores[row], strict=True
        )
        if score > -np.inf
    ]


def start(rows, paths):
    """Return the state before the first token: which table, and the prefix so far."""
    sentences = tf.tile(tf.convert_to_tensor(rows)[:, None], [1, paths])
    return sentences, tf.zeros([tf.size(rows), paths, 0], tf.int32)


def step_of_tables(table):
    """Return a step function that looks at the whole prefix, in a state that grows as a cache."""

    def step(newest, state):
        sentences, prefix = state
        prefix = tf.concat([prefix, newest[:, :, None]], axis=2)
        place = tf.reduce_sum(prefix * tf.range(1, tf.shape(prefix)[2] + 1), axis=2) % 11
        index = tf.stack([sentences, place, newest], axis=2)
        return tf.gather_nd(table, index), (sentences, prefix)

    return step


@functools.cache
def traced(beam):
    """Return the search as a graph, greedy if `beam` is None: hundreds of them are fast then."""
    ints, float_ = tf.TensorSpec([None], tf.int32), tf.TensorSpec([], tf.float32)
    table = tf.TensorSpec([None, 11, None, None], tf.float32)

    def run(table, rows, max_lengths, nbest, alpha):
        common = dict(**TOKENS, permit=PERMIT, alpha=alpha)
        step, state = step_of_tables(table), start(rows, beam or 1)
        if beam is None:
            return follow(step, state, max_lengths, **common)
        return beam_search(step, state, max_lengths, **common, beam=beam, nbest=nbest)

    signature = [table, ints, ints, tf.TensorSpec([], tf.int32), float_]
    return tf.function(run, signature, autograph=False)


class RandomTables:
    """Next-token probabilities that depend on the sentence and on the whole prefix."""

    def __init__(self, seed, rows=4, vocabulary=VOCABULARY, eos=-0.5):
        logits = np.random.default_rng(seed).normal(size=(rows, 11, vocabulary, vocabulary))
        logits *= 1.5
        logits[..., EOS] += eos
        logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
        self.table = logits.astype(np.float32)

    def search(self, max_lengths, beam=None, nbest=1, alpha=0.0, rows=None):
        rows = list(range(len(max_lengths))) if rows is None else rows
        found = traced(beam)(self.table, rows, max_lengths, nbest, alpha)
        return checked(found, alpha)

    def next_log_probs(self, row, may_come=lambda ids, token: True):
        """Return what the reference asks: the same, with tokens left out that must not come."""

        def of_prefix(prefix):
            place = sum(token * number for number, token in enumerate(prefix, 1)) % 11
            log_probs = self.table[row, place, prefix[-1]].astype(float)
            for token in range(len(log_probs)):
                if token in (PAD, BOS) or not may_come(prefix[1:], token):
                    log_probs[token] = -np.inf
            return log_probs

        return of_prefix


def assert_first_are(found, row, expected):
    """Compare the first hypotheses of a sentence with those of the reference."""
    count = len(expected)
    assert sentences_of(found, row)[:count] == [each.ids for each in expected]
    np.testing.assert_allclose(
        found.scores[row, :count], [each.score for each in expected], rtol=2e-5
    )


# Greedy search -----------------------------------------------------------------------------------


def test_greedy_takes_the_likeliest_token_each_time():
    """Not the likeliest sentence, which would be "b" at -0.949331."""
    found = search(step_of(log_table(TABLE_GREEDY_LOSES)), (), [6])
    assert found.ids.tolist() == [[[A, EOS]]]
    assert found.lengths.tolist() == [[2]]
    assert not found.truncated[0, 0]
    np.testing.assert_allclose(found.scores, [[-1.619488]], atol=1e-6)
    np.testing.assert_allclose(found.log_probs, [[np.log([0.55, 0.36])]], atol=1e-6)


def test_of_equally_likely_tokens_the_first_is_taken():
    """After "b", </s> and "c" are as likely: the lower id, as in the reference."""
    found = search(step_of(log_table(TABLE_OF_LENGTHS)), (), [6])
    assert found.ids.tolist() == [[[B, EOS]]]
    np.testing.assert_allclose(found.scores, [[-1.029459]], atol=1e-6)


def test_sentence_that_does_not_end_is_cut_and_marked():
    """And its neighbours neither wait for it in their results nor are changed by it."""
    table = log_table({**TABLE_GREEDY_LOSES, C: (0.1, 0.2, 0.2, 0.5)})

    def step(newest, never_ends):
        endless = tf.math.log([0, 0, 0, 0, 0.3, 0.1, 0.6])
        return tf.where(never_ends[:, :, None], endless, tf.gather(table, newest)), never_ends

    found = search(step, tf.constant([[False], [True], [False]]), [6, 9, 1])
    assert found.lengths.tolist() == [[2], [9], [1]]
    assert found.ids[:, 0].tolist() == [[A, EOS] + [PAD] * 7, [C] * 9, [A] + [PAD] * 8]
    assert found.truncated.tolist() == [[False], [True], [True]]
    expected = [[-1.619488], [9 * np.log(0.6)], [np.log(0.55)]]
    np.testing.assert_allclose(found.scores, expected, atol=1e-5)


def test_end_just_within_the_limit_is_not_cut():
    found = search(step_of(log_table(TABLE_GREEDY_LOSES)), (), [2, 1])
    assert found.truncated.tolist() == [[False], [True]]
    assert found.ids[:, 0].tolist() == [[A, EOS], [A, PAD]]


@pytest.mark.parametrize("beam", [None, 1, 3])
def test_begin_and_padding_are_never_chosen(beam):
    probabilities = np.full(VOCABULARY, 0.01)
    probabilities[[PAD, BOS, B]] = 0.5, 0.4, 0.05
    table = tf.constant(np.log(np.tile(probabilities, (VOCABULARY, 1))), tf.float32)
    found = search(step_of(table), (), [4], beam)
    assert not {PAD, BOS} & {token for ids in sentences_of(found) for token in ids}
    if beam != 3:
        assert found.ids.tolist() == [[[B] * 4]]
        np.testing.assert_allclose(found.scores, [[4 * np.log(0.05)]], rtol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_greedy_equals_the_reference_on_random_tables(seed):
    tables = RandomTables(seed)
    max_lengths = [12, 3, 1, 7]
    found = tables.search(max_lengths)
    for row, limit in enumerate(max_lengths):
        ids, score = reference.greedy(tables.next_log_probs(row), BOS, EOS, limit)
        assert sentences_of(found, row) == [ids]
        np.testing.assert_allclose(found.scores[row, 0], score, rtol=1e-5)


def test_room_for_more_tokens_than_any_sentence_may_have_changes_nothing():
    tables, state = RandomTables(0), start([0, 1, 2, 3], 1)
    found = search(step_of_tables(tables.table), state, [12, 3, 1, 7], longest=20)
    for value, expected in zip(found, tables.search([12, 3, 1, 7]), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-6)


def test_greedy_search_stops_when_all_have_ended():
    calls = []
    search(step_of(log_table(TABLE_GREEDY_LOSES), calls), (), [50, 50])
    assert len(calls) == 2


# The length penalty ------------------------------------------------------------------------------


def test_length_penalty_by_hand():
    np.testing.assert_allclose(
        length_penalty([1, 5, 10, 20], 0.6), [1, 1.358655, 1.732862, 2.354362], atol=1e-6
    )
    np.testing.assert_allclose(length_penalty([1, 7, 13], 1.0), [1, 2, 3])
    np.testing.assert_allclose(length_penalty([1, 7, 13], 0.0), [1, 1, 1])


@pytest.mark.parametrize("nbest", [1, 4])
@pytest.mark.parametrize(
    ("alpha", "ids", "log_prob", "score"),
    [(0, (B, EOS), -1.029459, -1.029459), (1, (B, C, EOS), -1.102030, -0.826523)],
)
def test_a_longer_hypothesis_may_win_after_a_shorter_one_has_ended(
    alpha, ids, log_prob, score, nbest
):
    """The best live hypothesis ends first, at -0.882394 with alpha 1; that is not yet the end."""
    step = step_of(log_table(TABLE_OF_LENGTHS))
    found = search(step, (), [6], beam=4, alpha=alpha, nbest=nbest)
    assert sentences_of(found)[0] == ids
    np.testing.assert_allclose(found.log_probs[0, 0].sum(), log_prob, atol=1e-6)
    np.testing.assert_allclose(found.scores[0, 0], score, atol=1e-6)


@pytest.mark.parametrize(("alpha", "length"), [(0.0, 1), (1.0, 9), (2.0, 9)])
def test_early_stop_waits_for_a_winner_that_is_far_away(alpha, length):
    """One token at probability 0.51, or eight more that are nearly sure."""
    ends = np.full(30, 0.02)
    ends[0], ends[8] = 0.51, 0.98
    calls = []

    def step(newest, position):
        calls.append(1)
        end = tf.gather(tf.constant(ends, tf.float32), position)[:, :, None]
        never = tf.zeros_like(end)
        probabilities = tf.concat([never, never, end, never, 1 - end], axis=2)
        return tf.math.log(probabilities), position + 1

    found = search(step, tf.zeros([1, 2], tf.int32), [30], beam=2, alpha=alpha)
    assert found.lengths[0, 0] == length
    assert len(calls) == length


# Beam search -------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", ALPHAS)
def test_beam_of_one_is_greedy_search(alpha):
    step = step_of(log_table(TABLE_GREEDY_LOSES))
    found = search(step, (), [6], beam=1, alpha=alpha)
    assert sentences_of(found) == [(A, EOS)]
    np.testing.assert_allclose(found.log_probs.sum(), -1.619488, atol=1e-6)
    for seed in range(3):
        tables = RandomTables(seed)
        beam = tables.search([9, 3, 1, 6], beam=1, alpha=alpha)
        greedy = tables.search([9, 3, 1, 6], alpha=alpha)
        for value, expected in zip(beam, greedy, strict=True):
            np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize("beam", [2, 3, 4])
def test_the_best_is_the_first_of_the_best_however_many_are_asked_for(beam):
    """Asking for 5 and taking the first must not give another than asking for 1."""
    step = step_of(log_table(TABLE_GREEDY_LOSES))
    found = [search(step, (), [6], beam=beam, nbest=nbest) for nbest in range(1, beam + 1)]
    for nbest, each in enumerate(found, 1):
        assert sentences_of(each)[0] == (B, EOS)
        np.testing.assert_allclose(each.scores[0, 0], -0.949331, atol=1e-6)
        # So it is for the second, the third ...
        assert sentences_of(each)[:nbest] == sentences_of(found[-1])[:nbest]


@pytest.mark.parametrize("alpha", ALPHAS)
def test_beam_search_equals_the_reference_on_random_tables(alpha):
    """The reference is written down in another way, and never stops early."""
    max_lengths = [7, 2, 1, 5]
    for seed, beam in itertools.product(range(6), (1, 2, 3, 7)):
        # With much EOS, hypotheses end early; with little, they are cut.
        tables = RandomTables(seed, eos=(-2.0, 0.0, 1.5)[seed % 3])
        expected = [
            reference.beam_search(tables.next_log_probs(row), BOS, EOS, limit, beam, alpha)
            for row, limit in enumerate(max_lengths)
        ]
        for nbest in {1, (beam + 1) // 2, beam}:
            found = tables.search(max_lengths, beam=beam, nbest=nbest, alpha=alpha)
            for row in range(len(max_lengths)):
                assert_first_are(found, row, expected[row][:nbest])
                if nbest == beam:
                    assert len(sentences_of(found, row)) == len(expected[row])


@pytest.mark.parametrize("alpha", ALPHAS)
def test_beam_as_wide_as_there_are_sequences_finds_the_best_of_all(alpha):
    """With three words, and at most four tokens, that is 121; with at most three, 40."""
    for seed in range(3):
        tables = RandomTables(seed, rows=2, vocabulary=6)
        expected = [
            reference.exhaustive_search(tables.next_log_probs(row), BOS, EOS, limit, alpha)
            for row, limit in enumerate([4, 3])
        ]
        assert [len(each) for each in expected] == [121, 40]
        found = tables.search([4, 3], beam=121, nbest=121, alpha=alpha)
        best = tables.search([4, 3], beam=121, alpha=alpha)
        for row in range(2):
            assert_first_are(found, row, expected[row])
            assert len(sentences_of(found, row)) == len(expected[row])
            assert_first_are(best, row, expected[row][:1])


@pytest.mark.parametrize("beam", [1, 5, 6, 7, 50])
@pytest.mark.parametrize("limit", [1, 2, 5])
def test_beam_wider_than_the_vocabulary(beam, limit):
    """Neither a crash nor clones: where candidates run out, places stay empty."""
    tables = RandomTables(3, rows=1, vocabulary=6)
    found = tables.search([limit], beam=beam, nbest=beam)
    expected = reference.beam_search(tables.next_log_probs(0), BOS, EOS, limit, beam, 0.0)
    assert sentences_of(found) == [each.ids for each in expected]
    assert len(expected) == min(beam, sum(3**n for n in range(limit)) + 3**limit)
    assert (found.scores[0, len(expected) :] == -np.inf).all()
    if limit == 1:
        # The one sentence of one token; all else is truncated and comes behind.
        assert sentences_of(found)[0] == (EOS,) or beam == 1


@pytest.mark.parametrize("beam", [1, 2, 5, 40])
def test_the_best_of_a_large_vocabulary(beam):
    """Of equals, of which there are many here, the lower id is taken, and the better hypothesis."""
    vocabulary = 96
    # The best are few, and yet there are equals among them.
    levels = np.random.default_rng(0).integers(0, 900, (vocabulary, vocabulary))
    table = -np.floor(np.sqrt(levels)).astype(np.float32)
    table[:, 64:80] = -np.inf
    table[:, EOS] -= 1
    expected = reference.beam_search(
        lambda prefix: np.where(np.isin(range(vocabulary), [PAD, BOS]), -np.inf, table[prefix[-1]]),
        *(BOS, EOS, 6, beam, 0.0),
    )
    found = search(step_of(tf.constant(table)), (), [6], beam, nbest=beam)
    assert set(sentences_of(found)) == {each.ids for each in expected}
    assert found.scores[0, 0] == expected[0].score


def test_truncated_hypotheses_come_behind_those_that_ended():
    """Whatever their scores are: a sentence without its end is none."""
    table = log_table({BOS: (0.1, 0.9), A: (0.1, 0.9)})
    found = search(step_of(table), (), [2], beam=3, nbest=3)
    assert sentences_of(found) == [(EOS,), (A, EOS), (A, A)]
    assert found.truncated.tolist() == [[False, False, True]]
    np.testing.assert_allclose(np.exp(found.scores), [[0.1, 0.09, 0.81]], rtol=1e-5)


def test_a_hypothesis_that_ended_keeps_its_place():
    """Though both "b c a" and "b c b" become likelier than "a </s>" is."""
    table = log_table(
        {BOS: (0, 0.3, 0.7, 0), A: (1, 0, 0, 0), B: (0, 0, 0, 1), C: (0, 0.5, 0.5, 0)}
    )
    found = search(step_of(table), (), [3], beam=2, nbest=2)
    assert sentences_of(found) == [(A, EOS), (B, C, A)]
    np.testing.assert_allclose(np.exp(found.scores), [[0.3, 0.35]], rtol=1e-5)


@pytest.mark.parametrize(
    "options", [{}, {"beam": 1}, {"beam": 3}, {"beam": 3, "nbest": 3}], ids=str
)
def test_neighbours_change_nothing(options):
    """Each sentence alone, and beside others that take longer or may not be as long."""
    tables = RandomTables(7, rows=5)
    max_lengths = [6, 2, 9, 1, 4]
    together = tables.search(max_lengths, alpha=1.0, **options)
    for row, limit in enumerate(max_lengths):
        alone = tables.search([limit], rows=[row], alpha=1.0, **options)
        count = options.get("nbest", 1)
        assert sentences_of(alone)[:count] == sentences_of(together, row)[:count]
        np.testing.assert_array_equal(alone.scores[0, :count], together.scores[row, :count])
    order = [3, 1, 4, 0, 2]
    shuffled = tables.search([max_lengths[row] for row in order], rows=order, alpha=1.0, **options)
    np.testing.assert_array_equal(shuffled.ids[:, 0], together.ids[order, 0])


@pytest.mark.parametrize(
    ("nbest", "alpha", "limit", "least", "most"),
    [
        (1, 0.0, 50, 2, 2),  # "b" ends at -0.95; the best that lives has -1.71 and can but fall
        (2, 0.0, 50, 2, 2),  # "a" ends at -1.62
        (4, 0.0, 50, 3, 20),
        (1, 1.0, 50, 3, 12),  # each token costs a live one at least 0.9 nats
        (1, 1.0, 2, 2, 2),
    ],
)
def test_beam_search_stops_when_no_live_hypothesis_can_win(nbest, alpha, limit, least, most):
    calls = []
    step = step_of(log_table(TABLE_GREEDY_LOSES), calls)
    search(step, (), [limit], beam=4, nbest=nbest, alpha=alpha)
    assert least <= len(calls) <= most


def test_early_stop_loses_nothing_and_saves_much():
    for seed, alpha in itertools.product(range(8), ALPHAS):
        tables = RandomTables(seed, eos=(0.0, 1.0)[seed % 2])
        found = tables.search([25] * 4, beam=3, alpha=alpha)
        for row in range(4):
            expected = reference.beam_search(tables.next_log_probs(row), BOS, EOS, 25, 3, alpha)
            assert_first_are(found, row, expected[:1])
        assert found.ids.shape[2] < 25 or alpha == 2


# What may come next ------------------------------------------------------------------------------


def permitted(permit, ids, position, vocabulary=VOCABULARY):
    """Return (B, N, V) bool: what `permit` leaves of a flat distribution."""
    ids = np.array(ids, np.int32)
    flat = tf.zeros([*ids.shape[:2], vocabulary])
    left = permit(flat, tf.constant(ids), tf.constant(position)).numpy()
    assert set(np.unique(left)) <= {0.0, -np.inf}
    return left == 0


def test_forbidden_tokens_never_come():
    nothing = np.zeros((2, 3, 4), np.int32)
    for forbidden in ([BOS], [BOS, PAD], [PAD, A, C]):
        permit = permit_tokens(forbidden=forbidden, pad=PAD)
        expected = [token not in forbidden for token in range(VOCABULARY)]
        assert (permitted(permit, nothing, 0) == expected).all()
        assert (permitted(permit, nothing, 3) == expected).all()


def test_prefix_forces_each_row_as_far_as_its_own_reaches():
    prefix = np.array([[A, B, B], [C, PAD, PAD], [PAD, PAD, PAD]], np.int32)
    permit = permit_tokens(forbidden=[BOS, PAD], pad=PAD, prefix_BP=prefix)
    free = {token for token in range(VOCABULARY) if token not in (BOS, PAD)}
    expected = [[{A}, {B}, {B}, free], [{C}, free, free, free], [free] * 4]
    for position in range(4):
        allowed = permitted(permit, np.zeros((3, 2, 9)), position)
        for row, path in np.ndindex(3, 2):
            assert set(np.flatnonzero(allowed[row, path])) == expected[row][position]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 9])
def test_no_ngram_is_completed_twice(n):
    """Against brute force, on random ids; what stands behind `position` does not count."""
    random = np.random.default_rng(n)
    ids = random.integers(2, 5, (3, 4, 8)).astype(np.int32)
    permit = permit_tokens(forbidden=[BOS, PAD], pad=PAD, no_repeat_ngram=n)
    refused = 0
    for position in range(8):
        allowed = permitted(permit, ids, position)
        for row, path in np.ndindex(3, 4):
            so_far = ids[row, path, :position].tolist()
            for token in range(2, VOCABULARY):
                longer = [*so_far, token]
                ngrams = [tuple(longer[i : i + n]) for i in range(len(longer) - n + 1)]
                repeats = len(ngrams) > 0 and ngrams[-1] in ngrams[:-1]
                assert allowed[row, path, token] == (not repeats)
                refused += repeats
    assert refused > 0 or n == 9


def may_come(n, prefix):
    """Return the rule by brute force: begin with `prefix`; then repeat no n-gram."""

    def rule(ids, token):
        if len(ids) < len(prefix):
            return token == prefix[len(ids)]
        longer = (*ids, token)
        ngrams = [longer[i : i + n] for i in range(len(longer) - n + 1)]
        return ngrams[-1] not in ngrams[:-1] if n and ngrams else True

    return rule


@pytest.mark.parametrize("beam", [None, 4])
@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_search_within_the_rules_equals_the_reference(n, beam):
    """A prefix may repeat itself, and counts for what may come behind it."""
    prefixes = [(A, A, A), (B,), (), (C, A)]
    padded = np.array([[*ids, *[PAD] * (3 - len(ids))] for ids in prefixes], np.int32)
    permit = permit_tokens(forbidden=[BOS, PAD], pad=PAD, prefix_BP=padded, no_repeat_ngram=n)
    max_lengths = [8, 3, 6, 2]
    tables = RandomTables(n, eos=-3.0)
    options = {} if beam is None else {"beam": beam, "nbest": beam}
    state = start([0, 1, 2, 3], beam or 1)
    found = search(step_of_tables(tables.table), state, max_lengths, permit=permit, **options)
    for row, limit in enumerate(max_lengths):
        next_log_probs = tables.next_log_probs(row, may_come(n, prefixes[row]))
        expected = reference.beam_search(next_log_probs, BOS, EOS, limit, beam or 1, 0.0)
        assert_first_are(found, row, expected)
        for ids in sentences_of(found, row):
            assert ids[: len(prefixes[row])] == prefixes[row]


# Draws -------------------------------------------------------------------------------------------


def drawn(probabilities, uniforms, temperature=1.0, top_k=0, top_p=1.0):
    """Return the token drawn for each of the uniforms."""
    uniforms = np.array(uniforms, np.float32)
    with np.errstate(divide="ignore"):
        log_probs = np.log(np.array(probabilities)).astype(np.float32)
    choose = sampler(tf.constant(uniforms[None, :, None]), temperature, top_k, top_p)
    return choose(tf.tile(log_probs[None, None], [1, len(uniforms), 1]), 0).numpy()[0]


EVENLY = (np.arange(10_000) + 0.5) / 10_000
PROBABILITIES = (0.05, 0.4, 0.0, 0.3, 0.15, 0.1)


@pytest.mark.parametrize(
    ("options", "weights"),
    [
        ({}, PROBABILITIES),
        ({"temperature": 0.5}, [p**2 for p in PROBABILITIES]),
        ({"temperature": 2.0}, [p**0.5 for p in PROBABILITIES]),
        ({"top_k": 1}, (0, 1, 0, 0, 0, 0)),
        ({"top_k": 3}, (0, 0.4, 0, 0.3, 0.15, 0)),
        ({"top_k": 99}, PROBABILITIES),
        ({"top_p": 0.3}, (0, 1, 0, 0, 0, 0)),
        ({"top_p": 0.5}, (0, 0.4, 0, 0.3, 0, 0)),  # the fewest that have half of it
        ({"top_p": 0.8}, (0, 0.4, 0, 0.3, 0.15, 0)),
        ({"top_p": 0.8, "top_k": 2}, (0, 0.4, 0, 0.3, 0, 0)),
        ({"top_p": 0.5, "temperature": 2.0}, (0, 0.4**0.5, 0, 0.3**0.5, 0, 0)),
        ({"top_p": 1e-6}, (0, 1, 0, 0, 0, 0)),
    ],
    ids=str,
)
def test_tokens_are_drawn_as_often_as_they_are_likely(options, weights):
    counts = Counter(drawn(PROBABILITIES, EVENLY, **options).tolist())
    frequencies = [counts[token] / len(EVENLY) for token in range(len(weights))]
    np.testing.assert_allclose(frequencies, np.array(weights) / sum(weights), atol=3e-4)
    assert all(counts[token] == 0 for token, weight in enumerate(weights) if weight == 0)


def test_what_has_no_probability_is_never_drawn():
    """Not even where rounding leads behind the last token, or where 1000 of 3000 are possible."""
    random = np.random.default_rng(0)
    ends = [0.0, 1e-30, 0.5, np.nextafter(np.float32(1), np.float32(0))]
    for seed in range(5):
        probabilities = random.random(3000) ** 8 * (random.random(3000) < 1 / 3)
        probabilities /= probabilities.sum()
        for options in ({}, {"top_p": 0.999}, {"temperature": 0.01}, {"temperature": 100.0}):
            tokens = drawn(probabilities, [*ends, *random.random(50)], **options)
            assert (probabilities[tokens] > 0).all(), (seed, options)
    assert drawn([0, 0, 0, 1], ends).tolist() == [3] * 4


def draws(tables, max_lengths, choose, paths, alpha=0.0):
    found = follow(
        *(step_of_tables(tables.table), start(list(range(len(max_lengths))), paths)),
        np.array(max_lengths, np.int32),
        **TOKENS,
        permit=PERMIT,
        choose=choose,
        paths=paths,
        alpha=alpha,
    )
    return type(found)(*(value.numpy() for value in found))


@pytest.mark.parametrize(("temperature", "top_k"), [(0.001, 0), (1.0, 1), (5.0, 1)])
def test_draws_that_leave_no_choice_are_greedy_search(temperature, top_k):
    tables = RandomTables(2)
    uniforms = np.random.default_rng(0).random((4, 2, 9), np.float32)
    found = draws(tables, [9, 3, 1, 6], sampler(uniforms, temperature, top_k, 1.0), paths=2)
    for value, expected in zip(found, tables.search([9, 3, 1, 6]), strict=True):
        expected = expected if expected.ndim == 1 else np.repeat(expected, 2, axis=1)
        np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize("alpha", [0.0, 2.0])
def test_each_draw_has_a_chance_of_its_own_and_the_best_comes_first(alpha):
    """Drawn again by hand, one token after another; then ranked as a search ranks."""
    tables, limits = RandomTables(1), [8, 2, 1, 5]
    uniforms = np.random.default_rng(1).random((4, 6, 8), np.float32)
    found = draws(tables, limits, sampler(uniforms, 1.0, 0, 1.0), paths=6, alpha=alpha)
    for row, limit in enumerate(limits):
        totals = Counter()
        for path in range(6):
            ids, total = (), 0.0
            while len(ids) < limit and (not ids or ids[-1] != EOS):
                log_probs = tables.next_log_probs(row)((BOS, *ids))
                likeliest_first = np.argsort(-log_probs)
                up_to = np.cumsum(np.exp(log_probs[likeliest_first]))
                place = np.searchsorted(up_to / up_to[-1], uniforms[row, path, len(ids)])
                total += log_probs[likeliest_first[place]]
                ids = (*ids, int(likeliest_first[place]))
            totals[ids] = total
        expected = reference.ranked(totals, EOS, alpha)
        assert list(dict.fromkeys(sentences_of(found, row))) == [each.ids for each in expected]
        np.testing.assert_allclose(found.scores[row, 0], expected[0].score, rtol=1e-5)
    assert len({sentence for row in range(4) for sentence in sentences_of(found, row)}) > 12
