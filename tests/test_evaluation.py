"""Scores: the published figures, and none that looks good because something is missing."""

import math

import nltk
import pytest
import sacrebleu

from nmt.data.corpora import read_lines
from nmt.evaluation.scores import bleu_tokenizer, corpus_scores, sentence_bleu


def figures(hypotheses, references, language="zh"):
    """Return the values by name."""
    return {score.name: score.value for score in corpus_scores(hypotheses, references, language)}


def bleu(hypotheses, references, language="zh"):
    return figures(hypotheses, references, language)["BLEU"]


def near(value):
    """Equal in all the digits that a case gives."""
    return pytest.approx(value, abs=5e-5)


@pytest.mark.parametrize(
    ("hypothesis", "reference", "value"),
    [
        ("我今天去学校。", "我今天去学校。", 100.0),
        ("今天天气不错", "今天天气很好", 50.8133),
        ("我在2024年买了iPhone 15手机。", "我在2024年买了iPhone15手机。", 58.7728),
    ],
)
def test_eval_01_chinese_is_scored_by_character(hypothesis, reference, value):
    """EVAL-01, TOK-08: with 13a even the identical sentence would score 0."""
    found = figures([hypothesis], [[reference]])
    assert found["BLEU"] == near(value)
    assert found["NLTK BLEU"] == near(value)


def test_eval_01_the_signature_goes_with_the_figure():
    """EVAL-01: what was computed can be read off."""
    first, second, third = corpus_scores(["我今天去学校。"], [["我今天去学校。"]], "zh")
    version = sacrebleu.__version__
    assert first.signature == f"nrefs:1|case:mixed|eff:no|tok:zh|smooth:exp|version:{version}"
    assert (second.name, f"version:{version}" in second.signature) == ("chrF", True)
    assert third.signature == f"tok:zh|smooth:none|version:{nltk.__version__}"


def test_eval_01_the_tokenizer_follows_the_language():
    """EVAL-01: tok zh for any Chinese, 13a for the rest."""
    assert [bleu_tokenizer(language) for language in ("zh", "zh-TW", "en")] == ["zh", "zh", "13a"]
    english, *_ = corpus_scores(["a b c d"], [["a b c d"]], "en")
    assert "tok:13a" in english.signature


@pytest.mark.parametrize(
    ("text", "language", "corpus"),
    [
        ("谢谢你", "zh", 0.0),
        ("你好", "zh", 0.0),
        ("Zhongjian Plaza", "en", 0.0),
        ("China Railway Heavy Industry", "en", 100.0),
    ],
)
def test_eval_02_short_sentences(text, language, corpus):
    """EVAL-02: no 4-gram, no corpus BLEU; a single sentence uses effective order."""
    # Not 100.00000000000004 either.
    assert bleu([text], [[text]], language) == corpus
    assert sentence_bleu(text, [text], language) == 100.0


HYPOTHESES = ["The dog bit the man.", "It wasn't surprising.", "The man had just bitten him."]
REFERENCES_A = ["The dog bit the man.", "It was not unexpected.", "The man bit him first."]
REFERENCES_B = ["The dog had bit the man.", "No one was surprised.", "The man had bitten the dog."]


def test_eval_03_one_and_two_sets_of_references():
    """EVAL-03: sets of references, each as long as the hypotheses."""
    assert bleu(HYPOTHESES, [REFERENCES_A], "en") == near(45.0675)
    assert bleu(HYPOTHESES, [REFERENCES_A, REFERENCES_B], "en") == near(48.5308)
    both = corpus_scores(HYPOTHESES, [REFERENCES_A, REFERENCES_B], "en")
    assert "nrefs:2" in both[0].signature


@pytest.mark.parametrize(
    "references",
    [
        [[reference] for reference in REFERENCES_A],
        [list(pair) for pair in zip(REFERENCES_A, REFERENCES_B, strict=True)],
        REFERENCES_A,
        [],
    ],
    ids=["a list each", "transposed", "no nesting", "none"],
)
def test_eval_03_wrong_nesting_is_refused(references):
    """EVAL-03: sacreBLEU itself reports 100.00 or 61.88 for these."""
    with pytest.raises(ValueError, match="reference"):
        corpus_scores(HYPOTHESES, references, "en")


def test_eval_04_empty_hypotheses_count():
    """EVAL-04: dropping the empty line would give 100."""
    references = ["你好。", "我喜欢猫。"]
    assert bleu(["", "我喜欢猫。"], [references]) == near(54.8812)
    assert figures(["", ""], [references]) == {"BLEU": 0.0, "chrF": 0.0, "NLTK BLEU": 0.0}
    assert sentence_bleu("", ["你好。"], "zh") == 0.0
    assert bleu(["hello"], [["\x0c"]], "en") == 0.0
    assert figures(["hello"], [["\x0c"]], "en")["NLTK BLEU"] == 0.0


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("hypothesis", "reference", "language", "sacre"),
    [
        ("left right", "left right", "en", 0.0),
        ("我喜欢那只猫", "我喜欢这只小猫", "zh", 29.0593),
        ("我喜欢猫", "我喜欢猫", "zh", 100.0),
    ],
)
def test_eval_06_nltk_says_zero_not_almost(hypothesis, reference, language, sacre):
    """EVAL-06: no hit of 4-grams is 0.0, without a warning and without 1e-154."""
    found = figures([hypothesis], [[reference]], language)
    assert found["BLEU"] == near(sacre)
    assert found["NLTK BLEU"] == (100.0 if sacre == 100.0 else 0.0)


def test_eval_06_nltk_sees_the_tokens_of_sacrebleu():
    """EVAL-06: where every n-gram order has a hit the two agree to the last digits."""
    hypotheses = ["我在2024年买了iPhone 15手机。", "今天天气不错，我们去公园吧。"]
    references = ["我在2024年买了iPhone15手机。", "今天天气很好，我们一起去公园吧。"]
    found = figures(hypotheses, [references])
    assert found["NLTK BLEU"] == pytest.approx(found["BLEU"], abs=1e-9)
    assert 40 < found["BLEU"] < 100


def test_eval_08_extension_b_is_scored_as_sacrebleu_does():
    """EVAL-08: 53.7285 with sacreBLEU 2.6.0, known bug included; characters would be 64.3459."""
    hypothesis, reference = ["𠮷野家在𠀀𠀁街"], [["𠮷野家在𠀀𠀂街"]]
    installed = sacrebleu.BLEU(tokenize="zh").corpus_score(hypothesis, reference).score
    score, *_ = corpus_scores(hypothesis, reference, "zh")
    assert score.value == installed
    assert sacrebleu.__version__ in score.signature
    if sacrebleu.__version__ == "2.6.0":
        assert score.value == near(53.7285)


@pytest.mark.parametrize(
    ("hypotheses", "references", "counts"),
    [
        (["a b c", "d e f", "g h i"], ["a b c"], (3, 1)),
        (["a b c", "d e f"], ["a b c", "d e f", "g h i"], (2, 3)),
    ],
)
def test_eval_09_files_of_different_length(hypotheses, references, counts):
    """EVAL-09: an error with both counts; sacreBLEU would cut to the shorter."""
    with pytest.raises(ValueError, match=f"{counts[1]} sentences.* {counts[0]} hypotheses"):
        corpus_scores(hypotheses, [references], "en")
    with pytest.raises(ValueError, match=f"set 2 has {counts[1]} sentences"):
        corpus_scores(hypotheses, [hypotheses, references], "en")


def test_eval_09_no_sentence_at_all():
    with pytest.raises(ValueError, match="received 0 sentences"):
        corpus_scores([], [[]], "en")


def test_eval_09_a_blank_line_is_a_hypothesis(tmp_path):
    """EVAL-09: in the middle of the file it is an empty translation."""
    path = tmp_path / "system.txt"
    path.write_text("The cat sat on it.\n\nThe dog sat on it.\n", encoding="utf-8")
    hypotheses = read_lines(path)
    assert len(hypotheses) == 3
    references = ["The cat sat on it.", "Who?", "The dog sat on it."]
    assert 0 < bleu(hypotheses, [references], "en") < 100


@pytest.mark.parametrize(
    ("hypothesis", "reference", "value"),
    [
        ("价格是３５０元。", "价格是350元。", 25.8487),
        ("你好,世界!我爱你.", "你好，世界！我爱你。", 22.9575),
        ("我喜欢\u3000猫。", "我喜欢猫。", 100.0),
        ("我喜欢猫。  ", "我喜欢猫。", 100.0),
        ("我喜欢猫。\r", "我喜欢猫。", 100.0),
    ],
    ids=ascii,
)
def test_eval_10_width_counts_and_spaces_do_not(hypothesis, reference, value):
    """EVAL-10: no hidden normalization of width."""
    assert bleu([hypothesis], [[reference]]) == near(value)


def test_eval_12_an_empty_hypothesis_sets_the_two_apart():
    """EVAL-12: 12/16 tokens for sacreBLEU; NLTK adds one to each denominator."""
    found = figures(
        ["It is a guide to action which ensures that the military always", ""],
        [["It is a guide to action that ensures that the military will",
          "forever heed Party commands"]],
        "en",
    )  # fmt: skip
    assert found["BLEU"] == near(45.4314)
    assert found["NLTK BLEU"] == near(41.4411)


def test_eval_12_corpus_bleu_is_not_the_mean_of_sentences():
    """EVAL-12: 56.7384 and 73.1175 for the same two sentences."""
    hypotheses = ["我喜欢猫。", "今天天气不错，我们去公园吧。"]
    references = ["我喜欢猫。", "今天天气很好，我们一起去公园吧。"]
    assert bleu(hypotheses, [references]) == near(56.7384)
    sentences = [
        sentence_bleu(hypothesis, [reference], "zh")
        for hypothesis, reference in zip(hypotheses, references, strict=True)
    ]
    assert math.fsum(sentences) / 2 == near(73.1175)


def test_chrf_is_that_of_sacrebleu():
    """An independent figure: character n-grams up to 6, beta 2."""
    hypotheses, references = ["今天天气不错"], [["今天天气很好"]]
    expected = sacrebleu.CHRF(char_order=6, word_order=0, beta=2)
    assert figures(hypotheses, references)["chrF"] == pytest.approx(
        expected.corpus_score(hypotheses, references).score
    )
