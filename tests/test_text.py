"""Characters and subwords: nothing that carries meaning is lost on the way to ids and back."""

import random
import time

import pytest

from nmt.config import Config, ConfigError, DataConfig
from nmt.data.prepared import prepare
from nmt.evaluation.scores import corpus_scores
from nmt.run_folder import RunFolder
from nmt.text.normalize import clean, matching_key
from nmt.text.script import convert, is_chinese
from nmt.text.segment import segments, split_sentences
from nmt.text.tokenizer import BOS, EOS, PAD, UNK, load_tokenizer, train_tokenizer

# The lines of case TOK-04.
LINES = [
    "我喜欢猫。",
    "今天天气很好，我们一起去公园吧。",
    "你好，世界！",
    "价格是3.5美元。",
    "他在2024年买了一部iPhone手机。",
    "这只小猫非常可爱。",
    "请问图书馆在哪里？",
    "我不知道你在说什么。",
    "学习机器翻译很有意思。",
    "我们明天再见。",
    "I like cats.",
    "The weather is nice today, let us go to the park.",
    "Hello, world!",
    "The price is 3.5 dollars.",
    "He bought an iPhone in 2024.",
    "This kitten is very cute.",
    "Where is the library?",
    "I do not know what you are talking about.",
    "Learning machine translation is fun.",
    "See you tomorrow.",
]

FAMILY = "👨\u200d👩\u200d👧"


@pytest.fixture(scope="module", params=[False, True], ids=["unspaced", "spaced"])
def tokenizer(request):
    """A tokenizer of each kind, as for Chinese and for English."""
    return train_tokenizer(LINES * 20, 8000, spaced=request.param)


def round_trip(tokenizer, text):
    return tokenizer.decode(tokenizer.encode([text])[0])


@pytest.mark.parametrize(
    "text",
    [
        "你好，世界！我爱你。",
        "他说：“你好”。——《书》、【注】；１２３４％…",
        "１００％ ＡＢＣ ｶﾀｶﾅ ﬁ ² ™",
    ],
)
def test_tok_01_full_width_punctuation_comes_back(tokenizer, text):
    """TOK-01: SentencePiece's default, NFKC, would turn ， into ,."""
    assert clean(text) == text
    assert round_trip(tokenizer, text) == text


def test_tok_01_a_perfect_system_scores_100(tokenizer):
    """TOK-01: with NFKC the ceiling would be 35.4948."""
    reference = "你好，世界！我爱你。"
    bleu, *_ = corpus_scores([round_trip(tokenizer, reference)], [[reference]], "zh")
    assert bleu.value == 100.0
    bleu, *_ = corpus_scores(["你好,世界!我爱你。"], [[reference]], "zh")
    assert bleu.value == pytest.approx(35.4948, abs=5e-5)


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("a  b   c", "a b c"),
        (" lead", "lead"),
        ("trail ", "trail"),
        ("   ", ""),
        ("tab\tx", "tab x"),
        ("nbsp\u00a0x", "nbsp x"),
        ("", ""),
    ],
)
def test_tok_03_spaces_collapse_and_nothing_else_is_lost(tokenizer, text, cleaned):
    """TOK-03: cleaning collapses spaces, on both sides; the tokenizer itself loses none."""
    assert clean(text) == cleaned
    assert round_trip(tokenizer, cleaned) == cleaned
    assert round_trip(tokenizer, text) == text
    assert tokenizer.encode([clean("   "), ""]) == [[], []]


def test_tok_03_the_one_documented_exception(tokenizer):
    """TOK-03: a literal U+2581 comes back as a space."""
    assert round_trip(tokenizer, "a\u2581b") == "a b"


def test_tok_04_a_vocabulary_too_large_is_as_large_as_the_text_supports(tokenizer):
    """TOK-04: 8000 asked of 20 lines; the size is the real one, and every id has a piece."""
    assert 256 < tokenizer.vocab_size < 8000
    assert len(tokenizer.pieces(range(tokenizer.vocab_size))) == tokenizer.vocab_size
    assert max(max(ids) for ids in tokenizer.encode(LINES)) < tokenizer.vocab_size


def test_tok_04_a_vocabulary_too_small_names_the_least():
    """TOK-04: 20 asked; the number named works, one less does not."""
    with pytest.raises(ConfigError, match="received 20") as caught:
        train_tokenizer(LINES * 20, 20, spaced=False)
    least = int(str(caught.value).split("at least ")[1].split()[0])
    assert train_tokenizer(LINES * 20, least, spaced=False).vocab_size == least
    with pytest.raises(ConfigError, match=f"at least {least} .* received {least - 1}"):
        train_tokenizer(LINES * 20, least - 1, spaced=False)


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        (f"{FAMILY} ok", f"{FAMILY} ok"),
        ("❤\ufe0f", "❤\ufe0f"),
        ("🇨🇳", "🇨🇳"),
        ("zero\u200bwidth", "zerowidth"),
        ("bom\ufefftext", "bomtext"),
    ],
    ids=ascii,
)
def test_tok_05_joiners_stay(tokenizer, text, cleaned):
    """TOK-05: emoji hold together; what has no width and no meaning goes, without a space."""
    assert round_trip(tokenizer, text) == text
    assert clean(text) == cleaned
    assert round_trip(tokenizer, cleaned) == cleaned


def test_tok_06_all_lines_too_long():
    """TOK-06: the message has the count, the limit and its unit, and what to do."""
    with pytest.raises(ConfigError) as caught:
        train_tokenizer(["长" * 6000] * 5, 8000, spaced=False)
    message = str(caught.value)
    for part in ("all 5 sentences", "limit of 16384 bytes", "Han character takes 3", "split"):
        assert part in message


def test_tok_06_lines_of_6000_bytes_are_learned_from():
    """TOK-06: the case's own lines, which SentencePiece's default limit of 4,192 would skip."""
    tokenizer = train_tokenizer(["长" * 2000] * 5, 8000, spaced=False)
    assert any("长长" in piece for piece in tokenizer.pieces(range(tokenizer.vocab_size)))


def test_tok_06_one_line_too_long_is_counted_and_training_goes_on(tmp_path):
    """TOK-06: the pair is reported as dropped; the rest is prepared."""
    corpus = tmp_path / "corpus.tsv"
    rows = [f"Number {i} is here.\t这里是{i}号。" for i in range(40)]
    # It shares its English with another pair, so that both belong to train.
    corpus.write_text("\n".join([*rows, f"Number 3 is here.\t{'长' * 6000}"]), encoding="utf-8")
    run = RunFolder(tmp_path / "run")
    dropped = prepare(run, Config(DataConfig(corpus=str(corpus), max_tokens=40)), {})
    assert dropped == {"longer than 40 tokens": 1}
    assert sum(run.manifest()["pairs"].values()) == 40


@pytest.mark.parametrize("text", ["中文文本", "我用iPhone 15拍照", "I love 北京", "他说：“你好”。"])
def test_tok_08_no_space_comes_or_goes(tokenizer, text):
    """TOK-08: none between Han characters; those of embedded English stay."""
    assert round_trip(tokenizer, text) == text


def test_tok_09_an_unseen_character_is_spelled_in_bytes(tokenizer):
    """TOK-09: U+20BB7 is F0 A0 AE B7, and the rest of the sentence is intact."""
    ids = tokenizer.encode(["我𠮷"])[0]
    assert tokenizer.pieces(ids)[-4:] == ["<0xF0>", "<0xA0>", "<0xAE>", "<0xB7>"]
    assert UNK not in ids
    for text in ("𠮷野家", "𠀀", "\ufffd", "\x07"):
        assert round_trip(tokenizer, text) == text
    assert clean("bell\x07") == "bell"


def test_tok_09_half_a_surrogate_pair_is_refused_clearly():
    r"""TOK-09: what JSON's "\ud83d" becomes is no text."""
    with pytest.raises(ValueError, match="lone surrogate"):
        clean("smile \ud83d")


def test_no_text_can_become_a_special_token(tokenizer):
    for text in ("<s>", "</s>", "<pad>", "<unk>", "Hello</s>world"):
        ids = tokenizer.encode([text])[0]
        assert not {PAD, BOS, EOS, UNK} & set(ids)
        assert tokenizer.decode(ids) == text


def test_special_tokens_have_no_text_but_a_name(tokenizer):
    ids = tokenizer.encode(["你好"])[0]
    assert tokenizer.decode([BOS, *ids, EOS, PAD, PAD]) == "你好"
    assert (PAD, BOS, EOS, UNK) == (0, 1, 2, 3)
    assert tokenizer.pieces([BOS, EOS]) == ["<s>", "</s>"]


def test_bytes_that_are_no_character_become_the_replacement_character(tokenizer):
    """A model may stop in the middle of a character; decoding has to survive it."""
    four = tokenizer.encode(["我𠮷"])[0][-4:]
    assert "\ufffd" in tokenizer.decode(four[:3])


def test_spaced_words_are_the_same_subword_at_the_start_and_within():
    tokenizer = train_tokenizer(["cats like dogs", "dogs like cats"] * 50, 400, spaced=True)
    start, within = tokenizer.encode(["cats", "dogs cats"])
    assert start == within[-len(start) :]


def test_training_is_reproducible():
    first, second = (train_tokenizer(LINES * 20, 400, spaced=False) for _ in range(2))
    assert first.model_proto == second.model_proto


def test_a_saved_tokenizer_is_the_same(tokenizer, tmp_path):
    path = tmp_path / "x.model"
    path.write_bytes(tokenizer.model_proto)
    assert load_tokenizer(path).encode(LINES) == tokenizer.encode(LINES)


@pytest.mark.parametrize("content", [None, b"", b"not a model", b"\x00" * 100])
def test_a_file_that_is_no_tokenizer_is_refused_by_name(tmp_path, content):
    path = tmp_path / "broken.model"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"broken\.model"):
        load_tokenizer(path)


@pytest.mark.parametrize("sentences", [[], ["", ""]])
def test_no_text_no_tokenizer(sentences):
    with pytest.raises(ConfigError, match=f"all {len(sentences)} sentences are empty"):
        train_tokenizer(sentences, 8000, spaced=True)


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("\ufeff你好", "你好"),
        ("a\u3000b", "a b"),
        ("a\u2028b\u2029c\x85d\x0ce\x1cf\rg\nh", "a b c d e f g h"),
        ("tw\x00o", "two"),
        ("\u200e\u202bright\u202c \u2066to\u2069\u200f left\u00ad", "right to left"),
        (" \u200b ", ""),
        ("a \u200b b", "a b"),
        ("Ｆｕｌｌ，width！ é e\u0301 ﬁ 繁體", "Ｆｕｌｌ，width！ é e\u0301 ﬁ 繁體"),
    ],
    ids=ascii,
)
def test_clean(text, cleaned):
    assert clean(text) == cleaned
    assert clean(cleaned) == cleaned


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Hello, world!", "hello world"),
        ("你好，世界！", "你好,世界!"),
        ("ＡＢＣ　１２３", "abc 123"),
        (" a  b ", "a b"),
        ("don't", "don’t"),
    ],
)
def test_sentences_that_count_as_the_same(one, other):
    assert matching_key(one) == matching_key(other)


@pytest.mark.parametrize(
    ("one", "other"), [("Cats.", "Dogs."), ("!", "?"), ("3.5", "3.6"), ("我", "你"), ("…", "")]
)
def test_sentences_that_do_not(one, other):
    assert matching_key(one) != matching_key(other)


def test_script_is_converted_as_asked():
    assert convert("漢語軟體", "simplified") == "汉语软体"
    assert convert("汉语", "traditional") == "漢語"
    assert convert("漢語汉语", "keep") == "漢語汉语"
    with pytest.raises(ConfigError, match="keep, simplified or traditional"):
        convert("漢語", "classical")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("我喜欢猫。", True),
        ("𠮷野家", True),
        ("我用iPhone", False),
        ("I love 北京", False),
        ("我爱你 iOS", True),
        ("12345，。", False),
        ("", False),
    ],
)
def test_is_chinese(text, answer):
    assert is_chinese(text) is answer


# Long lines in pieces ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sentences",
    [
        ["I like cats. ", "Do you? ", "Yes! ", "Really?! ", "Well... ", "Good."],
        ["Mr. Smith met Dr. Li and Mrs. Jones at St. Paul's. ", "They talked."],
        ["J. R. R. Tolkien wrote it. ", "The U.S. Army and the U.N. read it."],
        ["Bring fruit, e.g. apples, i.e. food, etc. and see Fig. 3 on pp. 4. ", "Thanks."],
        ["It costs 3.5 dollars at shop.example.com. ", "Version 2.21.0 is out."],
        ['He said "Go." ', "She said “Stop!” ", "(They did.) ", "'Fine.' ", "End"],
        ["我喜欢猫。", "你呢？", "真的！！", "好的……", "再见"],
        ["他说：“你好。”", "她说：「再见！」", "（他走了。）", "“等等……”", "完"],
        ["真的吗？！", "走吧！……", "行。  ", "完"],
        ["I like 北京。", "我用iPhone 3.5。 ", "OK. ", "好。", "Bye."],
        ["No end"],
        ["没有句号"],
        ["   "],
        ["..."],
        ["One line\n", "another"],
        [],
    ],
    ids=ascii,
)
def test_sentences_end_where_a_reader_ends_them(sentences):
    """Abbreviations, initials and decimals end none; closing quotes go with what they close."""
    assert split_sentences("".join(sentences)) == sentences


@pytest.mark.parametrize(
    ("text", "limit", "pieces"),
    [
        # Sentences always stand alone, though they might fit together.
        ("I like cats. You too.", 30, ["I like cats. ", "You too."]),
        ("Cats, dogs, mice, and so on. No.", 30, ["Cats, dogs, mice, and so on. ", "No."]),
        # Clauses together as far as they fit.
        ("Cats, dogs, mice, and so on.", 14, ["Cats, dogs, ", "mice, ", "and so on."]),
        ("我喜欢猫，你喜欢狗，他也是。", 10, ["我喜欢猫，你喜欢狗，", "他也是。"]),
        ("the cat – or so – is here", 12, ["the cat – ", "or so – ", "is here"]),
        # Then words, and characters if there is no other way.
        ("one two three four", 9, ["one two ", "three ", "four"]),
        ("x" * 10, 4, ["xx", "xxx", "xx", "xxx"]),
        ("我们今天一起去", 4, ["我们今", "天一起去"]),
        ("a long one, abcdefghij", 6, ["a ", "long ", "one, ", "abcde", "fghij"]),
        ("", 5, []),
        ("xy", 0, ["x", "y"]),  # a character cannot be cut
    ],
    ids=ascii,
)
def test_a_line_is_cut_where_it_hurts_least(text, limit, pieces):
    assert segments(text, lambda piece: len(piece) <= limit) == pieces


def test_pieces_together_are_the_text_and_each_fits():
    draw = random.Random(0)
    letters = [
        *"ab AMr.e!?\"'”’)]。！？；，、…—–-,;: \u3000\t",
        "Dr. ",
        "…… ",
        " -- ",
        "猫狗",
        "👧",
    ]
    for _ in range(3000):
        text = "".join(draw.choices(letters, k=draw.randrange(40)))
        assert "".join(split_sentences(text)) == text
        assert all(split_sentences(text))
        limit = draw.randrange(1, 12)
        pieces = segments(text, lambda piece, limit=limit: len(piece) <= limit)
        assert "".join(pieces) == text
        assert all(len(piece) <= limit for piece in pieces)
        assert all(pieces)


@pytest.mark.parametrize(
    ("repeated", "before", "behind"),
    [
        ("x", "", ""),
        ("word ", "", ""),
        (" ", "", "x"),
        (".", "", "x"),
        (".'", "", "x"),
        ("…", "", "x"),
        ("-", " ", "x"),
        ("\n", "", ""),
        ("Mr. ", "", ""),
        ("Cats, dogs. ", "", ""),
    ],
    ids=ascii,
)
def test_a_line_of_a_megabyte_is_cut_at_once(repeated, before, behind):
    """Patterns that go back over what they have read took hours for some of these."""
    for size in (20_000, 1_000_000):
        text = before + repeated * (size // len(repeated.encode())) + behind
        begin = time.process_time()
        pieces = segments(text, lambda piece: len(piece) <= 60)
        assert time.process_time() - begin < 5
        assert "".join(pieces) == text
        assert max(map(len, pieces)) <= 60


def test_a_space_that_no_subword_has_comes_back():
    """Chinese text has next to none, so its vocabulary may lack them and spell them in bytes."""
    tokenizer = train_tokenizer(["今天好", "明天更好", "今天和明天"] * 20, 300, spaced=False)
    for text in ("今天 好", "今天 Tom 好"):
        assert tokenizer.decode(tokenizer.encode([text])[0]) == text
        assert tokenizer.encode([text, text])[1] == tokenizer.encode([text])[0]
