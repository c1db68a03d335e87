"""The decoding cache, search by a model, the translator on a trained run, whole documents."""

import dataclasses
import json
import shutil
import subprocess
import sys
from collections import Counter

import keras
import numpy as np
import pytest
import tensorflow as tf
from toy_pairs import PAIRS

import nmt
from nmt.config import ConfigError, ModelConfig, to_json
from nmt.decoding import documents as documents_module
from nmt.decoding import searcher as searcher_module
from nmt.decoding.arranged import arrange
from nmt.decoding.documents import translate_documents, translate_stream
from nmt.decoding.options import GREEDY, SearchOptions
from nmt.decoding.searcher import EXTRA_TARGET_TOKENS, Searcher
from nmt.decoding.sentences import MAX_SOURCE_TOKENS, coverage
from nmt.decoding.stepping import cached_step, mean_probability
from nmt.decoding.translation import Translation, align
from nmt.decoding.translator import load_translator
from nmt.model.transformer import build_transformer
from nmt.run_folder import RunFolder, sha256, write_text
from nmt.text.tokenizer import BOS, EOS, PAD

# The cache ---------------------------------------------------------------------------------------

SOURCE = np.array([[4, 5, 6, EOS, PAD], [7, 8, EOS, PAD, PAD]], np.int32)


def random_model(seed=1, layers=2, **options):
    """Return a small model whose biases and gains are random as well."""
    sizes = dict(d_model=16, num_heads=4, dff=24, source_vocab_size=11, target_vocab_size=13)
    model = build_transformer(ModelConfig(layers, **{**sizes, **options}), seed=seed)
    random = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        variable.assign_add(0.2 * random.normal(size=variable.shape))
    return model


def steps_of(models, *args):
    return cached_step([(arrange(model), model.config) for model in models], *args)


def full_pass(model, source, target_in):
    """Return log-probabilities (B, N, V) of what follows target_in (B, N, T), without a cache."""
    shape = target_in.shape
    logits = model((np.repeat(source, shape[1], axis=0), target_in.reshape(-1, shape[2])))
    return tf.nn.log_softmax(logits[:, -1]).numpy().reshape(*shape[:2], -1)


def possible(log_probs, vocabulary=13):
    """Return the log-probabilities of the vocabulary; behind it nothing may be possible."""
    assert (log_probs.numpy()[..., vocabulary:] == -np.inf).all()
    return log_probs[..., :vocabulary]


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("steps", [[1] * 6, [2, 1, 3]])
def test_cached_steps_equal_the_uncached_pass(norm, steps):
    model = random_model(norm=norm)
    target_in = np.array([[BOS, 5, 6, 7, 8, 9], [BOS, 12, 11, 4, 4, 4]], np.int32)
    encoded = model.encode(SOURCE)
    memory = model.project_memory(encoded)
    whole = model.decode(target_in, memory, encoded.may_attend)
    logits = model((SOURCE, target_in)).numpy()
    past, start = None, 0
    for length in steps:
        newest = target_in[:, start : start + length]
        decoded = model.decode(newest, memory, encoded.may_attend, past)
        end = start + length
        np.testing.assert_allclose(model.project(decoded.hidden), logits[:, start:end], atol=1e-5)
        for layer in range(2):
            for cached, full in (
                (decoded.self_weights[layer], whole.self_weights[layer][:, :, start:end, :end]),
                (decoded.cross_weights[layer], whole.cross_weights[layer][:, :, start:end]),
            ):
                assert cached.shape == full.shape
                np.testing.assert_allclose(cached, full, atol=1e-5)
        past, start = decoded.past, end


@pytest.mark.parametrize(
    ("options", "room"),
    [
        ({"norm": "post"}, None),
        ({"norm": "post", "tie_embeddings": False}, 4),
        ({"norm": "pre", "dff": 512, "target_vocab_size": 32}, 7),
    ],
    ids=str,
)
def test_steps_of_several_hypotheses_equal_the_uncached_pass(options, room):
    """Three side by side, which change places and leave clones on the way, as in a search."""
    model = random_model(**options)
    tokens = np.random.default_rng(0).integers(4, 13, (2, 3, 4)).astype(np.int32)
    parents = {1: [[2, 0, 0], [1, 2, 0]], 2: [[1, 1, 2], [0, 2, 1]]}
    step, state = steps_of([model], SOURCE, 3, room)
    target_in = np.full((2, 3, 1), BOS, np.int32)
    for place in range(4):
        log_probs, state = step(tf.constant(target_in[:, :, -1]), state)
        np.testing.assert_allclose(
            possible(log_probs, model.config.target_vocab_size),
            full_pass(model, SOURCE, target_in),
            atol=1e-5,
        )
        if place in parents:
            state = tf.nest.map_structure(
                lambda tensor, place=place: tf.gather(tensor, parents[place], batch_dims=1), state
            )
            target_in = np.take_along_axis(target_in, np.array(parents[place])[:, :, None], axis=1)
        target_in = np.concatenate([target_in, tokens[:, :, place : place + 1]], axis=2)


def test_an_ensemble_votes_with_the_mean_of_its_probabilities():
    models = [random_model(1, norm="post"), random_model(2, layers=1)]
    step, state = steps_of(models, SOURCE, 2)
    target_in = np.random.default_rng(0).integers(4, 13, (2, 2, 3)).astype(np.int32)
    for place in range(3):
        log_probs, state = step(tf.constant(target_in[:, :, place]), state)
    each = [np.exp(full_pass(model, SOURCE, target_in)) for model in models]
    np.testing.assert_allclose(possible(log_probs), np.log(np.mean(each, axis=0)), atol=1e-5)
    np.testing.assert_allclose(np.exp(log_probs).sum(-1), 1, atol=1e-5)


def test_an_ensemble_of_twins_is_one_model():
    model = random_model()
    (step, state), (twin_step, twin_state) = (
        steps_of(m, SOURCE, 1) for m in ([model], [model] * 2)
    )
    newest = tf.constant([[BOS], [BOS]])
    np.testing.assert_allclose(
        *(possible(step(newest, state)[0]), possible(twin_step(newest, twin_state)[0])), atol=1e-6
    )


def test_an_ensemble_scores_with_the_mean_of_its_probabilities():
    models = [random_model(seed, layers=1) for seed in (1, 2)]
    target_in = np.array([[BOS, 5, 6], [BOS, 12, 11]], np.int32)
    target_out = np.array([[5, 6, EOS], [12, 11, 4]], np.int32)
    found = Searcher(models).log_probs(SOURCE, target_in, target_out)
    mean = np.mean([tf.nn.softmax(model((SOURCE, target_in))) for model in models], axis=0)
    expected = np.take_along_axis(mean, target_out[:, :, None], axis=2)[:, :, 0]
    np.testing.assert_allclose(found, np.log(expected), atol=1e-5)


def test_mean_probability_of_what_cannot_be():
    votes = [tf.math.log([0.0, 0.5, 0.5]), tf.math.log([0.0, 0.0, 1.0])]
    np.testing.assert_allclose(tf.exp(mean_probability(votes)), [0, 0.25, 0.75], atol=1e-7)


# Search by a model -------------------------------------------------------------------------------


def test_compiled_search_of_one_sentence_equals_the_graph(monkeypatch):
    """It pads to a fixed length and keeps a cache of fixed size; whatever does not fit it goes
    the usual way."""
    model = random_model(seed=4, layers=1, norm="pre", tie_embeddings=False)
    usual, compiled = Searcher([model]), Searcher([model])
    monkeypatch.setattr(searcher_module, "COMPILED_LENGTHS", (8,))
    random = np.random.default_rng(0)
    sources = [
        np.append(random.integers(4, 11, length), EOS)[None].astype(np.int32)
        for length in (1, 2, 3, 5, 7)
    ]
    expected = [usual.search(source) for source in sources]
    compiled.compile_ahead().join()

    def new_graph(*_):
        raise LookupError

    monkeypatch.setattr(searcher_module, "cached_step", new_graph)
    for source, each in zip(sources, expected, strict=True):
        found = compiled.search(source)
        for value, right in zip(found, each, strict=True):
            assert value.shape == right.shape
            np.testing.assert_allclose(value, right, rtol=1e-5)
    # Some must end and some be cut, or little would have been compared.
    assert len({bool(each.truncated[0, 0]) for each in expected}) == 2
    lengthened = compiled.search(sources[3], SearchOptions(length_penalty=2.0)).scores
    plain = compiled.search(sources[3], SearchOptions(length_penalty=0.0)).scores
    penalty = ((5 + expected[3].lengths) / 6) ** 2
    np.testing.assert_allclose(lengthened, plain / penalty, rtol=1e-5)
    for others in (
        (np.append(sources[4], [[EOS]], axis=1),),
        (np.repeat(sources[0], 2, axis=0),),
        (sources[0], SearchOptions(beam=2)),
        (sources[0], SearchOptions(sampling=True)),
        (sources[0], SearchOptions(no_repeat_ngram=2)),
        (sources[0], GREEDY, np.array([[5]], np.int32)),
    ):
        with pytest.raises(LookupError):
            compiled.search(*others)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam": 0}, "beam must be from 1 to 64; received 0"),
        ({"beam": -1}, "beam must be from 1 to 64; received -1"),
        ({"beam": 2.5}, "beam must be a whole number; received 2.5"),
        ({"beam": 65}, "beam must be from 1 to 64; received 65"),
        ({"nbest": 0}, "nbest must be from 1 to beam, which is 1; received 0"),
        ({"beam": 3, "nbest": 4}, "nbest must be from 1 to beam, which is 3; received 4"),
        ({"length_penalty": -0.1}, "length_penalty must be from 0 to 100; received -0.1"),
        ({"length_penalty": float("nan")}, "length_penalty must be .* received nan"),
        ({"coverage_penalty": -1.0}, "coverage_penalty must be from 0 to 100; received -1.0"),
        ({"no_repeat_ngram": -1}, "no_repeat_ngram must be .* received -1"),
        ({"no_repeat_ngram": 17}, "no_repeat_ngram must be from 0 to 16; received 17"),
        ({"temperature": 0.0}, "temperature must be from 0.001 to 1000; received 0.0"),
        ({"temperature": float("inf")}, "temperature must be .* received inf"),
        ({"top_k": -1}, "top_k must be at least 0; received -1"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1; received 0.0"),
        ({"top_p": 1.1}, "top_p must be above 0 and at most 1; received 1.1"),
        ({"seed": -1}, r"seed must be in \[0, 2\*\*32\); received -1"),
    ],
    ids=str,
)
def test_options_that_make_no_sense(options, message):
    with pytest.raises(ConfigError, match=message):
        SearchOptions(**options)


# The translator ----------------------------------------------------------------------------------

WORDS = sorted({word for english, _ in PAIRS for word in english.split()})
ODD_TEXTS = [
    "-", "...", "???", "12345", "😀", "👩‍👩‍👧", "<unk>", "</s>", "<pad>", "<s>", "<0x0A>",
    "zzqxj wvkkp", "猫", "▁", "a" * 200, "a\nb", "Ｉ ｌｉｋｅ",
    "Hello", "Hello.", "Never", "Never.", "Man", "No", "a", "increasingly",
]  # fmt: skip
BEAM = SearchOptions(beam=4, nbest=3)
# Among few tokens: where hundreds are nearly equally likely, rounding, which differs from batch to
# batch, now and then takes the neighbour of the one that was drawn.
DRAWS = SearchOptions(beam=2, nbest=2, sampling=True, temperature=1.5, top_k=20, top_p=0.95, seed=3)
RULES = SearchOptions(beam=2, nbest=2, no_repeat_ngram=2)
PREFIXES = ["", "你", "我喜欢", "今天</s>", "我我我", ""]


@pytest.fixture(scope="module")
def translator(tiny_run):
    return nmt.load(tiny_run)


@pytest.fixture
def endless(translator):
    """The translator with a model that has unlearned EOS, until the test is over."""
    model = translator.searcher.models[0]
    changed = [model.target_embedding.embeddings, model.decoder_norm.gamma, model.decoder_norm.beta]
    before = [variable.numpy() for variable in changed]
    table, direction = before[0].copy(), before[0][7] / np.linalg.norm(before[0][7])
    table[EOS] = 0
    table[7] = 50 * direction
    for values in ((table, 0 * direction, direction), before):
        for variable, value in zip(changed, values, strict=True):
            variable.assign(value)
        translator.searcher.refresh()
        if values is not before:
            yield translator


def summary(translations):
    return [
        (
            *(each.source, each.text, each.target_tokens, each.truncated),
            summary(each.alternatives),
        )
        for each in translations
    ]


def scores_of(translations):
    return [
        score
        for each in translations
        for score in (each.score, each.log_prob, *scores_of(each.alternatives))
    ]


def random_sentences():
    """Return 30 sentences of 1 to 40 words, some of them twice."""
    random = np.random.default_rng(0)
    sentences = [
        " ".join(random.choice(WORDS, length))
        for length in [1, 1, 2, 3, 40, 25, *random.integers(2, 20, 16)]
    ]
    return [*sentences, *sentences[:5], PAIRS[0][0], PAIRS[7][0], PAIRS[0][0]]


def test_training_pairs_are_translated_as_they_were_learned(tiny_run, translator):
    held_out = {
        line.split("\t")[0]
        for file in (RunFolder(tiny_run).validation_file, RunFolder(tiny_run).test_file)
        for line in file.read_text("utf-8").splitlines()
    }
    learned = [pair for pair in PAIRS if pair[0] not in held_out]
    assert len(learned) == 18
    translations = translator.translate([english for english, _ in learned])
    assert [each.text for each in translations] == [chinese for _, chinese in learned]
    assert not any(each.truncated for each in translations)


def test_one_text_gives_one_translation(translator):
    english, chinese = PAIRS[0]
    translation = translator.translate(english)
    assert translation.source == english
    assert translation.text == chinese
    assert translation.source_tokens[-1] == translation.target_tokens[-1] == "</s>"
    assert "".join(translation.target_tokens[:-1]) == chinese
    assert translation.attention is None
    assert summary([translation]) == summary(translator.translate([english]))
    assert translator.translate([]) == []
    assert summary(translator.translate((english, english))) == summary([translation] * 2)


@pytest.mark.parametrize("options", [GREEDY, BEAM], ids=["greedy", "beam"])
def test_a_second_search_for_the_few_changes_nothing(translator, monkeypatch, options):
    """Whoever has not ended after a while is searched again, apart from the others."""
    sentences = [*random_sentences()[:12], "zzqxj wvkkp"]
    found = {}
    for extra in (-3, 1, EXTRA_TARGET_TOKENS):
        monkeypatch.setattr(searcher_module, "FIRST_EXTRA_TOKENS", extra)
        found[extra] = summary(translator.translate(sentences, options))
    assert found[-3] == found[1] == found[EXTRA_TARGET_TOKENS]


@pytest.mark.parametrize(
    "options", [GREEDY, BEAM, DRAWS, RULES], ids=["greedy", "beam", "draws", "rules"]
)
def test_translations_depend_on_their_own_sentence_only(translator, options):
    """Whatever the size of the batch and the order; finished neighbours once changed each other."""
    sentences = random_sentences()
    assert len(sentences) == 30
    if options in (DRAWS, RULES):  # which end late
        sentences = [*sentences[:4], sentences[20], *sentences[-4:]]
    count = len(sentences)
    assert len(set(sentences)) < count
    prefixes = (PREFIXES * 5 if options is RULES else [""] * 30)[:count]
    prefixes[-3:] = prefixes[:1] * 3
    expected = translator.translate(sentences, options, prefixes=prefixes)
    assert [each.source for each in expected] == sentences
    order = np.random.default_rng(1).permutation(count)
    # One at a time; about 2, 7 and all together.
    for batch_tokens in (1, 30, 100, 10_000) if count == 30 else (1, 30):
        translations = translator.translate(
            [sentences[i] for i in order],
            options,
            prefixes=[prefixes[i] for i in order],
            batch_tokens=batch_tokens * options.beam,
        )
        assert summary(translations) == summary([expected[i] for i in order])
        np.testing.assert_allclose(
            scores_of(translations), scores_of([expected[i] for i in order]), atol=1e-4
        )
    by_input = {}
    for each, prefix in zip(expected, prefixes, strict=True):
        assert each.text.startswith(prefix)
        known = by_input.setdefault((each.source, prefix), each)
        assert summary([each]) == summary([known])


@pytest.mark.parametrize("text", ["", " ", "\t", "\u3000", " \n\u200b\ufeff"])
def test_nothing_to_translate_gives_nothing(translator, monkeypatch, text):
    monkeypatch.setattr(translator, "searcher", None)
    translation = translator.translate(text, attention=True)
    assert translation.source == text
    assert translation.text == ""
    assert translation.source_tokens == translation.target_tokens == []
    assert (translation.score, translation.truncated, translation.attention) == (0, False, None)


def test_empty_texts_between_others_keep_their_place(translator):
    texts = ["", PAIRS[0][0], " ", PAIRS[4][0], ""]
    found = [each.text for each in translator.translate(texts)]
    assert found == ["", PAIRS[0][1], "", PAIRS[4][1], ""]


def test_odd_texts_are_translated_as_text(translator):
    translations = translator.translate(ODD_TEXTS)
    assert [each.source for each in translations] == ODD_TEXTS
    for each in translations:
        assert "\n" not in each.text
        assert each.source_tokens[-1] == "</s>"
        # What looks like a special token is ordinary characters.
        assert not {"<unk>", "</s>", "<pad>", "<s>"} & set(each.source_tokens[:-1])
        assert not {"<pad>", "<s>"} & set(each.target_tokens)
        assert len(each.target_tokens) <= len(each.source_tokens) + EXTRA_TARGET_TOKENS
        assert each.truncated == (each.target_tokens[-1] != "</s>")
        assert np.isfinite(each.score)


def test_translation_that_never_ends_is_cut(endless):
    """A model that has unlearned EOS stops at the length limit, and says so."""
    translation = endless.translate("I like cats.")
    assert translation.truncated
    assert len(translation.target_tokens) == len(translation.source_tokens) + EXTRA_TARGET_TOKENS
    assert len(set(translation.target_tokens)) == 1


def test_no_pair_of_subwords_comes_twice_and_a_prefix_has_room_of_its_own(endless):
    """The loop 你好你好你好… of a short source; a neighbour's prefix gives nobody more room."""
    sources, prefixes = ["Hello", "Hello", "cats"], ["", "我我我", "今天"]
    forced = [len(ids) for ids in endless.target_tokenizer.encode(prefixes)]
    for translation, prefix, length in zip(
        endless.translate(sources, RULES, prefixes=prefixes), prefixes, forced, strict=True
    ):
        for each in (translation, *translation.alternatives):
            tokens = each.target_tokens
            room = len(each.source_tokens) + EXTRA_TARGET_TOKENS + length
            assert len(tokens) == room if each.truncated else len(tokens) <= room
            assert each.text.startswith(prefix)
            pairs = Counter(zip(tokens[length:], tokens[length + 1 :], strict=False))
            assert set(pairs.values()) == {1}
        assert translation.truncated


def test_score_is_the_log_probability_over_the_length_penalty(translator):
    model = translator.searcher.models[0]
    sentences = ["You like cats.", "cats dogs cats"]
    for alpha in (0.0, 0.6, 1.0):
        options = SearchOptions(length_penalty=alpha)
        for translation in translator.translate(sentences, options):
            source, target = ids_of(translator, translation)
            target_in = np.concatenate([[[BOS]], target[:, :-1]], axis=1).astype(np.int32)
            log_probs = tf.nn.log_softmax(model((source, target_in)))[0].numpy()
            expected = [log_probs[place, token] for place, token in enumerate(target[0])]
            np.testing.assert_allclose(translation.token_log_probs, expected, atol=1e-4)
            np.testing.assert_allclose(translation.log_prob, sum(expected), atol=1e-4)
            penalty = ((5 + len(expected)) / 6) ** alpha
            np.testing.assert_allclose(translation.score, sum(expected) / penalty, atol=1e-4)


@pytest.mark.parametrize("options", [BEAM, DRAWS], ids=["beam", "draws"])
def test_alternatives_differ_and_come_best_first(translator, options):
    translations = translator.translate(["cats dogs cats", "I", "What is my friend?"], options)
    for best in translations:
        hypotheses = [best, *best.alternatives]
        assert len({tuple(each.target_tokens) for each in hypotheses}) == len(hypotheses)
        assert len(hypotheses) == options.nbest or options.sampling
        assert all(each.alternatives == [] for each in best.alternatives)
        ranks = [(each.truncated, -each.score) for each in hypotheses]
        assert ranks == sorted(ranks)
        assert {each.source for each in hypotheses} == {best.source}
    assert any(best.alternatives for best in translations)


def test_other_numbers_need_no_new_graph(translator, monkeypatch):
    """And the best of 4 is the same whether 1 or 4 are asked for."""
    sentence = "cats dogs cats"
    expected = translator.translate(sentence, BEAM)
    translator.translate(sentence, DRAWS)
    monkeypatch.setattr(searcher_module, "cached_step", lambda *_: pytest.fail("traced again"))
    for nbest in (1, 2, 4):
        found = translator.translate(sentence, dataclasses.replace(BEAM, nbest=nbest))
        hypotheses = summary([found, *found.alternatives])
        assert len(hypotheses) == nbest
        known = summary([expected, *expected.alternatives])
        assert [each[1:3] for each in hypotheses[:3]] == [each[1:3] for each in known[:nbest]]
    translator.translate(sentence, dataclasses.replace(BEAM, length_penalty=1.5))
    translator.translate("dogs " * 20, dataclasses.replace(DRAWS, temperature=3.0, top_k=5))


def test_draws_are_those_of_the_seed(translator):
    sentences = ["cats dogs cats", "What is my friend?", "I", "park phone"]
    found = [
        summary(translator.translate(sentences, dataclasses.replace(DRAWS, seed=seed)))
        for seed in (1, 1, 2)
    ]
    assert found[0] == found[1]
    assert found[0] != found[2]


def test_draws_among_one_token_are_greedy(translator):
    sentences = ["cats dogs cats", "I like cats."]
    options = dataclasses.replace(DRAWS, top_k=1)
    assert summary(translator.translate(sentences, options)) == summary(
        translator.translate(sentences)
    )


def test_scoring_a_translation_finds_its_own_log_probabilities(translator):
    sentences = [english for english, _ in PAIRS[:12]]
    translations = [*translator.translate(sentences), *translator.translate(sentences, BEAM)]
    sources, targets = [each.source for each in translations], [each.text for each in translations]
    compared = 0
    for scored, each in zip(translator.score(sources, targets), translations, strict=True):
        assert (scored.source, scored.text) == (each.source, each.text)
        assert scored.source_tokens == each.source_tokens
        np.testing.assert_allclose(scored.score, sum(scored.token_log_probs), rtol=1e-6)
        assert len(scored.token_log_probs) == len(scored.target_tokens)
        if scored.target_tokens == each.target_tokens:  # a text can be spelled in other subwords
            np.testing.assert_allclose(scored.token_log_probs, each.token_log_probs, atol=1e-4)
            np.testing.assert_allclose(scored.score, each.log_prob, atol=1e-4)
            compared += 1
    assert compared >= 16


def test_scoring_keeps_the_order_and_knows_what_is_worse(translator):
    english, chinese = PAIRS[0]
    sources = [english, "", english, PAIRS[7][0], english]
    targets = [chinese, chinese, chinese[::-1], PAIRS[7][1], ""]
    scored = translator.score(sources, targets)
    assert [each.source for each in scored] == sources
    assert [each.text for each in scored] == targets
    assert (scored[1].score, scored[1].target_tokens) == (0.0, [])
    assert scored[4].target_tokens == ["</s>"]
    assert scored[0].score > max(scored[2].score, scored[4].score)
    alone = translator.score([PAIRS[7][0]], [PAIRS[7][1]])[0]
    np.testing.assert_allclose(scored[3].token_log_probs, alone.token_log_probs, atol=1e-4)
    assert translator.score([], []) == []
    with pytest.raises(ValueError, match="received 2 sources and 1 targets"):
        translator.score(["a", "b"], ["c"])


def test_scoring_long_targets_of_short_sources_takes_no_more_memory(translator, monkeypatch):
    sizes = []

    def log_probs(source_ids, target_in_ids, target_out_ids):
        sizes.append(max(source_ids.size, target_in_ids.size))
        return np.zeros(target_out_ids.shape, np.float32)

    monkeypatch.setattr(translator.searcher, "log_probs", log_probs)
    translator.score(["a"] * 50, ["我" * 200] * 25 + ["我"] * 25)
    assert max(sizes) <= 1024
    assert len(sizes) < 15


def test_prefixes_begin_the_translations(translator):
    """Those of one text, of all or of some; what looks like a special token is text."""
    prefixes = ["你", "", "我我我我", "</s><pad>", "今天天气"]
    found = translator.translate(["I like cats."] * 5, RULES, prefixes=prefixes)
    for each, prefix in zip(found, prefixes, strict=True):
        for hypothesis in (each, *each.alternatives):
            assert hypothesis.text.startswith(prefix)
            assert np.isfinite(hypothesis.score)
            assert hypothesis.target_tokens.count("</s>") == 1 - hypothesis.truncated
            assert "<pad>" not in hypothesis.target_tokens
    assert summary([found[1]]) == summary(translator.translate(["I like cats."], RULES))
    for alone in ("你", ["你"]):
        assert summary([translator.translate("I like cats.", RULES, prefixes=alone)]) == summary(
            found[:1]
        )
    # Nothing to translate stays nothing.
    assert translator.translate([""], RULES, prefixes=["你"]) == [Translation("", "")]
    for wrong in (["你"], ["你"] * 3):
        with pytest.raises(ValueError, match=f"the 2 sentences .* received {len(wrong)} prefixes"):
            translator.translate(["a", "b"], prefixes=wrong)
    with pytest.raises(ValueError, match=r"the 1 sentences .* received 2 prefixes"):
        translator.translate("a", prefixes=["b", "c"])


def test_too_long_source(translator):
    message = rf"at most {MAX_SOURCE_TOKENS} subwords.* received \d+.*begins 'dogs dogs"
    with pytest.raises(ValueError, match=message):
        translator.translate(["I like cats.", "dogs " * (MAX_SOURCE_TOKENS + 1)])


def test_half_a_surrogate_pair(translator):
    with pytest.raises(ValueError, match="surrogate"):
        translator.translate("\ud83d")


# Attention ---------------------------------------------------------------------------------------


def ids_of(translator, translation):
    """Return source and target ids of a translation, each (1, length), from its subwords."""
    sides = []
    for tokenizer, tokens in (
        (translator.source_tokenizer, translation.source_tokens),
        (translator.target_tokenizer, translation.target_tokens),
    ):
        by_piece = {
            piece: i for i, piece in enumerate(tokenizer.pieces(range(tokenizer.vocab_size)))
        }
        sides.append(np.array([[by_piece[token] for token in tokens]], np.int32))
    return sides


SENTENCES = ["The price is 3.5 dollars.", "I like cats.", "Let us go to the park.", "dogs"]


@pytest.fixture(scope="module")
def attended(translator):
    return translator.translate(SENTENCES, attention=True)


@pytest.fixture(scope="module")
def attended_beams(translator):
    """The four hypotheses of each sentence, each with its attention."""
    best = translator.translate(SENTENCES, dataclasses.replace(BEAM, nbest=4), attention=True)
    return [[each, *each.alternatives] for each in best]


def test_attention_has_a_row_for_every_token(attended):
    layers, heads = 2, 4
    for translation in attended:
        s, t = len(translation.source_tokens), len(translation.target_tokens)
        attention = translation.attention
        assert attention.encoder.shape == (layers, heads, s, s)
        assert attention.decoder.shape == (layers, heads, t, t)
        assert attention.cross.shape == (layers, heads, t, s)
        for weights in attention:
            assert weights.dtype == np.float32
            np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-4)
        assert (attention.decoder[:, :, ~np.tri(t, dtype=bool)] == 0).all()
    assert len({len(translation.source_tokens) for translation in attended}) > 2


def test_attention_does_not_depend_on_the_batch(translator, attended):
    for sentence, together in zip(SENTENCES, attended, strict=True):
        alone = translator.translate(sentence, attention=True)
        for weights, expected in zip(alone.attention, together.attention, strict=True):
            np.testing.assert_allclose(weights, expected, atol=1e-5)


def test_attention_equals_that_of_a_teacher_forced_pass(translator, attended, attended_beams):
    """That of the best, and that of every alternative."""
    model = translator.searcher.models[0]
    for translation in [*attended, *(each for beam in attended_beams[:2] for each in beam)]:
        source, target = ids_of(translator, translation)
        target_in = np.concatenate([[[BOS]], target[:, :-1]], axis=1).astype(np.int32)
        encoded = model.encode(source)
        decoded = model.decode(target_in, model.project_memory(encoded), encoded.may_attend)
        for weights, expected in (
            (translation.attention.encoder, encoded.weights),
            (translation.attention.decoder, decoded.self_weights),
            (translation.attention.cross, decoded.cross_weights),
        ):
            np.testing.assert_allclose(weights, np.stack(expected)[:, 0], atol=1e-5)


def test_attention_equals_what_the_cached_steps_saw(translator, attended):
    model = translator.searcher.models[0]
    translation = attended[0]
    source, target = ids_of(translator, translation)
    encoded = model.encode(source)
    memory = model.project_memory(encoded)
    past = None
    newest = BOS
    for place, token in enumerate(target[0]):
        decoded = model.decode(np.array([[newest]], np.int32), memory, encoded.may_attend, past)
        np.testing.assert_allclose(
            translation.attention.cross[:, :, place],
            np.stack(decoded.cross_weights)[:, 0, :, 0],
            atol=1e-5,
        )
        np.testing.assert_allclose(
            translation.attention.decoder[:, :, place, : place + 1],
            np.stack(decoded.self_weights)[:, 0, :, 0],
            atol=1e-5,
        )
        past, newest = decoded.past, token


def test_each_target_token_is_aligned_with_the_source_token_it_looked_at_most(attended):
    assert align(attended[1]) == [
        (place, int(np.argmax(row)))
        for place, row in enumerate(attended[1].attention.cross[-1].mean(0))
    ]
    with pytest.raises(ValueError, match="carries no attention"):
        align(attended[1]._replace(attention=None))


def test_coverage_by_hand():
    """Two target tokens look at three source tokens, which get 0.7, 1.2 and 0.1."""
    looked_TS = np.array([[0.3, 0.7, 0.0], [0.4, 0.5, 0.1]])
    np.testing.assert_allclose(coverage(looked_TS), np.log(0.7) + np.log(0.1), rtol=1e-6)
    assert -20 < coverage(np.array([[1.0, 0.0]])) < -10


@pytest.mark.parametrize("beta", [0.3, 30.0])
def test_coverage_penalty_ranks_again(translator, attended_beams, beta):
    """The same hypotheses; what left source words out sinks."""
    options = dataclasses.replace(BEAM, nbest=4, coverage_penalty=beta)
    reordered = 0
    for best, plain in zip(translator.translate(SENTENCES, options), attended_beams, strict=True):
        expected = []
        for each in plain:
            got = each.attention.cross[-1].astype(float).mean(0).sum(0)
            score = each.score + beta * np.log(np.minimum(got, 1)).sum()
            expected.append((each.truncated, -score, each.text, each.target_tokens))
        found = [
            (each.truncated, -each.score, each.text, each.target_tokens)
            for each in (best, *best.alternatives)
        ]
        assert [each[2:] for each in found] == [each[2:] for each in sorted(expected)]
        np.testing.assert_allclose(
            [each[1] for each in found], [each[1] for each in sorted(expected)], rtol=1e-3
        )
        assert best.attention is None
        reordered += found[0][3] != plain[0].target_tokens
        only = translator.translate(best.source, dataclasses.replace(options, nbest=1))
        assert (only.text, only.alternatives) == (best.text, [])
    assert reordered > 0 or beta < 1


# Loading -----------------------------------------------------------------------------------------


def test_fresh_process_translates_the_same(tiny_run, translator):
    texts = [english for english, _ in PAIRS] + random_sentences()[:6] + [""]
    program = """
import json, sys, nmt
translations = nmt.load(sys.argv[1]).translate(json.loads(sys.argv[2]))
print(json.dumps([[each.text, each.score] for each in translations]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tiny_run), json.dumps(texts)],
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    expected = translator.translate(texts)
    assert [text for text, _ in found] == [each.text for each in expected]
    np.testing.assert_allclose(
        [score for _, score in found], [each.score for each in expected], atol=1e-4
    )


@pytest.fixture
def copied_run(tiny_run, tmp_path):
    """A copy of the trained run, without its checkpoints, to spoil."""
    shutil.copytree(tiny_run, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
    return RunFolder(tmp_path / "run")


def test_moved_run_translates(copied_run):
    assert nmt.load(str(copied_run.path)).translate(PAIRS[0][0]).text == PAIRS[0][1]


def test_several_runs_are_loaded_as_an_ensemble(tiny_run, copied_run, translator):
    models = load_translator(tiny_run, copied_run.path).searcher.models
    assert len(models) == 2
    assert models[0] is not models[1]
    for model in models:
        for value, expected in zip(
            model.get_weights(), translator.searcher.models[0].get_weights(), strict=True
        ):
            np.testing.assert_array_equal(value, expected)


def test_an_ensemble_of_runs_with_other_tokenizers_is_refused(tiny_run, copied_run):
    """Token 7 of the one is not token 7 of the other: their votes would be nonsense."""
    files = copied_run.source_tokenizer_file, copied_run.target_tokenizer_file
    source, target = (file.read_bytes() for file in files)
    manifest = copied_run.manifest()
    for file, content in zip(files, (target, source), strict=True):
        file.write_bytes(content)
        manifest["sha256"][file.name] = sha256(content)
    write_text(copied_run.manifest_file, json.dumps(manifest))
    with pytest.raises(ConfigError) as caught:
        load_translator(tiny_run, copied_run.path)
    message = str(caught.value)
    for part in (str(copied_run.path), str(tiny_run), "different tokenizers", "same prepared data"):
        assert part in message


def test_missing_folder(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere: no such run folder"):
        nmt.load(tmp_path / "nowhere")


def test_empty_folder(tmp_path):
    with pytest.raises(ConfigError, match=r"not a run folder"):
        nmt.load(tmp_path)


def test_foreign_folder(tmp_path):
    (tmp_path / "manifest.json").write_text('{"name": "something else"}')
    (tmp_path / "package.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"incomplete run folder: config.json"):
        nmt.load(tmp_path)


def test_run_that_is_not_trained(copied_run):
    copied_run.weights_file.unlink()
    with pytest.raises(ConfigError, match="not trained yet"):
        nmt.load(copied_run.path)


@pytest.mark.parametrize("damage", ["truncated", "empty", "text", "foreign", "random"])
def test_damaged_weights(copied_run, damage):
    file = copied_run.weights_file
    if damage == "truncated":
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    elif damage == "empty":
        file.write_bytes(b"")
    elif damage == "text":
        file.write_text("weights\n")
    elif damage == "foreign":
        keras.Sequential([keras.Input([3]), keras.layers.Dense(2)]).save_weights(file)
    elif damage == "random":
        file.write_bytes(np.random.default_rng(0).bytes(5000))
    with pytest.raises(ConfigError, match=r"model\.weights\.h5: cannot load the weights: \S+"):
        nmt.load(copied_run.path)


@pytest.mark.parametrize(
    "changes",
    [
        {"d_model": 64},
        {"dff": 32},
        {"num_layers": 3},
        {"num_layers": 1},
        {"num_heads": 8},
        {"norm": "post"},
        {"tie_embeddings": False},
    ],
    ids=str,
)
def test_weights_of_another_architecture(copied_run, changes):
    config = copied_run.config()
    model = dataclasses.replace(config.model, **changes)
    write_text(copied_run.config_file, to_json(dataclasses.replace(config, model=model)))
    with pytest.raises(ConfigError):
        nmt.load(copied_run.path)


def test_vocabulary_that_has_changed(copied_run):
    """Of the same size, but in another order: nothing but its hash would tell."""
    copied_run.target_tokenizer_file.write_bytes(copied_run.source_tokenizer_file.read_bytes())
    with pytest.raises(ConfigError, match=r"target\.model: the vocabulary has changed"):
        nmt.load(copied_run.path)


def test_tokenizer_that_is_lost(copied_run):
    copied_run.source_tokenizer_file.unlink()
    with pytest.raises(ConfigError, match=r"source\.model"):
        nmt.load(copied_run.path)


# Documents ---------------------------------------------------------------------------------------


class Spelling:
    """Stands in for a tokenizer: every character is a token."""

    def encode(self, texts):
        return [[ord(character) for character in text] for text in texts]


class Brackets:
    """Stands in for a translator: puts what it is given in brackets, and remembers it."""

    source_tokenizer = Spelling()

    def __init__(self, target_language="zh", segment_tokens=21):
        self.target_language = target_language
        self.segment_tokens = segment_tokens
        self.asked = []

    def translate(self, texts, options=GREEDY, *, attention=False, prefixes=None):
        assert isinstance(texts, list)
        assert prefixes is None or len(prefixes) == len(texts)
        self.asked.append((texts, options, attention, prefixes))
        return [Translation(text, f"[{text}]") for text in texts]


@pytest.mark.parametrize(
    ("text", "translated"),
    [
        ("Cats.", "[Cats.]"),
        ("Cats.\nDogs.", "[Cats.]\n[Dogs.]"),
        ("Cats.\r\nDogs.\rPark.\r\n", "[Cats.]\n[Dogs.]\n[Park.]\n"),
        ("\n\nCats.\n\n\n Dogs. \n", "\n\n[Cats.]\n\n\n[Dogs.]\n"),
        ("", ""),
        (" \t\u3000", ""),
        ("\n \n", "\n\n"),
        ("a\u2028b", "[a b]"),
        ("</s>\n<pad> x", "[</s>]\n[<pad> x]"),
        ("A cat. A dog!  Who?", "[A cat.][A dog!][Who?]"),
        # At most 20 characters are translated in one piece.
        ("I like cats, a lot.", "[I like cats, a lot.]"),
        ("I like cats. You like dogs.", "[I like cats.][You like dogs.]"),
        (
            "我喜欢猫。你喜欢狗。我们今天一起去公园吧。",
            "[我喜欢猫。][你喜欢狗。][我们今天一起去公园吧。]",
        ),
        ("I like cats. A\n\nYou like dogs.", "[I like cats.][A]\n\n[You like dogs.]"),
        ("Cats, " * 5 + "dogs.", "[Cats, Cats, Cats,][Cats, Cats, dogs.]"),
        ("x" * 30, f"[{'x' * 15}][{'x' * 15}]"),
    ],
    ids=ascii,
)
def test_lines_stay_lines_and_long_ones_are_cut_and_joined(text, translated):
    (document,) = translate_documents(Brackets(), [text])
    assert document.source == text
    assert document.text == translated
    assert [each.text for each in document.segments] == [
        f"[{part}" for part in translated.replace("\n", "").split("[")[1:]
    ]


def test_pieces_are_joined_as_the_language_does():
    text = "I like cats. You like dogs.\nHe"
    for language, joined in (("zh", ""), ("zh-TW", ""), ("ja", ""), ("de", " "), ("en", " ")):
        (document,) = translate_documents(Brackets(language), [text])
        assert document.text == f"[I like cats.]{joined}[You like dogs.]\n[He]"


def test_documents_go_to_the_engine_together_and_come_back_in_order():
    engine = Brackets()
    texts = ["Cats.\nDogs.", "", "I like cats. You like dogs.", "\n", "Cats."]
    documents = translate_documents(engine, texts, BEAM, attention=True)
    assert [each.source for each in documents] == texts
    assert [each.text for each in documents] == [
        *("[Cats.]\n[Dogs.]", "", "[I like cats.][You like dogs.]", "\n", "[Cats.]")
    ]
    assert [len(each.segments) for each in documents] == [2, 0, 2, 0, 1]
    sentences = ["Cats.", "Dogs.", "I like cats.", "You like dogs.", "Cats."]
    assert engine.asked == [(sentences, BEAM, True, None)]
    assert translate_documents(engine, []) == []


def test_a_prefix_belongs_to_the_first_sentence_of_its_text():
    engine = Brackets()
    texts = ["I like cats. You like dogs.\nHe", "", "Cats.", "\nDogs.\nA"]
    translate_documents(engine, texts, prefixes=["你", "我", "", "他"])
    assert engine.asked[0][3] == ["你", "", "", "", "他", ""]
    translate_documents(engine, texts, prefixes=["", "我", "", ""])
    assert engine.asked[1][3] is None


def test_a_stream_is_translated_as_it_comes():
    """No more is read ahead than a window has; what comes out does not depend on it."""
    texts = ["Cats.\nDogs.", "", "I like cats. You like dogs.", "\n", "Cats."]
    whole = translate_documents(Brackets(), texts)
    for window in (1, 2, 5, 99):
        engine, read = Brackets(), []
        stream = translate_stream(
            engine, (read.append(text) or text for text in texts), BEAM, window=window
        )
        assert read == []
        found = [next(stream)]
        assert len(read) == min(window, 5)
        assert [*found, *stream] == whole
        assert all(options is BEAM for _, options, *_ in engine.asked)
    assert list(translate_stream(Brackets(), [])) == []


def test_a_stream_of_long_texts_has_a_smaller_window(monkeypatch):
    monkeypatch.setattr(documents_module, "WINDOW_CHARACTERS", 25)
    engine = Brackets()
    texts = ["Cats.", "I like cats. You like dogs.", "Dogs.", "Park."]
    found = list(translate_stream(engine, iter(texts), prefix="我"))
    assert [each.source for each in found] == texts
    assert [asked[0] for asked in engine.asked] == [
        ["Cats.", "I like cats.", "You like dogs."],
        ["Dogs.", "Park."],
    ]
    assert [asked[3] for asked in engine.asked] == [["我", "我", ""], ["我", "我"]]


def test_alternatives_of_a_document_are_made_of_those_of_its_sentences():
    """The second best of each; a sentence that has no more gives its last one again."""

    class Several(Brackets):
        def translate(self, texts, options=GREEDY, **_):
            known = {"One.": ["a", "b", "c"], "Two.": ["d", "e"], "Six.": ["f"]}
            found = [[Translation(text, each) for each in known[text]] for text in texts]
            return [best._replace(alternatives=others) for best, *others in found]

    first, second, empty = translate_documents(Several(), ["One. Two.\n\nSix.", "Six.", ""])
    assert first.text == "ad\n\nf"
    assert [each.text for each in first.alternatives] == ["be\n\nf", "ce\n\nf"]
    assert {each.source for each in first.alternatives} == {first.source}
    assert [each.text for each in first.alternatives[1].segments] == ["c", "e", "f"]
    assert (second.alternatives, empty.alternatives) == ([], [])


def test_no_piece_is_longer_than_what_the_model_was_trained_on():
    random = np.random.default_rng(0)
    letters = list("ab .,!?。，！？；“”\"'—…()\n猫狗") + [" "] * 6
    engine = Brackets(segment_tokens=8)
    for _ in range(200):
        text = "".join(random.choice(letters, random.integers(1, 80)))
        (document,) = translate_documents(engine, [text])
        assert document.text.count("\n") == text.count("\n")
        pieces = [each.source for each in document.segments]
        assert all(0 < len(piece) < 8 and piece == piece.strip() for piece in pieces)
        assert "".join("".join(pieces).split()) == "".join(text.split())


def test_a_text_far_longer_than_any_sentence_is_translated(translator):
    """Sentence by sentence, though no single one of so many subwords would be accepted."""
    sentences = [PAIRS[i][0] for i in (0, 3, 6)]
    text = " ".join(sentences * 40)
    with pytest.raises(ValueError, match="at most"):
        translator.translate(text)
    document, empty = translate_documents(translator, [f"{text}\n\n{sentences[0]}", ""])
    expected = [each.text for each in translator.translate(sentences)]
    assert document.text == f"{''.join(expected * 40)}\n\n{expected[0]}"
    assert [each.source for each in document.segments] == [*sentences * 40, sentences[0]]
    assert empty.text == ""
