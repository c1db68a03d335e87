"""Word alignment: which heads align, how subwords become words, what is written."""

import numpy as np
import pytest

from nmt.decoding.alignment import (
    Unit,
    align_words,
    alignment_scores,
    attended,
    best_head,
    entropies,
    head_weights,
    link_units,
    mean_scores,
    pharaoh,
    split_units,
)
from nmt.decoding.translation import Attention, Translation
from nmt.text.normalize import clean

SOURCE = ["▁the", "▁black", "▁cat", "</s>"]
TARGET = ["黑", "猫", "</s>"]

# Heads whose worth is plain to see, (4, T, S).
ALIGNS = np.array([[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], float)
STARES_AT_THE_END = np.array([[0, 0, 0, 1]] * 3, float)
STARES_AT_A_WORD = np.array([[0, 1, 0, 0]] * 3, float)
DIFFUSE = np.full((3, 4), 0.25)
HEADS = np.stack([ALIGNS, STARES_AT_THE_END, STARES_AT_A_WORD, DIFFUSE])


def translation(cross, source=SOURCE, target=TARGET):
    """A translation with this cross-attention (L, H, T, S)."""
    s, t = len(source), len(target)
    layers, heads = np.shape(cross)[:2]
    attention = Attention(
        np.zeros((layers, heads, s, s)), np.zeros((layers, heads, t, t)), np.asarray(cross)
    )
    return Translation("x", "y", source, target, attention=attention)


# Scores of heads ---------------------------------------------------------------------------------


def test_entropy_of_one_and_of_all():
    weights = np.array([[ALIGNS, DIFFUSE]])
    np.testing.assert_allclose(entropies(weights), [[0.0, np.log(4)]])
    half = np.array([[[[0.5, 0.5, 0, 0], [1, 0, 0, 0]]]])
    np.testing.assert_allclose(entropies(half), [[np.log(2) / 2]])


def test_a_head_that_aligns_scores_and_those_that_stare_or_dream_do_not():
    scores = alignment_scores(HEADS[None], SOURCE, TARGET)
    np.testing.assert_allclose(scores, [[1, 0, 0, 0]], atol=1e-12)


def test_scores_of_real_looking_heads_have_the_same_order():
    random = np.random.default_rng(0)
    noisy = 0.8 * HEADS + 0.2 * random.dirichlet(np.ones(4), (4, 3))
    two_layers = np.stack([noisy, noisy[::-1]])
    scores = alignment_scores(two_layers, SOURCE, TARGET)
    assert scores[0].argmax() == 0
    assert scores[1].argmax() == 3
    assert scores[0, 0] > 2 * scores[0, 1:].max()


def test_sharp_is_not_aligned():
    """A sharp head that goes its own way scores less than a blurred one that agrees with most."""
    backwards = ALIGNS[:, [2, 1, 0, 3]][[1, 0, 2]]
    blurred = [0.5 * ALIGNS + 0.5 * DIFFUSE] * 3
    scores = alignment_scores(np.array([[backwards, *blurred]]), SOURCE, TARGET)[0]
    assert scores[0] < scores[1:].min()


def test_attention_to_the_end_is_no_alignment():
    """Heads that look at </s> at the same moments need not agree about any word."""
    cross = np.random.default_rng(0).dirichlet(np.ones(4), (2, 3, 3))
    without = alignment_scores(cross[..., :3], SOURCE[:3], TARGET)
    np.testing.assert_allclose(alignment_scores(cross, SOURCE, TARGET), without)


def test_scores_of_a_sentence_of_one_token_or_none():
    assert alignment_scores(np.ones((1, 2, 1, 1)), ["</s>"], ["</s>"]).tolist() == [[0, 0]]
    assert alignment_scores(np.ones((1, 2, 1, 2)) / 2, ["▁a", "</s>"], ["b"]).tolist() == [[0, 0]]
    assert alignment_scores(np.ones((1, 2, 0, 0)), [], []).tolist() == [[0, 0]]


def test_lengths_must_agree():
    with pytest.raises(ValueError, match=r"\(L, H, 2, 4\); received \(1, 4, 3, 4\)"):
        alignment_scores(HEADS[None], SOURCE, TARGET[:2])


def test_mean_scores_leave_out_what_has_no_text():
    aligned, staring = translation([[ALIGNS, DIFFUSE]]), translation([[DIFFUSE, ALIGNS]])
    no_target = translation([[ALIGNS[:1], ALIGNS[:1]]], target=["</s>"])
    given = [aligned, aligned, aligned, staring, Translation("", "x"), no_target]
    np.testing.assert_allclose(mean_scores(given), [[0.75, 0.25]], atol=1e-12)
    with pytest.raises(ValueError, match="no pair has text on both sides"):
        mean_scores([Translation("", ""), no_target])


def test_heads_count_by_the_square_of_their_scores():
    scores = np.array([[0.2, 0.0], [0.4, 0.1]])
    np.testing.assert_allclose(head_weights(scores), [[4 / 21, 0], [16 / 21, 1 / 21]])
    np.testing.assert_allclose(head_weights(scores, layer=2), [[0, 0], [16 / 17, 1 / 17]])
    np.testing.assert_allclose(head_weights(scores, head=1), [[0.2, 0], [0.8, 0]])
    # Whoever names a head gets it, whatever its score.
    assert head_weights(scores, layer=1, head=2).tolist() == [[0, 1], [0, 0]]
    np.testing.assert_allclose(head_weights(np.zeros((2, 2))), np.full((2, 2), 0.25))
    assert best_head(scores) == (2, 1)


@pytest.mark.parametrize("choice", [{"layer": 0}, {"layer": 3}, {"head": -1}, {"head": 3}])
def test_layer_and_head_must_exist(choice):
    with pytest.raises(ValueError, match="must be from 1 to 2; received"):
        head_weights(np.ones((2, 2)), **choice)


# Subwords to words -------------------------------------------------------------------------------


def test_words_begin_at_spaces():
    units = split_units(["▁un", "believ", "able", "▁cats", ".", "</s>"], spaced=True)
    assert units == [Unit("unbelievable", (0, 1, 2)), Unit("cats.", (3, 4))]


def test_characters_are_units_where_words_are_not_separated():
    units = split_units(["我喜欢", "▁A", "▁", "猫", "</s>"], spaced=False)
    assert units == [
        *(Unit("我", (0,)), Unit("喜", (0,)), Unit("欢", (0,))),
        *(Unit("A", (1,)), Unit("猫", (3,))),
    ]


def test_bytes_become_their_character():
    lucky = ["<0xF0>", "<0xA0>", "<0xAE>", "<0xB7>"]  # 𠮷
    assert split_units(["我", *lucky, "家", "</s>"], spaced=False) == [
        *(Unit("我", (0,)), Unit("𠮷", (1, 2, 3, 4)), Unit("家", (5,))),
    ]
    word = split_units(["▁na", "<0xC3>", "<0xAF>", "ve", "</s>"], spaced=True)
    assert word == [Unit("naïve", (0, 1, 2, 3))]
    # A space in bytes is a space.
    words = split_units(["a", "<0xE2>", "<0x96>", "<0x81>", "b"], spaced=True)
    assert words == [Unit("a", (0,)), Unit("b", (4,))]


def test_bytes_that_are_no_text_lose_no_token():
    assert split_units(["<0xE4>", "<0xE4>", "a"], spaced=False) == [
        *(Unit("\ufffd", (0,)), Unit("\ufffd", (1,)), Unit("a", (2,))),
    ]
    assert split_units(["<0xE4>", "<0xB8>"], spaced=False) == [Unit("\ufffd", (0, 1))]


def test_nothing_has_no_units():
    assert split_units([], True) == split_units(["</s>"], False) == []


# Links -------------------------------------------------------------------------------------------


def test_links_are_where_a_unit_looked_most_and_never_the_end():
    weights = np.array([[0.1, 0.5, 0.2, 0.2], [0.0, 0.1, 0.2, 0.7], [0, 0, 0, 1.0]])
    links = link_units(weights, split_units(SOURCE, True), split_units(TARGET, False))
    assert links == [(1, 0), (2, 1)]


def test_attention_to_the_subwords_of_a_word_adds_up():
    source = split_units(["▁I", "▁un", "believ", "able", "</s>"], True)
    weights = np.array([[0.4, 0.2, 0.2, 0.2, 0.0]])
    assert link_units(weights, source, [Unit("我", (0,))]) == [(1, 0)]


def test_a_unit_looks_with_the_mean_of_its_subwords():
    weights = np.array([[0.6, 0.4, 0.0], [0.1, 0.9, 0.0]])
    source = split_units(["▁a", "▁b", "</s>"], True)
    assert link_units(weights, source, [Unit("𠮷", (0, 1))]) == [(1, 0)]


def test_of_equals_the_first():
    weights = np.full((1, 3), 1 / 3)
    assert link_units(weights, split_units(["▁a", "▁b", "</s>"], True), [Unit("x", (0,))]) == [
        (0, 0)
    ]


def test_characters_of_one_subword_go_together():
    source, target = split_units(["小猫", "跑", "</s>"], False), split_units(["▁cat", "</s>"], True)
    weights = np.array([[0.6, 0.3, 0.1], [0.0, 0.0, 1.0]])
    assert link_units(weights, source, target) == [(0, 0), (1, 0)]
    back = link_units(np.array([[0.9, 0.1], [0.9, 0.1]]), target, source)
    assert back == [(0, 0), (0, 1), (0, 2)]


def test_an_alignment_by_hand():
    source = ["▁I", "▁like", "▁ca", "ts", ".", "</s>"]
    target = ["我", "喜欢", "猫", "。", "</s>"]
    cross = np.zeros((2, 2, 5, 6))
    cross[0, 1, range(5), [0, 1, 3, 4, 5]] = 1.0
    cross[1, :, :, 5] = 1.0
    cross[0, 0, :, 5] = 1.0
    made = translation(cross, source, target)
    weights = head_weights(mean_scores([made]))
    assert best_head(weights) == (1, 2)
    alignment = align_words(made, weights)
    assert alignment.source_units == ["I", "like", "cats."]
    assert alignment.target_units == list("我喜欢猫。")
    assert pharaoh(alignment.links) == "0-0 1-1 1-2 2-3 2-4"


def test_nothing_is_aligned_with_nothing():
    alignment = align_words(Translation("", "你好"), np.ones((1, 1)))
    assert alignment == ([], [], [])
    assert pharaoh(alignment.links) == ""
    no_target = translation([[ALIGNS[:1]]], target=["</s>"])
    assert align_words(no_target, np.ones((1, 1))).links == []


# With a model ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def translator(tiny_run):
    from nmt.decoding.translator import load_translator

    return load_translator(tiny_run)


def test_given_pairs_get_the_attention_of_their_translation(translator):
    """What the search gives and what is given looks the same, in whatever batch."""
    sentences = ["I like cats.", "The weather is nice today."]
    free = translator.translate(sentences, attention=True)
    pairs = [(each.source, each.text) for each in free]
    forced = list(attended(translator, [("", "你好"), pairs[0], ("Hello", ""), pairs[1]]))
    for one, other in zip(free, [forced[1], forced[3]], strict=True):
        assert other.target_tokens == one.target_tokens
        for mine, theirs in zip(one.attention, other.attention, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-5)
    assert forced[0].attention is None
    assert forced[2].attention.cross.shape[2] == 1
    alone = translator.score([pairs[0][0]], [pairs[0][1]])[0]
    assert alone.attention is None
    assert alone.token_log_probs == pytest.approx(forced[1].token_log_probs, abs=1e-5)


def test_few_pairs_are_held_at_a_time(translator, monkeypatch):
    taken = []
    score = translator.score
    monkeypatch.setattr(
        translator,
        "score",
        lambda sources, targets, **rest: (
            taken.append(len(sources)) or score(sources, targets, **rest)
        ),
    )
    pairs = [("I like cats.", "我喜欢猫。")] * 5
    assert len(list(attended(translator, pairs, part=30))) == 5
    assert taken == [2, 2, 1]


def test_units_spell_the_text(translator):
    text = "Hello, naïve 𠮷!  It is 3.5 dollars."
    ids = translator.source_tokenizer.encode([clean(text)])[0]
    units = split_units(translator.source_tokenizer.pieces(ids), spaced=True)
    assert [unit.text for unit in units] == clean(text).split(" ")
    text = "你好，𠮷 世界！"
    ids = translator.target_tokenizer.encode([text])[0]
    units = split_units(translator.target_tokenizer.pieces(ids), spaced=False)
    assert "".join(unit.text for unit in units) == text.replace(" ", "")


def test_the_command_writes_a_line_for_each_pair(in_process, tiny_run, tmp_path):
    pairs, output = tmp_path / "pairs.tsv", tmp_path / "pairs.align"
    pairs.write_text("I like cats.\t我喜欢猫。\n\t你好\nHello\t\n\nI like\t我\n", encoding="utf-8")
    done = in_process("align", tiny_run, pairs, "--units", "-o", output)
    assert done.exit_code == 0, done.output
    assert done.stdout == ""
    lines = output.read_text(encoding="utf-8").split("\n")
    assert len(lines) == 6
    assert [line.split("\t")[0] != "" for line in lines] == [True, False, False, False, True, False]
    links, source, target = lines[0].split("\t")
    assert (source, target) == ("I like cats.", "我 喜 欢 猫 。")
    places = [tuple(map(int, link.split("-"))) for link in links.split()]
    assert {target for _, target in places} == set(range(5))
    assert {source for source, _ in places} <= set(range(3))
    assert "nmt: 5 pairs, 2 aligned, by the heads together" in done.stderr
    assert "score 0." in done.stderr
