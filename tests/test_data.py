"""Sentence pairs on their way from a file or TFDS to batches of token ids."""

import contextlib
import gzip
import io
import itertools
import os
import random
import subprocess
import sys
import unicodedata
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from nmt.config import Config, ConfigError, DataConfig, ModelConfig, override
from nmt.data.batches import batches_from, make_batch, plan_epoch
from nmt.data.cleaning import clean_pairs, is_swapped
from nmt.data.corpora import check_corpus, format_dropped, load_corpus, read_lines, read_tsv
from nmt.data.prepared import Encoded, Prepared, encode, load_held_out, load_train, prepare
from nmt.data.splitting import SentencePair, overlap, split_pairs
from nmt.evaluation.scores import corpus_scores
from nmt.run_folder import RunFolder, replacing, write_text
from nmt.text.tokenizer import BOS, EOS, PAD

PREPARED_FILES = {
    "config.json",
    "manifest.json",
    "source.model",
    "target.model",
    "test.tsv",
    "train.npz",
    "validation.tsv",
}


def write(path, data):
    """Write text (as UTF-8) or bytes and return the path."""
    path.write_bytes(data if isinstance(data, bytes) else data.encode("utf-8"))
    return path


def numbered_pairs(count, start=0):
    """Pairs of which no two share a side, in any spelling."""
    return [SentencePair(f"Sentence {i}.", f"第{i}句。") for i in range(start, start + count)]


def together(parts):
    return list(itertools.chain.from_iterable(parts))


def as_tsv(pairs):
    return "".join(f"{source}\t{target}\n" for source, target in pairs)


def small_config(corpus, *assignments):
    """Settings that do not follow the presets, which are tuned now and then."""
    data = DataConfig(corpus=str(corpus), max_tokens=40)
    model = ModelConfig(source_vocab_size=8000, target_vocab_size=8000)
    return override(Config(data, model), list(assignments))


def files_of(run):
    """Return the content of the files of a run folder by name."""
    return {path.name: path.read_bytes() for path in run.path.iterdir()}


# Reading files


def test_data_01_a_nul_byte_moves_no_line(tmp_path):
    """DATA-01: three pairs, the NUL gone, three with 三."""
    path = write(tmp_path / "x.tsv", "one\t一。\ntw\0o\t二。\nthree\t三。\n")
    assert clean_pairs(read_tsv(path), "keep").pairs == [
        ("one", "一。"),
        ("two", "二。"),
        ("three", "三。"),
    ]


@pytest.mark.parametrize("compressed", [False, True])
def test_data_02_only_a_line_feed_ends_a_line(tmp_path, compressed):
    """DATA-02: not U+2028, U+0085, form feed, U+001C or a lone carriage return."""
    lines = ["Hello\u2028world", "foo\x85bar", "foo\x0cbaz\x1cq", "cr\ronly"]
    targets = ["甲。", "乙。", "丙。", "丁。"]
    data = as_tsv(zip(lines, targets, strict=True)).encode()
    path = write(
        tmp_path / ("x.tsv.gz" if compressed else "x.tsv"),
        gzip.compress(data) if compressed else data,
    )
    assert read_tsv(path) == list(zip(lines, targets, strict=True))
    assert clean_pairs(read_tsv(path), "keep").pairs == list(
        zip(["Hello world", "foo bar", "foo baz q", "cr only"], targets, strict=True)
    )


def test_data_04_an_empty_side_drops_the_pair(tmp_path):
    """DATA-04: (C., 丁。) or (A., 乙。) would be the wrong answer."""
    path = write(tmp_path / "x.tsv", "A.\t甲。\n\t乙。\nC.\t\nD.\t丁。\n")
    pairs, dropped = clean_pairs(read_tsv(path), "keep")
    assert pairs == [("A.", "甲。"), ("D.", "丁。")]
    assert dropped == {"empty side": 2}
    assert format_dropped(dropped) == "2 pairs dropped: 2 empty side"


@pytest.mark.parametrize("blank", ["", "  ", "\u3000", "\u00a0 \u200b", "\ufeff"], ids=ascii)
def test_data_04_white_space_is_an_empty_side(tmp_path, blank):
    """DATA-04: spaces, a tab or U+3000 are no sentence."""
    path = write(tmp_path / "x.tsv", f"A.\t{blank}\n{blank}\t乙。\n \n\t\nD.\t丁。\n")
    assert clean_pairs(read_tsv(path), "keep") == ([("D.", "丁。")], {"empty side": 4})


def test_data_05_compression_is_not_content(tmp_path, pairs_file):
    """DATA-05: the prepared files are byte-identical."""
    compressed = write(tmp_path / "pairs.tsv.gz", gzip.compress(pairs_file.read_bytes()))
    assert read_tsv(compressed) == read_tsv(pairs_file)
    assert len(read_tsv(compressed)) == 20
    plain, unpacked = RunFolder(tmp_path / "plain"), RunFolder(tmp_path / "unpacked")
    prepare(plain, small_config(pairs_file), {})
    prepare(unpacked, small_config(compressed), {})
    expected, found = files_of(plain), files_of(unpacked)
    assert set(expected) == PREPARED_FILES
    del expected["config.json"], found["config.json"]  # It names the corpus.
    assert found == expected


@pytest.mark.parametrize("damage", ["cut", "flipped", "not gzip", "empty"])
def test_data_05_a_damaged_archive_is_refused_by_name(tmp_path, damage):
    """DATA-05: an archive cut in half must not pass for fewer pairs."""
    data = gzip.compress(as_tsv(numbered_pairs(1000)).encode())
    middle = len(data) // 2
    damaged = {
        "cut": data[:middle],
        "flipped": data[:middle] + bytes([data[middle] ^ 0xFF]) + data[middle + 1 :],
        "not gzip": b"Hi.\t\xe5\x97\xa8\n",
        "empty": b"",
    }[damage]
    path = write(tmp_path / "pairs.tsv.gz", damaged)
    with pytest.raises(ConfigError, match=r"pairs\.tsv\.gz") as caught:
        load_corpus(DataConfig(corpus=str(path)))
    assert "\n" not in str(caught.value)


def test_data_06_the_attribution_column_is_no_text(tmp_path):
    """DATA-06: three columns, then two."""
    path = write(
        tmp_path / "cmn.txt",
        "Hi.\t嗨。\tCC-BY 2.0 (France) Attribution: tatoeba.org #000001 (user_a) & #000002 "
        "(user_b)\nStop!\t停！\n",
    )
    assert read_tsv(path) == [("Hi.", "嗨。"), ("Stop!", "停！")]


def test_data_08_the_locale_does_not_matter(tmp_path, pairs_file):
    """DATA-08: the C locale gives the very same files."""
    script = (
        "import sys\n"
        "from nmt.config import read_json\n"
        "from nmt.data.prepared import prepare\n"
        "from nmt.run_folder import RunFolder\n"
        "prepare(RunFolder(sys.argv[2]), read_json(sys.argv[1]), {})\n"
    )
    here, there = RunFolder(tmp_path / "here"), RunFolder(tmp_path / "there")
    prepare(here, small_config(pairs_file), {})
    subprocess.run(
        [sys.executable, "-c", script, here.config_file, there.path],
        env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        check=True,
        timeout=60,
    )
    assert files_of(there) == files_of(here)


def test_data_08_another_encoding_is_refused_by_file_and_line(tmp_path):
    """DATA-08: nothing is guessed, replaced or ignored."""
    path = write(tmp_path / "gbk.tsv", "Nice.\t很好。\n".encode() + "今天天气很好。".encode("gbk"))
    with pytest.raises(ConfigError, match=r"gbk\.tsv:2: not UTF-8: .*byte 0xbd in position 0"):
        load_corpus(DataConfig(corpus=str(path)))


def test_data_09_a_byte_order_mark_is_no_text(tmp_path, pairs_file):
    """DATA-09: neither in references, nor in input, nor in the vocabulary."""
    plain = "我喜欢猫。\n今天很冷。\n"
    path = write(tmp_path / "references.txt", b"\xef\xbb\xbf" + plain.encode())
    assert read_lines(path) == plain.split()
    bleu, *_ = corpus_scores(plain.split(), [read_lines(path)], "zh")
    assert bleu.value == 100.0
    # The signature of the mistake: it has to show if the mark is left in.
    bleu, *_ = corpus_scores(plain.split(), [["\ufeff我喜欢猫。", "今天很冷。"]], "zh")
    assert bleu.value == pytest.approx(90.4837, abs=5e-5)

    corpus = write(tmp_path / "bom.tsv", b"\xef\xbb\xbf" + pairs_file.read_bytes())
    assert read_tsv(corpus) == read_tsv(pairs_file)
    run = RunFolder(tmp_path / "run")
    prepare(run, small_config(corpus), {})
    for tokenizer in run.tokenizers():
        assert "\ufeff" not in "".join(tokenizer.pieces(range(tokenizer.vocab_size)))


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\n\nb", ["a", "", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\r\r\n", ["a\r"]),
        (b"\xef\xbb\xbf", []),
    ],
)
def test_read_lines(tmp_path, data, lines):
    assert read_lines(write(tmp_path / "x.txt", data)) == lines


def test_a_line_without_a_tab_is_named(tmp_path):
    path = write(tmp_path / "x.tsv", "Hi.\t嗨。\n\nStop! 停！\n")
    with pytest.raises(ConfigError, match=r"x\.tsv:3: .*source<TAB>target.*'Stop! 停！'"):
        read_tsv(path)


@pytest.mark.parametrize("name", ["nowhere.tsv", "tatoebba", "tfds:", "."])
def test_a_corpus_that_is_not_there(name):
    for action in (check_corpus, lambda name: load_corpus(DataConfig(corpus=name))):
        with pytest.raises(ConfigError, match="neither a file nor one of tatoeba, hsk, tfds:NAME"):
            action(name)


def test_a_corpus_with_nothing_left(tmp_path):
    path = write(tmp_path / "x.tsv", "Hi.\t嗨。\n\t停！\n")
    with pytest.raises(ConfigError, match=r"too little .*1 pair dropped: 1 empty side") as caught:
        load_corpus(DataConfig(corpus=str(path)))
    assert str(path) in str(caught.value)


# Cleaning


def test_damaged_and_repeated_pairs_are_dropped_and_counted():
    pairs, dropped = clean_pairs(
        [
            SentencePair("A.", "甲。"),
            SentencePair("A\ufffd.", "甲。"),
            SentencePair("A.", "\ud842。"),
            SentencePair(" A. ", "甲。\u200b"),
            SentencePair("A.", "乙。"),
        ],
        "keep",
    )
    assert pairs == [("A.", "甲。"), ("A.", "乙。")]
    assert dropped == {"damaged characters": 2, "repeated pair": 1}


def test_the_script_is_that_of_the_target_only():
    pairs = [SentencePair("漢 is Chinese.", "漢語"), SentencePair("Soft.", "软体")]
    assert clean_pairs(pairs, "simplified").pairs == [("漢 is Chinese.", "汉语"), ("Soft.", "软体")]
    assert clean_pairs(pairs, "keep").pairs == pairs


def test_text_from_chinese_keeps_its_script(tmp_path):
    """The policy is for the target side; here Chinese is the source."""
    rows = [(f"漢語第{i}句", f"Sentence {i}.") for i in range(60)]
    path = write(tmp_path / "x.tsv", as_tsv(rows))
    config = DataConfig(corpus=str(path), source_language="zh", target_language="en")
    assert sorted(together(load_corpus(config).splits)) == sorted(rows)


@pytest.mark.parametrize(
    ("source", "target", "language", "answer"),
    [
        ("I like cats.", "我喜欢猫。", "zh", False),
        ("我喜欢猫。", "I like cats.", "zh", True),
        ("我喜欢猫。", "I like cats.", "zh-TW", True),
        ("我喜欢猫。", "I like cats.", "en", False),
        ("I like cats.", "我喜欢猫。", "en", True),
        ("I like cats.", "Ich mag Katzen.", "de", False),
        ("123", "...", "zh", False),
    ],
)
def test_the_script_tells_the_direction(source, target, language, answer):
    # One line of Chinese in the English and the other way round must not decide.
    pairs = [SentencePair(source, target)] * 9 + [SentencePair(target, source)]
    assert is_swapped(pairs, language) is answer


def test_a_swapped_file_is_turned_round(tmp_path, caplog):
    pairs = numbered_pairs(60)
    path = write(tmp_path / "x.tsv", as_tsv((target, source) for source, target in pairs))
    splits = load_corpus(DataConfig(corpus=str(path))).splits
    assert sorted(together(splits)) == sorted(pairs)
    assert "the other way round" in caplog.text


def test_no_other_pair_of_languages_is_turned_round(tmp_path):
    """Japanese is often written in Han characters only; it is not Chinese on the wrong side."""
    rows = [(f"Tower number {i}.", f"東京塔第{i}号") for i in range(60)]
    path = write(tmp_path / "x.tsv", as_tsv(rows))
    splits = load_corpus(DataConfig(corpus=str(path), target_language="ja")).splits
    assert sorted(together(splits)) == sorted(rows)


# Splitting


def test_held_out_sentences_stand_nowhere_in_train():
    """Even where most pairs share a side with another, in another spelling."""
    chance = random.Random(1)
    pairs = []
    for _ in range(4000):
        source, target = f"Sentence {chance.randrange(3000)}.", f"第{chance.randrange(3000)}句。"
        spell = chance.choice([str, str.upper, lambda text: f" {text[:-1]}"])
        wide = chance.choice([str, lambda text: text.replace("。", "."), str.strip])
        pairs.append(SentencePair(spell(source), wide(target)))
    splits = split_pairs(pairs, validation=0.1, test=0.2)
    assert min(len(part) for part in splits) > 20
    assert overlap(splits.test, splits.train) == 0
    assert overlap(splits.validation, splits.train) == 0
    assert overlap(splits.validation, splits.test) == 0
    for side in (0, 1):
        keys = [
            {"".join(filter(str.isalnum, pair[side])).casefold() for pair in part}
            for part in splits
        ]
        assert not keys[0] & keys[1]
        assert not keys[0] & keys[2]
        assert not keys[1] & keys[2]
    assert Counter(together(splits)) == Counter(pairs)


@pytest.mark.parametrize(
    "variant",
    [
        SentencePair("SENTENCE 7", "别的。"),
        SentencePair("Ｓｅｎｔｅｎｃｅ　７！", "别的。"),
        SentencePair("Other.", "第7句"),
        SentencePair("Other.", " 第 ７ 句 ！"),
    ],
)
def test_another_spelling_is_the_same_sentence(variant):
    for shares in ((0.0, 1.0), (1.0, 0.0)):
        splits = split_pairs([*numbered_pairs(20), variant], *shares)
        assert splits.train == [numbered_pairs(20)[7], variant]


def test_the_other_script_is_the_same_sentence():
    pairs = [SentencePair("Chinese.", "漢語。"), SentencePair("Mandarin.", "汉语。")]
    assert split_pairs([*pairs, *numbered_pairs(3)], 0.0, 1.0).train == pairs
    assert overlap(pairs[:1], pairs[1:]) == 1


def test_later_rows_move_no_pair():
    pairs = numbered_pairs(2000)
    before = split_pairs(pairs, 0.05, 0.1)
    after = split_pairs([*numbered_pairs(1000, start=5000), *pairs], 0.05, 0.1)
    old = set(pairs)
    for name in before._fields:
        assert [pair for pair in getattr(after, name) if pair in old] == getattr(before, name)


def test_a_later_row_moves_only_the_pair_that_it_shares_a_side_with():
    pairs = numbered_pairs(2000)
    before = split_pairs(pairs, 0.05, 0.1)
    moved = before.test[3]
    row = SentencePair("Something else.", moved.target)
    after = split_pairs([*pairs, row], 0.05, 0.1)
    assert after.test == [pair for pair in before.test if pair != moved]
    assert after.validation == before.validation
    assert set(after.train) == {*before.train, moved, row}


def test_the_order_of_the_rows_does_not_matter():
    pairs = numbered_pairs(1000)
    shuffled = random.Random(2).sample(pairs, len(pairs))
    for one, other in zip(
        split_pairs(pairs, 0.05, 0.1), split_pairs(shuffled, 0.05, 0.1), strict=True
    ):
        assert sorted(one) == sorted(other)
    # Within a split it is that of the rows.
    train = split_pairs(shuffled, 0.05, 0.1).train
    assert train == sorted(train, key=shuffled.index)


def test_shares_are_about_what_was_asked():
    splits = split_pairs(numbered_pairs(20_000), validation=0.01, test=0.02)
    assert 150 < len(splits.validation) < 250
    assert 330 < len(splits.test) < 470
    assert split_pairs(numbered_pairs(100), 0.0, 0.0) == (numbered_pairs(100), [], [])


def test_tiny_corpora_have_something_in_every_split():
    """From 3 pairs on, whatever the hashes of the sentences are."""
    poor = []
    for size, start in itertools.product([3, 4, 5, 10, 20, 50, 100, 200], range(0, 20_000, 500)):
        splits = split_pairs(numbered_pairs(size, start), validation=0.01, test=0.02)
        if not all(splits):
            poor.append((size, start, *map(len, splits)))
        assert sorted(together(splits)) == sorted(numbered_pairs(size, start))
    assert not poor


# TFDS


@pytest.fixture(scope="module")
def packaged(tmp_path_factory):
    """The two packaged corpora, where TFDS put them, and what was printed meanwhile."""
    data_dir = str(tmp_path_factory.mktemp("tfds"))
    with contextlib.redirect_stdout(io.StringIO()) as output:
        corpora = {name: load_corpus(DataConfig(corpus=name), data_dir) for name in SIZES}
    return corpora, data_dir, output.getvalue()


# Rows, validation pairs, test pairs.
SIZES = {"tatoeba": (56_578, 500, 1000), "hsk": (4_354, 400, 400)}


@pytest.mark.parametrize("name", SIZES)
def test_packaged_corpora_have_exact_splits_without_leaks(packaged, name):
    splits, dropped = packaged[0][name]
    rows, validation, test = SIZES[name]
    assert (len(splits.validation), len(splits.test)) == (validation, test)
    assert sum(map(len, splits)) + dropped.total() == rows
    assert set(dropped) == {"repeated pair"}
    assert overlap(splits.test, splits.train) == 0
    assert overlap(splits.validation, splits.train) == 0
    assert overlap(splits.validation, splits.test) == 0


@pytest.mark.parametrize("name", SIZES)
def test_packaged_corpora_are_clean_text(packaged, name):
    pairs = together(packaged[0][name].splits)
    assert not is_swapped(pairs, "zh")
    assert len(set(pairs)) == len(pairs)
    for source, target in pairs:
        for text in (source, target):
            assert text
            assert text == " ".join(text.split())
            assert not [c for c in text if unicodedata.category(c) == "Cc"]


def test_tatoeba_was_converted_to_simplified(packaged):
    """39 % of it is Traditional; 們 and 這 are so frequent that none can be left."""
    text = "".join(pair.target for pair in packaged[0]["tatoeba"].splits.train)
    assert text.count("们") > 1000
    assert not set("們這說嗎個") & set(text)


def test_nothing_is_printed_to_standard_output(packaged):
    assert packaged[2] == ""


@pytest.mark.parametrize(("name", "builder"), [("tatoeba", "tatoeba_en_zh"), ("hsk", "hsk_en_zh")])
def test_packaged_corpora_are_tfds_sets(packaged, name, builder):
    import tensorflow_datasets as tfds

    import nmt.data.builders  # noqa: F401

    splits, info = tfds.load(builder, data_dir=packaged[1], with_info=True)
    rows, validation, test = SIZES[name]
    assert info.splits.total_num_examples == rows
    assert info.splits["validation"].num_examples == validation
    assert info.splits["test"].num_examples == test
    example = next(iter(tfds.as_numpy(splits["test"])))
    assert set(example) == {"en", "zh"}
    assert info.features.languages == ["en", "zh"] or set(info.features.languages) == {"en", "zh"}


def test_another_version_of_a_package_is_refused(tmp_path, monkeypatch):
    """The exact splits are those of one file."""
    from nmt.data import builders

    def distribution(package):
        located = write(tmp_path / "other.json", "[]")
        fake = type("Distribution", (), {"version": "2.0", "locate_file": lambda *_: located})
        return fake()

    monkeypatch.setattr(builders.importlib.metadata, "distribution", distribution)
    with pytest.raises(ConfigError, match=r"hsk-sentences-audio 2\.0 .*requirements\.txt"):
        load_corpus(DataConfig(corpus="hsk"), str(tmp_path / "tfds"))


def test_two_processes_may_build_a_set_at_the_same_time(tmp_path, monkeypatch):
    """The slower one cannot put its copy in place, and takes the other's."""
    import tensorflow_datasets as tfds

    original = tfds.core.DatasetBuilder.download_and_prepare

    def lose_the_race(builder, **options):
        original(tfds.builder("hsk_en_zh", data_dir=tmp_path), **options)
        raise OSError("Cannot rename: destination already exists")

    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", lose_the_race)
    splits = load_corpus(DataConfig(corpus="hsk"), str(tmp_path)).splits
    assert sum(map(len, splits)) > 4000


def store_tfds(data_dir, name, splits, languages=("en", "zh"), config=None):
    """Write a TFDS set to disk as if it had been downloaded and prepared there."""
    import tensorflow as tf
    import tensorflow_datasets as tfds

    data = {
        split: tf.data.Dataset.from_tensor_slices(
            {language: [pair[i] for pair in pairs] for i, language in enumerate(languages)}
        )
        for split, pairs in splits.items()
    }
    tfds.disable_progress_bar()
    tfds.dataset_builders.store_as_tfds_dataset(
        name=name,
        version="1.0.0",
        data_dir=data_dir,
        config=config and tfds.core.BuilderConfig(name=config),
        split_datasets=data,
        features=tfds.features.Translation(languages=languages),
        description="Made by a test.",
        disable_shuffling=True,
    )


def test_news_commentary_is_turned_round(tmp_path, caplog):
    """TFDS labels English "zh" here; `wmt19_translate` stands for one corpus of `wmt_translate`."""
    pairs = numbered_pairs(100)
    store_tfds(tmp_path, "wmt_translate", {"train": pairs}, languages=("zh", "en"), config="zh-en")
    config = DataConfig(corpus="tfds:wmt19_translate/zh-en")
    splits = load_corpus(config, str(tmp_path)).splits
    assert sorted(together(splits)) == sorted(pairs)
    assert "the other way round" in caplog.text


def test_a_set_that_is_labelled_right_stays_as_it_is(tmp_path, caplog):
    pairs = numbered_pairs(100)
    store_tfds(tmp_path, "right_way", {"train": pairs})
    splits = load_corpus(DataConfig(corpus="tfds:right_way"), str(tmp_path)).splits
    assert sorted(together(splits)) == sorted(pairs)
    assert "round" not in caplog.text


def test_news_commentary_asks_for_one_subset_only(tmp_path, monkeypatch):
    """DATA-13: all of wmt19 would need a host that is gone."""
    import tensorflow_datasets as tfds

    asked = []

    def download_and_prepare(self, **_):
        asked.append((self.name, self.builder_config.subsets))
        raise TimeoutError

    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", download_and_prepare)
    with pytest.raises(ConfigError):
        load_corpus(DataConfig(corpus="tfds:wmt19_translate/zh-en"), str(tmp_path))
    assert asked == [("wmt_translate", {"train": ["newscommentary_v14"]})]


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError("ftp://host timed out\nand a second line"),
        ConnectionRefusedError("ftp://host refused"),
        OSError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_data_13_an_unreachable_host_is_told_in_one_line(tmp_path, monkeypatch, error):
    """DATA-13: what failed, where files fetched by hand go, and that local files do."""
    import tensorflow_datasets as tfds

    def download_and_prepare(self, **_):
        raise error

    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", download_and_prepare)
    with pytest.raises(ConfigError) as caught:
        load_corpus(DataConfig(corpus="tfds:wmt19_translate/zh-en"), str(tmp_path))
    message = str(caught.value)
    assert "\n" not in message
    cause = str(error).splitlines()[0] if str(error) else "OSError"
    for part in ("wmt19_translate/zh-en", cause, "downloads/manual", "--data", "TSV"):
        assert part in message


@pytest.mark.parametrize(
    ("name", "part"),
    [("tfds:mnist", "it has image, label"), ("tfds:no_such_set", "no_such_set not found")],
)
def test_a_set_that_is_none_of_translations(tmp_path, name, part):
    with pytest.raises(ConfigError, match=part):
        load_corpus(DataConfig(corpus=name), str(tmp_path))


def test_data_11_test_pairs_in_the_training_data_are_reported(tmp_path, caplog):
    """DATA-11: 3 of 5 after normalization, and one repeated pair; the corpus's splits stay."""
    train = numbered_pairs(10)
    test = [
        train[0],
        train[1],
        SentencePair(" Sentence 2. ", "第2句．"),
        *numbered_pairs(2, start=100),
    ]
    splits = {
        "train": [*train, train[5]],
        "validation": numbered_pairs(3, start=200),
        "test": test,
    }
    store_tfds(tmp_path, "leaky", splits)
    corpus = load_corpus(DataConfig(corpus="tfds:leaky"), str(tmp_path))
    assert "3 of 5 test pairs share a side with a training pair" in caplog.text
    assert corpus.dropped == {"repeated pair": 1}
    assert [len(part) for part in corpus.splits] == [10, 3, 5]
    exact = [pair for pair in corpus.splits.test if pair in corpus.splits.train]
    assert exact == train[:2]


def test_data_11_splits_of_our_own_do_not_leak(tmp_path, caplog):
    """DATA-11: even where every pair is there twice, once in another spelling."""
    pairs = numbered_pairs(200)
    again = [SentencePair(f" {pair.source.upper()}", pair.target) for pair in pairs[:100]]
    path = write(tmp_path / "x.tsv", as_tsv([*pairs, *again, *pairs]))
    splits, dropped = load_corpus(DataConfig(corpus=str(path)))
    assert dropped == {"repeated pair": 200}
    assert overlap(splits.test + splits.validation, splits.train) == 0
    assert not set(pairs[:100]) & set(splits.test + splits.validation)
    assert "share a side" not in caplog.text


def test_a_set_without_all_three_splits_is_split_by_us(tmp_path):
    pairs = numbered_pairs(300)
    store_tfds(tmp_path, "two_splits", {"train": pairs[:200], "validation": pairs[200:]})
    splits = load_corpus(DataConfig(corpus="tfds:two_splits"), str(tmp_path)).splits
    expected = split_pairs(pairs, validation=0.01, test=0.02)
    assert splits == expected


# Preparing a run folder


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A prepared run of 120 pairs, each with a Chinese character of its own."""
    folder = tmp_path_factory.mktemp("prepared")
    rows = [(f"This is sign {i}.", f"这是{chr(0x5000 + 7 * i)}字。") for i in range(120)]
    # Both long ones have the same English, so they belong to train.
    long = "".join(chr(0x5001 + 7 * i) for i in range(100))
    rows += [("Too long.", long), ("Too long.", long[::-1]), ("Nothing.", "")]
    corpus = write(folder / "signs.tsv", as_tsv(rows))
    run = RunFolder(folder / "run")
    dropped = prepare(run, small_config(corpus, "data.max_tokens=30"), {"command": "test"})
    return run, dropped


def test_a_prepared_run_is_complete(prepared):
    run, dropped = prepared
    assert run.is_prepared
    assert {path.name for path in run.path.iterdir()} == PREPARED_FILES
    run.require(run.train_file, run.validation_file, run.test_file)
    manifest = run.manifest()
    assert manifest["command"] == "test"
    assert dropped == manifest["dropped"] == {"empty side": 1, "longer than 30 tokens": 2}
    assert manifest["pairs"] == {
        "train": len(load_train(run).source.lengths),
        "validation": len(load_held_out(run, "validation")),
        "test": len(load_held_out(run, "test")),
    }
    assert sum(manifest["pairs"].values()) == 120
    assert run.config() == small_config(run.path.parent / "signs.tsv", "data.max_tokens=30")


def test_ids_say_what_the_text_said(prepared):
    run, _ = prepared
    corpus = load_corpus(run.config().data)
    for side, tokenizer, encoded in zip((0, 1), run.tokenizers(), load_train(run), strict=True):
        sentences = encoded.split()
        assert all(ids[-1] == EOS and EOS not in ids[:-1] for ids in sentences)
        texts = [pair[side] for pair in corpus.splits.train if pair.source != "Too long."]
        assert [tokenizer.decode(ids) for ids in sentences] == texts
        assert encoded.ids.dtype == encoded.lengths.dtype == np.int32
        assert encoded.lengths.max() <= 30


def test_tokenizers_learn_from_training_text_only(prepared):
    run, _ = prepared
    _, tokenizer = run.tokenizers()
    known = set("".join(tokenizer.pieces(range(tokenizer.vocab_size))))
    held_out = load_held_out(run, "validation") + load_held_out(run, "test")
    assert held_out
    for pair in held_out:
        assert pair.target[2] not in known
    train = load_corpus(run.config().data).splits.train
    assert all(pair.target[2] in known for pair in train if pair.source != "Too long.")


def test_tok_04_the_model_has_the_real_size_of_the_vocabulary(prepared, tmp_path, caplog):
    """TOK-04: asked for 8,000, the report says what there is, and the model gets that."""
    run, _ = prepared
    model = run.model_config()
    sizes = run.manifest()["vocab_size"]
    assert (model.source_vocab_size, model.target_vocab_size) == tuple(sizes.values())
    assert run.config().model.target_vocab_size == 8000
    assert 300 < model.target_vocab_size < 8000

    prepare(RunFolder(tmp_path / "again"), run.config(), {})
    for side, size in sizes.items():
        assert f"supports {size:,} {side} subwords, not 8,000" in caplog.text


def test_tok_04_a_vocabulary_too_small_leaves_no_run(tmp_path, pairs_file):
    """TOK-04: 20 asked, the least is named."""
    run = RunFolder(tmp_path / "run")
    config = small_config(pairs_file, "model.target_vocab_size=20")
    with pytest.raises(ConfigError, match=r"at least 3\d\d .*received 20"):
        prepare(run, config, {})
    assert not run.path.exists()


def test_pairs_of_just_max_tokens_are_kept(tmp_path, pairs_file):
    runs = [RunFolder(tmp_path / str(number)) for number in range(3)]
    prepare(runs[0], small_config(pairs_file), {})
    longest = np.maximum(*(side.lengths for side in load_train(runs[0])))
    limit = longest.max()
    assert prepare(runs[1], small_config(pairs_file, f"data.max_tokens={limit}"), {}) == {}
    dropped = prepare(runs[2], small_config(pairs_file, f"data.max_tokens={limit - 1}"), {})
    assert dropped == {f"longer than {limit - 1} tokens": np.sum(longest == limit)}
    assert len(load_train(runs[2]).source.lengths) == np.sum(longest < limit)


def test_no_pair_short_enough(tmp_path, pairs_file):
    with pytest.raises(ConfigError, match=r"data\.max_tokens=2 "):
        prepare(RunFolder(tmp_path / "run"), small_config(pairs_file, "data.max_tokens=2"), {})


def test_preparing_is_reproducible(prepared, tmp_path):
    run, _ = prepared
    again = RunFolder(tmp_path / "again")
    prepare(again, run.config(), {"command": "test"})
    assert files_of(again) == files_of(run)


def interrupt_replace(monkeypatch, number):
    """Let the process "die" when file number `number` (from 0) is about to get its final name."""
    real, calls = os.replace, itertools.count()

    def replace(source, target):
        if next(calls) == number:
            raise KeyboardInterrupt
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)


@pytest.mark.parametrize("number", range(len(PREPARED_FILES)))
def test_an_interrupted_preparation_is_no_run(prepared, tmp_path, monkeypatch, number):
    """Whichever file it dies at: nothing half-written, no manifest, and a second try works."""
    complete, _ = prepared
    run = RunFolder(tmp_path / "run")
    with monkeypatch.context() as patches:
        interrupt_replace(patches, number)
        with pytest.raises(KeyboardInterrupt):
            prepare(run, complete.config(), {"command": "test"})
    assert not run.is_prepared
    found, expected = files_of(run), files_of(complete)
    assert len(found) == number
    assert found == {name: expected[name] for name in found}
    with pytest.raises(ConfigError, match=r"manifest\.json is missing"):
        run.require()

    prepare(run, complete.config(), {"command": "test"})
    assert files_of(run) == expected


def test_ids_half_written_have_no_name(prepared, tmp_path, monkeypatch):
    def savez(file, **_):
        Path(file).write_bytes(b"PK half")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", savez)
    run = RunFolder(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        prepare(run, prepared[0].config(), {})
    assert {path.name for path in run.path.iterdir()} <= PREPARED_FILES - {"train.npz"}
    assert not run.is_prepared


def test_preparing_again_over_a_run_is_all_or_nothing_too(tmp_path, pairs_file, monkeypatch):
    """Files of the new preparation must not stand beside the manifest of the old one."""
    run = RunFolder(tmp_path / "run")
    prepare(run, small_config(pairs_file), {})
    with monkeypatch.context() as patches:
        interrupt_replace(patches, 3)
        with pytest.raises(KeyboardInterrupt):
            prepare(run, small_config(pairs_file, "data.max_tokens=12"), {})
    assert not run.is_prepared


@pytest.mark.parametrize("side", ["source", "target"])
def test_another_vocabulary_is_refused(prepared, tmp_path, side):
    """Of the same size even: its ids would mean other words."""
    run = RunFolder(tmp_path)
    for name, data in files_of(prepared[0]).items():
        write(run.path / name, data)
    run.tokenizers()
    file = run.path / f"{side}.model"
    write(file, file.read_bytes().replace("▁is".encode(), "▁si".encode()).replace(b"\xe5", b"\xe6"))
    with pytest.raises(ConfigError, match=rf"{side}\.model: the vocabulary has changed"):
        run.tokenizers()
    file.unlink()
    with pytest.raises(ConfigError, match=rf"{side}\.model"):
        run.tokenizers()


@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "flipped", "not an archive"])
def test_damaged_ids_are_refused_by_name(prepared, tmp_path, damage):
    data = prepared[0].train_file.read_bytes()
    middle = len(data) // 2
    damaged = {
        "empty": b"",
        "cut": data[:middle],
        "flipped": data[:middle] + bytes([data[middle] ^ 0xFF]) + data[middle + 1 :],
        "not an archive": b"hello",
    }
    run = RunFolder(tmp_path)
    if damage != "missing":
        write(run.train_file, damaged[damage])
    with pytest.raises(ConfigError, match=r"train\.npz"):
        load_train(run)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff"])
def test_a_damaged_manifest_is_refused_by_name(tmp_path, content):
    run = RunFolder(tmp_path)
    write(run.manifest_file, content)
    with pytest.raises(ConfigError, match=r"manifest\.json"):
        run.manifest()


def test_what_is_missing_from_a_run_is_named(prepared, tmp_path):
    run = prepared[0]
    with pytest.raises(ConfigError, match=r"not trained yet; run `nmt train"):
        run.require(run.weights_file)
    with pytest.raises(ConfigError, match=r"metrics\.jsonl, model\.weights\.h5 missing"):
        run.require(run.metrics_file, run.weights_file)
    with pytest.raises(ConfigError, match="no such run folder"):
        RunFolder(tmp_path / "nowhere").require()


def fail_half_way(path, error):
    with replacing(path) as temporary:
        # Writers choose the format by the end of the name.
        assert temporary.suffixes[-len(path.suffixes) :] == path.suffixes
        temporary.write_text("half")
        raise error


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_replacing_leaves_everything_as_it_was_if_the_block_fails(tmp_path, error):
    path = write(tmp_path / "model.weights.h5", "old")
    for target in (path, tmp_path / "new.json"):
        with pytest.raises(error):
            fail_half_way(target, error)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_replacing_replaces(tmp_path):
    path = write(tmp_path / "x.json", "old")
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]
    # Readable by the others who share the folder, as any file that a program writes.
    assert path.stat().st_mode & 0o777 == 0o644


def test_text_is_written_as_it_is(tmp_path):
    write_text(tmp_path / "x.txt", "你好\n\u2028世界\n")
    assert (tmp_path / "x.txt").read_bytes() == "你好\n\u2028世界\n".encode()


# Batches


@pytest.fixture(scope="module")
def pairs_of_ids():
    """500 pairs of 2 to 40 tokens whose ids tell which pair they are; one of 200."""
    chance = np.random.default_rng(7)
    lengths = chance.integers(2, 41, size=(2, 500))
    lengths[:, 123] = 200

    def side(lengths):
        ids = [[10 + i] * (length - 1) + [EOS] for i, length in enumerate(lengths)]
        return Encoded(np.array(together(ids), np.int32), lengths.astype(np.int32))

    return Prepared(side(lengths[0]), side(lengths[1]))


@pytest.mark.parametrize("epoch", [0, 1, 17])
def test_every_pair_is_once_in_an_epoch(pairs_of_ids, epoch):
    plan = plan_epoch(pairs_of_ids, 300, seed=1, epoch=epoch)
    assert sorted(np.concatenate(plan)) == list(range(500))


@pytest.mark.parametrize("batch_tokens", [100, 300, 1000, 10**6])
def test_batches_hold_at_most_batch_tokens(pairs_of_ids, batch_tokens):
    plan = plan_epoch(pairs_of_ids, batch_tokens, seed=1, epoch=0)
    stream = batches_from(pairs_of_ids, batch_tokens, seed=1, step=0)
    padded = real = 0
    for indices, batch in zip(plan, stream, strict=False):
        size = batch.source_ids.size + batch.target_in_ids.size
        assert size <= batch_tokens or len(indices) == 1
        padded += size
        real += np.count_nonzero(batch.source_ids) + np.count_nonzero(batch.target_out_ids)
    assert real == len(pairs_of_ids.source.ids) + len(pairs_of_ids.target.ids)
    if batch_tokens == 300:
        # Unsorted, a third of the positions would be padding.
        assert real > 0.8 * padded


def test_a_pair_longer_than_a_batch_is_alone(pairs_of_ids):
    plan = plan_epoch(pairs_of_ids, 300, seed=1, epoch=0)
    assert [123] in [list(indices) for indices in plan]


def test_the_plan_is_a_function_of_seed_and_epoch(pairs_of_ids):
    def plan(seed, epoch):
        return [list(indices) for indices in plan_epoch(pairs_of_ids, 300, seed, epoch)]

    first = plan(1, 0)
    np.random.seed(99)  # The global generators must not matter.
    random.seed(99)
    assert plan(1, 0) == first
    assert plan(1, 1) != first
    assert plan(2, 0) != first
    assert plan(0, 1) != plan(1, 0)
    assert len({len(plan(1, epoch)) for epoch in range(10)}) == 1


def test_batches_are_not_in_the_order_of_length(pairs_of_ids):
    longest = [
        pairs_of_ids.source.lengths[indices].max()
        for indices in plan_epoch(pairs_of_ids, 300, seed=1, epoch=0)
    ]
    assert longest != sorted(longest)
    assert longest != sorted(longest, reverse=True)


def test_resuming_repeats_nothing_and_skips_nothing(pairs_of_ids):
    """From every step, the end of an epoch included, the stream is the uninterrupted one."""
    an_epoch = len(plan_epoch(pairs_of_ids, 1000, seed=3, epoch=0))
    length = 2 * an_epoch + 5
    uninterrupted = list(itertools.islice(batches_from(pairs_of_ids, 1000, 3, 0), length))
    for step in range(length - 3):
        resumed = itertools.islice(batches_from(pairs_of_ids, 1000, 3, step), 3)
        for found, expected in zip(resumed, uninterrupted[step:], strict=False):
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_array_equal(one, other)


def test_the_stream_has_every_pair_once_an_epoch_with_its_translation(pairs_of_ids):
    an_epoch = len(plan_epoch(pairs_of_ids, 300, seed=3, epoch=0))
    stream = batches_from(pairs_of_ids, 300, seed=3, step=0)
    for _ in range(2):
        seen = []
        for batch in itertools.islice(stream, an_epoch):
            np.testing.assert_array_equal(batch.source_ids[:, 0], batch.target_out_ids[:, 0])
            seen += list(batch.source_ids[:, 0] - 10)
        assert sorted(seen) == list(range(500))


def test_model_03_the_decoder_input_is_one_step_behind():
    """MODEL-03: [BOS,5,6,...] against [5,6,EOS,...]; EOS carries loss, PAD does not."""
    short, long = np.array([5, 6, EOS], np.int32), np.array([7, 8, 9, EOS], np.int32)
    batch = make_batch([np.array([4, EOS], np.int32), np.array([EOS], np.int32)], [short, long])
    np.testing.assert_array_equal(batch.source_ids, [[4, EOS], [EOS, PAD]])
    np.testing.assert_array_equal(batch.target_in_ids, [[BOS, 5, 6, EOS], [BOS, 7, 8, 9]])
    np.testing.assert_array_equal(batch.target_out_ids, [[5, 6, EOS, PAD], [7, 8, 9, EOS]])
    np.testing.assert_array_equal(batch.target_out_ids != PAD, [[1, 1, 1, 0], [1, 1, 1, 1]])
    assert {array.dtype for array in batch} == {np.dtype(np.int32)}


def test_model_03_the_loss_counts_eos_and_not_padding():
    """MODEL-03: weights 1,1,1,0, as the loss applies them."""
    import tensorflow as tf

    from nmt.training.losses import token_sums

    batch = make_batch([np.array([EOS])] * 2, [np.array([5, 6, EOS]), np.arange(4, 8)])
    labels = tf.constant(batch.target_out_ids[:1])
    logits = np.zeros([3, 1, 4, 10], np.float32)
    logits[1, 0, 3, 5] = 9.0  # sure of a wrong token where PAD is
    logits[2, 0, 2, 5] = 9.0  # sure of a wrong token where EOS is
    losses, _, counts = zip(
        *(token_sums(tf.constant(case), labels) for case in logits), strict=True
    )
    np.testing.assert_array_equal(counts, 3.0)
    np.testing.assert_allclose(losses[:2], 3 * np.log(10), rtol=1e-6)
    assert losses[2] > losses[0] + 5


def test_encoded_sentences_end_in_eos(prepared):
    tokenizer, _ = prepared[0].tokenizers()
    encoded = encode(tokenizer, ["This is sign 1.", "", "is"])
    sentences = encoded.split()
    assert len(sentences) == 3
    assert list(sentences[1]) == [EOS]
    assert tokenizer.decode(sentences[0]) == "This is sign 1."
    assert list(encoded.lengths) == [len(ids) for ids in sentences]
