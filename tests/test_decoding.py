"""Search over hand-made tables, the decoding cache, and the translator on a trained run."""

import dataclasses
import json
import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest
import reference
import tensorflow as tf
from toy_pairs import PAIRS

import nmt
from nmt.config import ConfigError, ModelConfig, to_json
from nmt.decoding.search import greedy
from nmt.decoding.translator import EXTRA_TARGET_TOKENS, MAX_SOURCE_TOKENS
from nmt.model.transformer import build_transformer
from nmt.run_folder import RunFolder, write_text
from nmt.text.tokenizer import BOS, EOS, PAD

# Greedy search over tables ----------------------------------------------------------------------

A, B, C = 4, 5, 6
VOCABULARY = 7

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


def log_table(rows):
    """Return (V, V) log-probabilities: the next token given the newest."""
    table = np.full((VOCABULARY, VOCABULARY), -np.inf, np.float32)
    for token, probabilities in rows.items():
        table[token, [EOS, A, B, C]] = np.log(probabilities)
    return tf.constant(table)


def search(step, state, max_lengths):
    found = greedy(step, state, np.array(max_lengths, np.int32), bos=BOS, eos=EOS, pad=PAD)
    return type(found)(*(value.numpy() for value in found))


def search_table(table, max_lengths):
    return search(lambda ids, state: (tf.gather(table, ids), state), (), max_lengths)


def test_greedy_takes_the_likeliest_token_each_time():
    """Not the likeliest sentence, which would be "b" at -0.949331."""
    found = search_table(log_table(TABLE_GREEDY_LOSES), [6])
    assert found.ids.tolist() == [[A, EOS]]
    assert found.lengths.tolist() == [2]
    assert not found.truncated[0]
    np.testing.assert_allclose(found.scores, [-1.619488], atol=1e-6)


def test_of_equally_likely_tokens_the_first_is_taken():
    """After "b", </s> and "c" are as likely: the lower id, as in the reference."""
    found = search_table(log_table(TABLE_OF_LENGTHS), [6])
    assert found.ids.tolist() == [[B, EOS]]
    np.testing.assert_allclose(found.scores, [-1.029459], atol=1e-6)


def test_sentence_that_does_not_end_is_cut_and_marked():
    """And its neighbours neither wait for it in their results nor are changed by it."""
    table = log_table({**TABLE_GREEDY_LOSES, C: (0.1, 0.2, 0.2, 0.5)})

    def step(ids, never_ends):
        endless = tf.math.log([0, 0, 0, 0, 0.3, 0.1, 0.6])
        return tf.where(never_ends[:, None], endless, tf.gather(table, ids)), never_ends

    found = search(step, tf.constant([False, True, False]), [6, 9, 1])
    assert found.lengths.tolist() == [2, 9, 1]
    assert found.ids.tolist() == [[A, EOS] + [PAD] * 7, [C] * 9, [A] + [PAD] * 8]
    assert found.truncated.tolist() == [False, True, True]
    np.testing.assert_allclose(found.scores, [-1.619488, 9 * np.log(0.6), np.log(0.55)], atol=1e-5)


def test_end_just_within_the_limit_is_not_cut():
    found = search_table(log_table(TABLE_GREEDY_LOSES), [2, 1])
    assert found.truncated.tolist() == [False, True]
    assert found.ids.tolist() == [[A, EOS], [A, PAD]]


def test_begin_and_padding_are_never_chosen():
    probabilities = np.full(VOCABULARY, 0.01)
    probabilities[[PAD, BOS, B]] = 0.5, 0.4, 0.05
    table = tf.constant(np.log(np.tile(probabilities, (VOCABULARY, 1))), tf.float32)
    found = search_table(table, [4])
    assert found.ids.tolist() == [[B] * 4]
    np.testing.assert_allclose(found.scores, [4 * np.log(0.05)], rtol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_greedy_equals_the_reference_on_random_tables(seed):
    """The table looks at the whole prefix, through a state that grows as a cache does."""
    random = np.random.default_rng(seed)
    table = random.normal(size=(4, 11, VOCABULARY, VOCABULARY))
    table[..., EOS] -= 0.5
    table = np.log(np.exp(table) / np.exp(table).sum(-1, keepdims=True)).astype(np.float32)
    max_lengths = [12, 3, 1, 7]

    def step(ids, state):
        sentence, prefix = state
        prefix = tf.concat([prefix, ids[:, None]], axis=1)
        place = tf.reduce_sum(prefix * tf.range(1, tf.shape(prefix)[1] + 1), axis=1) % 11
        index = tf.stack([sentence, place, ids], axis=1)
        return tf.gather_nd(tf.constant(table), index), (sentence, prefix)

    found = search(step, (tf.range(4), tf.zeros([4, 0], tf.int32)), max_lengths)
    for row, limit in enumerate(max_lengths):

        def next_log_probs(prefix, row=row):
            place = sum(token * number for number, token in enumerate(prefix, 1)) % 11
            log_probs = table[row, place, prefix[-1]].copy()
            log_probs[[PAD, BOS]] = -np.inf
            return log_probs

        ids, score = reference.greedy(next_log_probs, BOS, EOS, limit)
        length = found.lengths[row]
        assert tuple(found.ids[row, :length]) == ids
        assert (found.ids[row, length:] == PAD).all()
        assert found.truncated[row] == (ids[-1] != EOS)
        np.testing.assert_allclose(found.scores[row], score, rtol=1e-5)


def test_search_stops_when_all_have_ended():
    calls = []
    table = log_table(TABLE_GREEDY_LOSES)

    def step(ids, state):
        tf.py_function(lambda: calls.append(1), [], [])
        return tf.gather(table, ids), state

    tf.function(lambda: greedy(step, (), tf.constant([50, 50]), bos=BOS, eos=EOS, pad=PAD))()
    assert len(calls) == 2


# The cache ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("steps", [[1] * 6, [2, 1, 3]])
def test_cached_steps_equal_the_uncached_pass(norm, steps):
    config = ModelConfig(2, 16, 4, 24, 0.1, 11, 13, norm)
    model = build_transformer(config, seed=1)
    random = np.random.default_rng(0)
    for variable in model.trainable_variables:
        variable.assign_add(0.2 * random.normal(size=variable.shape))
    source = np.array([[4, 5, 6, EOS, PAD], [7, 8, EOS, PAD, PAD]], np.int32)
    target_in = np.array([[BOS, 5, 6, 7, 8, 9], [BOS, 12, 11, 4, 4, 4]], np.int32)
    encoded = model.encode(source)
    memory = model.project_memory(encoded)
    whole = model.decode(target_in, memory, encoded.may_attend)
    logits = model((source, target_in)).numpy()

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


# The translator ----------------------------------------------------------------------------------

WORDS = sorted({word for english, _ in PAIRS for word in english.split()})
ODD_TEXTS = [
    "-", "...", "???", "12345", "😀", "👩‍👩‍👧", "<unk>", "</s>", "<pad>", "<s>", "<0x0A>",
    "zzqxj wvkkp", "猫", "▁", "a" * 200, "a\nb", "Ｉ ｌｉｋｅ",
]  # fmt: skip


@pytest.fixture(scope="module")
def translator(tiny_run):
    return nmt.load(tiny_run)


def summary(translations):
    return [(each.source, each.text, each.target_tokens, each.truncated) for each in translations]


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


def test_translations_depend_on_their_own_sentence_only(translator):
    sentences = random_sentences()
    assert len(sentences) == 30
    assert len(set(sentences)) < 30
    expected = translator.translate(sentences)
    # One at a time; about 2, 7 and all together.
    for batch_tokens in (1, 30, 100, 10_000):
        translations = translator.translate(sentences, batch_tokens=batch_tokens)
        assert summary(translations) == summary(expected)
        np.testing.assert_allclose(
            [each.score for each in translations], [each.score for each in expected], atol=1e-4
        )
    order = np.random.default_rng(1).permutation(30)
    shuffled = translator.translate([sentences[i] for i in order], batch_tokens=60)
    assert summary(shuffled) == summary([expected[i] for i in order])
    by_text = {}
    for each in expected:
        assert by_text.setdefault(each.source, each.text) == each.text


@pytest.mark.parametrize("text", ["", " ", "\t", "\u3000", " \n\u200b\ufeff"])
def test_nothing_to_translate_gives_nothing(translator, monkeypatch, text):
    monkeypatch.setattr(translator, "search", lambda source_ids: pytest.fail("model was called"))
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
        assert np.isfinite(each.score)


def test_translation_that_never_ends_is_cut(tiny_run):
    """A model that has unlearned EOS stops at the length limit, and says so."""
    translator = nmt.load(tiny_run)
    table = translator.model.target_embedding.embeddings
    values = table.numpy()
    values[EOS] = 0
    values[C] = 50 * values[C] / np.linalg.norm(values[C])
    table.assign(values)
    gamma, beta = translator.model.decoder_norm.gamma, translator.model.decoder_norm.beta
    gamma.assign(tf.zeros_like(gamma))
    beta.assign(values[C])
    translation = translator.translate("I like cats.")
    assert translation.truncated
    assert len(translation.target_tokens) == len(translation.source_tokens) + EXTRA_TARGET_TOKENS
    assert "</s>" not in translation.target_tokens


def test_score_is_the_log_probability_of_the_target(translator):
    for translation in translator.translate(["You like cats.", "cats dogs cats"]):
        source, target = ids_of(translator, translation)
        target_in = np.concatenate([[[BOS]], target[:, :-1]], axis=1).astype(np.int32)
        log_probs = tf.nn.log_softmax(translator.model((source, target_in)))[0].numpy()
        expected = sum(log_probs[place, token] for place, token in enumerate(target[0]))
        np.testing.assert_allclose(translation.score, expected, atol=1e-4)


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


def test_attention_equals_that_of_a_teacher_forced_pass(translator, attended):
    model = translator.model
    for translation in attended:
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
    model = translator.model
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
