"""Writing a run in a format, proved before it is put in its place."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import keras

from nmt import __version__
from nmt.decoding.ctranslate2 import TOKENIZER_FILES, load_ctranslate2
from nmt.decoding.exported import Description, write_description
from nmt.decoding.translation import Translation
from nmt.decoding.translator import Translator
from nmt.export.parity import Parity, compare
from nmt.export.placing import replacing_folder
from nmt.run_folder import RunFolder, replacing, sha256


class Translating(Protocol):
    """Whatever translates sentences greedily."""

    def translate(self, texts: list[str]) -> list[Translation]:
        """Return a translation for each sentence."""


Loaded = TypeVar("Loaded", bound=Translating)


class ParityError(RuntimeError):
    """An export does not translate as its run does; nothing was put in its place."""


class Exported(NamedTuple):
    """An export that is in its place, and loaded."""

    engine: Translating
    load_seconds: float  # see `timed`
    parity: Parity


def export(
    run: RunFolder,
    translator: Translator,
    format: str,
    path: Path,
    expected: Sequence[Translation],
) -> Exported:
    """Export a run, and prove by a comparison that it came out right.

    Args:
      run: the run.
      translator: the same, loaded.
      format: one of FORMATS.
      path: where to, from `export_path`.
      expected: translations of the run, greedily searched, to be compared with.

    Raises:
      ParityError: the export would not translate as the run does.
    """
    path.parent.mkdir(exist_ok=True)
    with (replacing if format == "keras" else replacing_folder)(path) as temporary:
        _write(run, translator, format, temporary)
        engine, seconds = timed(lambda: _load(translator, format, temporary))
        parity = compare(expected, engine.translate([each.source for each in expected]))
        if not format.endswith("int8") and not parity.holds:
            raise ParityError(f"{format}: not put in its place: {_complaint(parity)}")
    return Exported(engine, seconds, parity)


def timed(load: Callable[[], Loaded]) -> tuple[Loaded, float]:
    """Load an engine; return it, and the seconds until it had translated a first sentence."""
    started = time.perf_counter()
    engine = load()
    engine.translate(["Hello."])
    return engine, time.perf_counter() - started


def _write(run, translator, format, path):
    (model,) = translator.searcher.models
    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    if format == "keras":
        model.save(path)
        return
    if format == "saved-model":
        from nmt.export.saved_model import write_saved_model

        write_saved_model(model, *tokenizers, path)
    else:
        from nmt.export.ctranslate2 import write_model

        write_model(model, *tokenizers, path, "int8" if format.endswith("int8") else None)
        for name, tokenizer in zip(TOKENIZER_FILES, tokenizers, strict=True):
            (path / name).write_bytes(tokenizer.model_proto)
    data = run.config().data
    files = run.source_tokenizer_file, run.target_tokenizer_file, run.weights_file
    write_description(
        path,
        Description(
            format=format,
            nmt=__version__,
            source_language=data.source_language,
            target_language=data.target_language,
            target_script=data.target_script,
            segment_tokens=translator.segment_tokens,
            sha256={file.name: sha256(file.read_bytes()) for file in files},
        ),
    )


def _load(translator, format, path) -> Translating:
    if format == "saved-model":
        from nmt.export.saved_model import SavedModelTranslator

        return SavedModelTranslator(path)
    if format == "keras":
        model = keras.saving.load_model(path)
        return Translator([model], translator.source_tokenizer, translator.target_tokenizer)
    return load_ctranslate2(path)


def _complaint(parity):
    if not parity.differing:
        return f"log-probabilities differ by up to {parity.difference:.1e} from those of the run"
    expected, received = parity.differing[0]
    return (
        f"{len(parity.differing)} of {parity.sentences} translations differ from those of the run; "
        f"{expected.source!r} became {received.text!r} instead of {expected.text!r}"
    )
