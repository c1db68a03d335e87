"""What is exported translates as its run does: proved on a tiny run, in processes of its own."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pexpect
import pytest
import tensorflow as tf
import tensorflow_text
from typer.testing import CliRunner

import nmt
from nmt.cli import exporting  # noqa: F401  its command
from nmt.cli.app import app
from nmt.config import ConfigError, ModelConfig
from nmt.data.batches import make_batch
from nmt.decoding.ctranslate2 import CTranslate2Translator, load_ctranslate2
from nmt.decoding.documents import translate_documents
from nmt.decoding.engines import load_engine, locate_engine
from nmt.decoding.exported import read_description
from nmt.decoding.options import SearchOptions
from nmt.decoding.sentences import EXTRA_TARGET_TOKENS, MAX_SOURCE_TOKENS
from nmt.decoding.translation import Translation
from nmt.decoding.translator import Translator
from nmt.evaluation.scores import Score
from nmt.export import ctranslate2 as converter
from nmt.export import saved_model
from nmt.export.comparison import Row, format_rows, size_on_disk
from nmt.export.export import export
from nmt.export.formats import FORMATS, export_path
from nmt.export.parity import ODD_SENTENCES, compare
from nmt.export.placing import replacing_folder
from nmt.export.saved_model import clean_in_graph, decode_in_graph
from nmt.model.transformer import build_transformer
from nmt.run_folder import RunFolder
from nmt.text.normalize import clean
from nmt.text.tokenizer import BOS, EOS, PAD

# Of different lengths, so that there is padding, which is where masks that are lost show.
UP = "\x1b[A"  # what the arrow key sends

SENTENCES = [
    "I like cats.",
    "Where is the library? I do not know what you are talking about.",
    "Good morning.",
    "The price is 3.5 dollars.",
    *ODD_SENTENCES,
]
PACKAGE = Path(nmt.__file__).parent
FLOAT_FORMATS = [each for each in FORMATS if each != "ctranslate2-int8"]


@pytest.fixture(scope="module")
def run(tiny_run, tmp_path_factory):
    """A copy of the tiny run, in which exports may lie."""
    path = tmp_path_factory.mktemp("exported") / "run"
    shutil.copytree(tiny_run, path)
    return RunFolder(path)


@pytest.fixture(scope="module")
def translator(run):
    return nmt.load(run.path)


@pytest.fixture(scope="module")
def exports(run, translator):
    """The run in all formats, in their usual places."""
    expected = translator.translate(SENTENCES)
    return {
        format: export(run, translator, format, export_path(run, format), expected)
        for format in FORMATS
    }


@pytest.fixture(scope="module")
def engine(run, exports):
    """The float32 export, loaded by CTranslate2."""
    return load_ctranslate2(run.path / "export" / "ctranslate2")


@pytest.fixture(scope="module")
def saved(exports):
    return exports["saved-model"].engine.module


@pytest.fixture
def moved(run, exports, tmp_path):
    """Move a copy of an export to where nothing reminds of the run; returns its path."""

    def move(name):
        source, target = run.path / "export" / name, tmp_path / "moved" / name
        target.parent.mkdir()
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, target)
        return target

    return move


def run_python(code, cwd, **environment):
    """Run `code` in a process of its own; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd,
        env={**os.environ, "PYTHONUTF8": "1", **environment},
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def texts_of(translations):
    return [translation.text for translation in translations]


# --- every format ---


@pytest.mark.parametrize("format", FLOAT_FORMATS)
def test_an_export_translates_as_its_run_does(exports, format):
    parity = exports[format].parity
    assert parity.holds
    assert parity.identical == parity.sentences == len(SENTENCES)
    assert parity.difference < 1e-3


def test_a_quantized_export_is_smaller_and_nearly_the_same(run, exports):
    sizes = {
        format: size_on_disk([run.path / "export" / format / "model.bin"])
        for format in ("ctranslate2", "ctranslate2-int8")
    }
    assert sizes["ctranslate2-int8"] < sizes["ctranslate2"]
    assert exports["ctranslate2-int8"].parity.identical >= len(SENTENCES) // 2


def test_exports_say_what_they_are(run, exports):
    for format in ("saved-model", "ctranslate2", "ctranslate2-int8"):
        description = json.loads((run.path / "export" / format / "nmt.json").read_text())
        assert description["format"] == format
        assert description["target_language"] == "zh"
        assert description["segment_tokens"] == run.config().data.max_tokens
        assert description["sha256"]["source.model"] == run.manifest()["sha256"]["source.model"]


def test_nothing_is_left_beside_the_exports(run, exports):
    names = {path.name for path in (run.path / "export").iterdir()}
    assert names == {"saved-model", "model.keras", "ctranslate2", "ctranslate2-int8"}


def test_exports_live_on_their_own(run, translator, exports, tmp_path):
    """In another process, another working directory, moved: first the example of the README.

    That one knows nothing of us. Then a Keras file, by nothing but the classes of the model.
    """
    folder, file = tmp_path / "moved" / "one", tmp_path / "moved" / "two.keras"
    shutil.copytree(run.path / "export" / "saved-model", folder)
    shutil.copyfile(run.path / "export" / "model.keras", file)
    packages = (folder / "requirements.txt").read_text().split()
    assert [re.split("==", package)[0] for package in packages] == ["tensorflow", "tensorflow-text"]
    (example,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.S)
    elsewhere = example.replace('load(".")', f"load({str(folder)!r})")
    assert elsewhere != example
    inputs = [[[5, 6, EOS], [7, EOS, PAD]], [[BOS, 8], [BOS, 9]]]
    code = elsewhere + (
        "import sys\n"
        "print([name for name in sys.modules if name.startswith('nmt')])\n"
        f"sys.path.append({str(PACKAGE.parent)!r})\n"
        "import keras, nmt.model.transformer\n"
        f"model = keras.saving.load_model({str(file)!r}, safe_mode=True)\n"
        f"print(model([tf.constant(ids) for ids in {inputs}]).numpy().tolist())\n"
    )
    *translations, ours, logits = run_python(code, tmp_path, PYTHONPATH="").splitlines()
    assert translations == texts_of(translator.translate(["Good morning.", "I like cats."]))
    assert ours == "[]"
    (model,) = translator.searcher.models
    expected = model([tf.constant(ids) for ids in inputs])
    np.testing.assert_allclose(json.loads(logits), expected, atol=1e-5)


# --- SavedModel ---


def test_saved_model_in_a_batch_and_alone(saved, translator):
    together = saved.translate(tf.constant(SENTENCES))["translation"].numpy()
    alone = [saved.translate(tf.constant([text]))["translation"].numpy()[0] for text in SENTENCES]
    assert together.tolist() == alone
    assert [text.decode() for text in alone] == texts_of(translator.translate(SENTENCES))


def test_saved_model_tells_tokens_and_scores(saved, translator):
    signature = saved.signatures["serving_default"]
    found = {key: value.numpy() for key, value in signature(texts=tf.constant(SENTENCES)).items()}
    for row, expected in enumerate(translator.translate(SENTENCES)):
        length = found["length"][row]
        tokens = [token.decode() for token in found["tokens"][row]]
        assert tokens[:length] == expected.target_tokens
        assert set(tokens[length:]) <= {""}
        np.testing.assert_allclose(
            found["log_probs"][row, :length], expected.token_log_probs, atol=1e-4
        )
        assert found["score"][row] == pytest.approx(expected.score, abs=1e-4)
        assert found["truncated"][row] == expected.truncated


def test_saved_model_beam_search(saved, translator):
    found = saved.signatures["beam4"](texts=tf.constant(SENTENCES))
    expected = translator.translate(SENTENCES, SearchOptions(beam=4))
    assert [text.decode() for text in found["translation"].numpy()] == texts_of(expected)
    np.testing.assert_allclose(found["score"], [each.score for each in expected], atol=1e-4)


def test_saved_model_attention(saved, translator):
    found = saved.signatures["attention"](texts=tf.constant(SENTENCES[:3]))
    for row, expected in enumerate(translator.translate(SENTENCES[:3], attention=True)):
        cross = expected.attention.cross
        _, _, target, source = cross.shape
        attention = found["attention"].numpy()[row]
        np.testing.assert_allclose(attention[:, :, :target, :source], cross, atol=1e-5)
        tokens = found["source_tokens"].numpy()[row, :source]
        assert [token.decode() for token in tokens] == expected.source_tokens


@pytest.mark.parametrize("name", ["translate", "beam4", "attention"])
@pytest.mark.parametrize("texts", [[], [""], ["", " \ufeff"]], ids=["none", "one", "two"])
def test_saved_model_without_text(saved, name, texts):
    found = getattr(saved, name)(tf.constant(texts, tf.string))
    assert found["translation"].numpy().tolist() == [b""] * len(texts)
    assert found["length"].numpy().tolist() == found["score"].numpy().tolist() == [0] * len(texts)


@pytest.mark.parametrize(
    "text", [b"\xff", "\ud800".encode("utf-8", "surrogatepass"), b"x y " * 800]
)
def test_saved_model_refuses_what_is_no_sentence(saved, text):
    with pytest.raises(tf.errors.InvalidArgumentError):
        saved.translate(tf.constant([text]))


@pytest.mark.parametrize("unwanted", [BOS, PAD])
@pytest.mark.parametrize("beam", [1, 4])
def test_saved_model_never_gives_a_special_token(translator, beam, unwanted):
    """Not even where the model wants nothing else."""
    model = build_transformer(translator.searcher.models[0].config)
    direction = np.eye(model.config.d_model, dtype=np.float32)[0]
    table = model.target_embedding.embeddings.numpy()
    table[unwanted] = 50 * direction
    model.target_embedding.embeddings.assign(table)
    model.decoder_norm.gamma.assign(0 * direction)
    model.decoder_norm.beta.assign(direction)
    found = saved_model.search(model, tf.constant([[7, 8, EOS]]), tf.constant([5]), beam)
    assert not {BOS, PAD} & set(found.ids[0, 0, : found.lengths[0, 0]].numpy().tolist())


def test_cleaning_in_the_graph_is_that_of_python():
    characters = [chr(code) for code in (*range(0xD800), *range(0xE000, 0x110000, 7))]
    texts = [f"{each} a{each}{each}b{each} " for each in characters] + [*SENTENCES, " \t a\u3000 "]
    cleaned = clean_in_graph(tf.constant(texts)).numpy()
    assert [text.decode() for text in cleaned] == [clean(text) for text in texts]


def test_decoding_in_the_graph_is_that_of_python(translator):
    """Of any ids: halves of characters in bytes, line breaks, special ones in the middle."""
    tokenizer = translator.target_tokenizer
    random = np.random.default_rng(1)
    ids = random.integers(0, tokenizer.vocab_size, (300, 8), np.int32)
    ids[:100] = random.integers(0, 4 + 256, (100, 8))  # where the bytes are
    in_graph = tensorflow_text.SentencepieceTokenizer(tokenizer.model_proto)
    decoded = decode_in_graph(in_graph, tf.constant(ids)).numpy()
    assert [text.decode() for text in decoded] == [clean(tokenizer.decode(row)) for row in ids]


# --- CTranslate2: the converter ---


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("tie", [True, False], ids=["tied", "untied"])
def test_converted_weights_give_the_same_log_probabilities(translator, tmp_path, norm, tie):
    model = random_model(translator, norm, tie)
    engine = converted(model, translator, tmp_path)
    sources, targets = ["I like cats.", "Hello, world! Good morning."], ["我喜欢猫。", "早"]
    source_ids, target_ids = (
        [np.array([*ids, EOS], np.int32) for ids in tokenizer.encode(texts)]
        for tokenizer, texts in (
            (translator.source_tokenizer, sources),
            (translator.target_tokenizer, targets),
        )
    )
    batch = make_batch(source_ids, target_ids)
    expected = tf.nn.log_softmax(model(batch[:2])).numpy()
    for row, scored in enumerate(engine.score(sources, targets)):
        ids = target_ids[row]
        assert scored.target_tokens == translator.target_tokenizer.pieces(ids)
        np.testing.assert_allclose(
            scored.token_log_probs, expected[row, np.arange(len(ids)), ids], atol=1e-4
        )


def random_model(translator, norm="pre", tie=True):
    """Return a small model none of whose weights is 0 or 1, so that none can be forgotten."""
    config = ModelConfig(
        num_layers=2,
        d_model=16,
        num_heads=2,
        dff=24,
        dropout_rate=0.0,
        source_vocab_size=translator.source_tokenizer.vocab_size,
        target_vocab_size=translator.target_tokenizer.vocab_size,
        norm=norm,
        tie_embeddings=tie,
    )
    model = build_transformer(config, seed=1)
    random = np.random.default_rng(1)
    for weight in model.trainable_variables:
        weight.assign(weight + 0.3 * random.standard_normal(weight.shape))
    return model


def converted(model, translator, folder):
    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    converter.write_model(model, *tokenizers, folder)
    return CTranslate2Translator(folder, *tokenizers)


@pytest.mark.parametrize("wanted", [[], [PAD, BOS]], ids=["none", "pad_and_bos"])
def test_what_never_comes_and_what_never_ends(translator, tmp_path, monkeypatch, wanted):
    """A model that wants what must not come, then anything but EOS; all in one batch."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0}, raising=False)
    model = random_model(translator, "post", tie=False)
    bias = np.zeros(model.config.target_vocab_size, np.float32)
    bias[EOS], bias[wanted] = -60, 60
    model.output_projection.bias.assign(bias)
    engine = converted(model, translator, tmp_path)
    ours = Translator([model], translator.source_tokenizer, translator.target_tokenizer)
    texts = ["I like cats.", "", "Hello, world! Where is the library?", "Good morning."]
    expected = ours.translate(texts)
    for options in (SearchOptions(), SearchOptions(beam=2)):
        received = engine.translate(texts, options)
        for text, translation in zip(texts, received, strict=True):
            length = len(translation.source_tokens) + EXTRA_TARGET_TOKENS if text else 0
            assert len(translation.target_tokens) == length
            assert not {"<pad>", "<s>", "</s>"}.intersection(translation.target_tokens)
            assert translation.truncated == bool(text)
        if options.beam == 1:
            assert texts_of(received) == texts_of(expected)
            np.testing.assert_allclose(
                [each.score for each in received], [each.score for each in expected], rtol=1e-4
            )


# --- CTranslate2: translating ---


@pytest.mark.parametrize(
    ("options", "prefix"),
    [
        (SearchOptions(), None),
        (SearchOptions(), "你"),
        (SearchOptions(no_repeat_ngram=1), None),
        (SearchOptions(coverage_penalty=0.3), None),
        (SearchOptions(beam=4, nbest=2), None),
    ],
    ids=["greedy", "prefix", "no_repeat", "coverage", "beam"],
)
def test_ctranslate2_searches_as_we_do(engine, translator, options, prefix):
    prefixes = [prefix] * len(SENTENCES) if prefix else None
    expected = translator.translate(SENTENCES, options, prefixes=prefixes)
    received = engine.translate(SENTENCES, options, prefixes=prefixes)
    same = [a.target_tokens == b.target_tokens for a, b in zip(expected, received, strict=True)]
    # Beam search is another algorithm; it finds the same where the model is sure.
    assert all(same) if options.beam == 1 else sum(same) >= len(same) - 3
    for a, b, is_same in zip(expected, received, same, strict=True):
        assert [type(value) for value in b] == [type(value) for value in a]
        assert b.source_tokens == a.source_tokens
        if is_same:
            assert (b.text, b.truncated) == (a.text, a.truncated)
            np.testing.assert_allclose(b.token_log_probs, a.token_log_probs, atol=1e-4)
            assert b.score == pytest.approx(a.score, abs=1e-3)


@pytest.mark.parametrize(
    "options",
    [
        SearchOptions(),
        SearchOptions(beam=4, nbest=4, length_penalty=1.0),
        SearchOptions(beam=4, coverage_penalty=0.5),
        SearchOptions(beam=2, nbest=2, sampling=True, temperature=2.0, top_k=40, top_p=0.95),
    ],
    ids=["greedy", "beam", "coverage", "sampling"],
)
def test_ctranslate2_in_a_batch_and_alone(engine, options):
    together = engine.translate(SENTENCES, options)
    for text, expected in zip(SENTENCES, together, strict=True):
        alone = engine.translate(text, options)
        assert alone.target_tokens == expected.target_tokens
        assert texts_of(alone.alternatives) == texts_of(expected.alternatives)
        assert alone.score == pytest.approx(expected.score, abs=1e-4)


def test_ctranslate2_ranks_by_our_formula(engine):
    options = SearchOptions(beam=4, nbest=4, length_penalty=1.0)
    for translation in engine.translate(SENTENCES[:4], options):
        found = [translation, *translation.alternatives]
        assert len({tuple(each.target_tokens) for each in found}) == len(found) > 1
        assert [each.score for each in found] == sorted((x.score for x in found), reverse=True)
        for each in found:
            penalty = (5 + len(each.target_tokens)) / 6
            assert each.score == pytest.approx(each.log_prob / penalty)


def test_ctranslate2_draws_by_the_seed(engine):
    def draw(seed, **more):
        options = SearchOptions(sampling=True, temperature=3.0, seed=seed, **more)
        return texts_of(engine.translate(SENTENCES[:4], options))

    assert draw(1) == draw(1) != draw(2)
    # Where the sentence hardly counts, chance does: each has its own.
    first_tokens = [
        each.target_tokens[:3]
        for each in engine.translate(
            SENTENCES[:4], SearchOptions(sampling=True, temperature=1e3, seed=1)
        )
    ]
    assert len(set(map(tuple, first_tokens))) == 4
    assert draw(3, top_k=1) == texts_of(engine.translate(SENTENCES[:4]))
    assert draw(3, top_p=1e-6) == texts_of(engine.translate(SENTENCES[:4]))


def test_ctranslate2_keeps_prefixes_in_beams(engine):
    options = SearchOptions(beam=4, nbest=4)
    for translation in engine.translate(SENTENCES[:4], options, prefixes=["你", "", "我不", ""]):
        for each in (translation, *translation.alternatives):
            assert "<pad>" not in each.target_tokens
            assert each.score > -1e6
    assert engine.translate("Hello.", options, prefixes="我不").text.startswith("我不")
    with pytest.raises(ValueError, match="received 2 prefixes"):
        engine.translate("Hello.", options, prefixes=["我不", "你"])


def test_ctranslate2_and_the_longest_sentence(engine, translator):
    longest, target = "I " * (MAX_SOURCE_TOKENS // 2), "。" * MAX_SOURCE_TOKENS
    for tokenizer, text in (
        (translator.source_tokenizer, clean(longest)),
        (translator.target_tokenizer, target),
    ):
        assert len(tokenizer.encode([text])[0]) == MAX_SOURCE_TOKENS
    expected, received = translator.translate(longest), engine.translate(longest)
    assert received.target_tokens == expected.target_tokens
    assert received.log_prob == pytest.approx(expected.log_prob, abs=1e-3)
    assert engine.translate(longest, prefixes=target).text.startswith(target)
    (scored,) = engine.score([longest], [target])
    assert np.isfinite(scored.score)
    with pytest.raises(ValueError, match="at most 1024 subwords"):
        engine.translate(longest + "I")


def test_ctranslate2_scores_given_translations(engine, translator):
    targets = [*texts_of(translator.translate(SENTENCES[:-1])), ""]
    expected, received = (each.score(SENTENCES, targets) for each in (translator, engine))
    for a, b in zip(expected, received, strict=True):
        assert b.target_tokens == a.target_tokens
        np.testing.assert_allclose(b.token_log_probs, a.token_log_probs, atol=1e-4)
        assert b.score == pytest.approx(a.score, abs=1e-3)
    with pytest.raises(ValueError, match="one target"):
        engine.score(SENTENCES, targets[1:])


def test_ctranslate2_says_what_it_has_not(engine):
    with pytest.raises(ConfigError, match="--engine tensorflow"):
        engine.translate("Hello.", attention=True)
    with pytest.raises(ValueError, match="prefixes"):
        engine.translate(["Hello."], prefixes=["a", "b"])
    with pytest.raises(ValueError, match="surrogate"):
        engine.translate("\ud800")


def test_ctranslate2_translates_documents(engine, translator):
    text = "Good morning.\n\n" + "I like cats. I like dogs. " * 10
    (expected,), (received,) = (translate_documents(each, [text]) for each in (translator, engine))
    assert received.text == expected.text
    assert len(received.segments) == len(expected.segments) > 2


def test_ctranslate2_needs_no_tensorflow(moved, translator, tmp_path):
    """From a folder that was moved, in less than a second of processor time."""
    code = (
        "import sys, time; from nmt.decoding.engines import load_engine\n"
        f"print(load_engine({str(moved('ctranslate2'))!r}).translate('Good morning.').text)\n"
        "print([name for name in ('tensorflow', 'keras', 'torch') if name in sys.modules])\n"
        "print(time.process_time())"
    )
    seconds = []
    for _ in range(3):  # a machine busy with something else does not matter
        text, heavy, used = run_python(code, tmp_path, PYTHONPATH=str(PACKAGE.parent)).splitlines()
        assert text == translator.translate("Good morning.").text
        assert heavy == "[]"
        seconds.append(float(used))
    assert min(seconds) < 1


# --- exports that are missing, damaged or old ---


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("model.bin", "incomplete export: model.bin missing"),
        ("source.model", "incomplete export: source.model missing"),
        ("target_vocabulary.json", "cannot load the model"),
    ],
)
def test_a_file_is_missing(moved, name, message):
    folder = moved("ctranslate2")
    (folder / name).unlink()
    with pytest.raises(ConfigError, match=message):
        load_ctranslate2(folder)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.bin", lambda data: data[: len(data) // 2], "cannot load the model"),
        ("model.bin", lambda data: b"", "cannot load the model"),
        ("config.json", lambda data: b"{", "cannot load the model"),
        ("target.model", lambda data: data[::-1], "vocabulary has changed"),
        ("nmt.json", lambda data: data[:20], "cannot read the description"),
        ("nmt.json", lambda data: b"{}", "cannot read the description"),
    ],
)
def test_a_file_is_damaged(moved, name, content, message):
    folder = moved("ctranslate2")
    (folder / name).write_bytes(content((folder / name).read_bytes()))
    with pytest.raises(ConfigError, match=message):
        load_ctranslate2(folder)


def test_engines_are_found(run, exports):
    assert locate_engine(run.path) == ("tensorflow", run.path)
    for name in ("ctranslate2", "ctranslate2-int8"):
        folder = run.path / "export" / name
        assert locate_engine(run.path, name) == locate_engine(folder) == (name, folder)
        assert isinstance(load_engine(folder), CTranslate2Translator)


def test_engines_that_are_not_there(run, exports, tiny_run, tmp_path):
    export = run.path / "export"
    for path, name, message in (
        (tiny_run, "ctranslate2", "run `nmt export .* --format ctranslate2` first"),
        (run.path, "onnx", "must be one of tensorflow, ctranslate2, ctranslate2-int8"),
        (export / "ctranslate2", "tensorflow", "exported for the engine ctranslate2"),
        (export / "saved-model", None, "used without nmt; see README.md"),
        (tmp_path / "nowhere", None, "no such run folder"),
        (tmp_path, "ctranslate2", "not a run folder"),
    ):
        with pytest.raises(ConfigError, match=message):
            locate_engine(path, name)
    with pytest.raises(ConfigError, match="no such folder"):
        load_ctranslate2(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="not written by `nmt export`"):
        load_ctranslate2(tmp_path)
    with pytest.raises(ConfigError, match="exported as saved-model"):
        load_ctranslate2(export / "saved-model")


def test_an_export_of_older_weights_is_not_used(run, exports, tmp_path):
    path = tmp_path / "run"
    shutil.copytree(run.path, path, ignore=shutil.ignore_patterns("saved-model", "model.keras"))
    (path / "model.weights.h5").write_bytes(b"trained further")
    with pytest.raises(ConfigError, match=r"exported before .* was trained further"):
        locate_engine(path, "ctranslate2")
    (path / "model.weights.h5").unlink()  # the export is enough
    assert locate_engine(path, "ctranslate2").engine == "ctranslate2"


# --- all or nothing ---


def test_a_folder_takes_its_place_when_it_is_complete(tmp_path):
    place = tmp_path / "place"
    for content in ("first", "second"):
        with replacing_folder(place) as temporary:
            (temporary / "file").write_text(content)
            assert not place.exists() or (place / "file").read_text() == "first"
        assert (place / "file").read_text() == content
        assert list(tmp_path.iterdir()) == [place]
    with pytest.raises(ZeroDivisionError), replacing_folder(place) as temporary:
        (temporary / "file").write_text(f"third {1 / 0}")
    assert (place / "file").read_text() == "second"
    assert list(tmp_path.iterdir()) == [place]


def test_the_old_folder_comes_back_if_the_new_one_cannot_take_its_place(tmp_path, monkeypatch):
    place = tmp_path / "place"
    place.mkdir()
    (place / "file").write_text("old")
    rename = os.rename

    def refuse(source, target):
        if Path(source).name == "new":
            raise OSError("no")
        rename(source, target)

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(OSError, match="no"), replacing_folder(place) as temporary:
        (temporary / "file").write_text("new")
    assert (place / "file").read_text() == "old"
    assert list(tmp_path.iterdir()) == [place]


def test_places(run, tmp_path):
    assert export_path(run, "keras") == run.path / "export" / "model.keras"
    assert export_path(run, "ctranslate2") == run.path / "export" / "ctranslate2"
    assert export_path(run, "ctranslate2", tmp_path / "new") == tmp_path / "new"
    (tmp_path / "empty").mkdir()
    assert export_path(run, "ctranslate2", tmp_path / "empty") == tmp_path / "empty"
    (tmp_path / "file").write_text("mine")
    for format, path, message in (
        ("keras", tmp_path / "model.h5", "must end in .keras"),
        ("keras", tmp_path / "no" / "model.keras", "no such folder"),
        ("ctranslate2", tmp_path, "not an export"),
        ("saved-model", tmp_path / "file", "not an export"),
    ):
        with pytest.raises(ConfigError, match=message):
            export_path(run, format, path)


# --- proof and table ---


def translation(text, tokens, log_probs):
    return Translation("source", text, [], tokens, log_probs)


def test_parity_allows_for_ties_only():
    ours = translation("ab", ["a", "b"], [-1.0, -2.0])
    close = translation("ac", ["a", "c"], [-1.0, -2.0001])
    far = translation("ac", ["a", "c"], [-1.0, -2.1])
    assert compare([ours], [ours]) == (1, 1, 0.0, [])
    assert compare([ours, ours], [close, ours]) == (2, 1, 0.0, [])
    assert compare([ours], [far]).differing == [(ours, far)]
    assert not compare([ours], [far]).holds
    off = translation("ab", ["a", "b"], [-1.0, -2.01])
    assert compare([ours], [off]).difference == pytest.approx(0.01)
    assert not compare([ours], [off]).holds
    longer = translation("abc", ["a", "b", "c"], [-1.0, -2.0, -1.0])
    assert not compare([ours], [longer]).holds


def test_the_table_carries_the_signature_of_bleu():
    bleu = Score("BLEU", 18.2, "nrefs:1|tok:zh")
    table = format_rows([Row("run", 9_500_000, 1.5, 90.9, bleu), Row("keras", 1, 1.0, 2.0, None)])
    assert re.search(r"run +9\.5 MB +1\.50 s +90\.9 +18\.20\n", table)
    assert re.search(r"keras .* -\n", table)
    assert table.endswith("\nBLEU: nrefs:1|tok:zh")


# --- command line ---


def test_export_command(run, tmp_path):
    place = tmp_path / "engine"
    arguments = ["export", run.path, "--format", "ctranslate2-int8", "-o", place, "--bleu"]
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert re.match(r"ctranslate2-int8: \d+ of \d+ translations are those of the run; ", lines[0])
    rows = [line.split()[0] for line in lines[2:4]]
    assert rows == ["run", "ctranslate2-int8"]
    assert "tok:zh" in lines[-1]
    assert f"wrote {place}" in done.stderr
    assert read_description(place).format == "ctranslate2-int8"


def test_an_export_that_came_out_wrong_is_an_error(run, tmp_path, monkeypatch):
    monkeypatch.setattr(converter, "LAYER_NORM_EPSILON", 0.5)
    arguments = ["export", run.path, "--format", "ctranslate2", "-o", tmp_path / "engine"]
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == 1
    assert re.search(r"^nmt: ctranslate2: not put in its place: .* of the run", done.stderr, re.M)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "onnx"], "--format must be one of saved-model, keras,"),
        (["--format", "keras", "--format", "ctranslate2", "-o", "x"], "the place of one format"),
        (["--format", "ctranslate2", "--pairs", "no.tsv"], "no.tsv"),
    ],
)
def test_mistakes_are_found(run, arguments, message):
    done = CliRunner().invoke(app, ["export", str(run.path), *arguments])
    assert isinstance(done.exception, ConfigError)
    assert message in str(done.exception)


def test_a_mistake_is_one_line(run, nmt_command, tmp_path):
    """Nothing of the user's is replaced."""
    (tmp_path / "mine").write_text("mine")
    done = nmt_command("export", run.path, "--format", "ctranslate2", "-o", ".", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "nmt: .: there already, and not an export; choose another place\n"
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_person_edits_and_repeats_what_was_typed(run, exports, user_environment):
    """On a terminal: a prompt, an answer to each line at once, arrow keys, Ctrl-D."""
    folder = run.path / "export" / "ctranslate2"
    sentence, other = SENTENCES[0], SENTENCES[2]
    answer, other_answer = texts_of(exports["ctranslate2"].engine.translate([sentence, other]))
    child = pexpect.spawn(
        sys.executable,
        ["-m", "nmt", "translate", str(folder)],
        env={**user_environment, "TERM": "dumb"},
        encoding="utf-8",
        timeout=120,
    )
    child.expect_exact("Ctrl-D ends")
    for typed, expected in (
        (sentence, answer),
        ("", ""),
        (other, other_answer),
        (UP + UP, answer),
        (UP + "\b" * len(sentence) + other, other_answer),
    ):
        child.expect_exact("> ")
        child.sendline(typed)
        child.expect_exact(expected)
    child.expect_exact("> ")
    child.sendeof()
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
