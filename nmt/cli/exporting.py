"""The command that writes a model in other formats."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from nmt.cli.app import Run, app, fail, import_tensorflow
from nmt.config import ConfigError
from nmt.run_folder import RunFolder

# Enough for a speed that does not jump about, where nobody asks for BLEU.
SPEED_SENTENCES = 320
PROOF_SENTENCES = 100


@app.command(epilog="Example: nmt export checkpoints/quickstart --format ctranslate2-int8 --bleu")
def export(
    run: Run,
    format: Annotated[
        list[str],
        typer.Option(
            "--format",
            help="saved-model: strings in and out, for TensorFlow alone. keras: one file. "
            "ctranslate2: fast on CPUs, without TensorFlow; -int8: smaller, a little less exact. "
            "May be repeated.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Where to. Default: RUN/export/FORMAT."),
    ] = None,
    bleu: Annotated[
        bool, typer.Option("--bleu", help="Also compare the BLEU on the test split.")
    ] = False,
    pairs: Annotated[
        Path | None, typer.Option("--pairs", help="TSV file for the BLEU, instead of the split.")
    ] = None,
):
    """Write a trained model in other formats, and prove that they translate as it does."""
    from nmt.export.formats import FORMATS, export_path

    formats = list(dict.fromkeys(format))
    for each in formats:
        if each not in FORMATS:
            raise ConfigError(f"--format must be one of {', '.join(FORMATS)}; received {each!r}")
    if output is not None and len(formats) > 1:
        raise ConfigError("--output is the place of one format; received several")
    folder = RunFolder(run)
    folder.require(folder.config_file, folder.weights_file)
    paths = [export_path(folder, each, output) for each in formats]
    test = _test_pairs(folder)
    scored = _pairs_of(folder, pairs) if pairs else test if bleu else []
    if (bleu or pairs) and not scored:
        raise ConfigError(f"{pairs or folder.test_file}: no sentence pairs to evaluate")
    import_tensorflow()
    from nmt.decoding.translator import load_translator
    from nmt.export.comparison import format_rows, measure
    from nmt.export.export import ParityError, timed
    from nmt.export.export import export as write
    from nmt.export.parity import ODD_SENTENCES, format_parity

    translator, seconds = timed(lambda: load_translator(folder.path))
    proof = [pair.source for pair in test[:PROOF_SENTENCES]] + list(ODD_SENTENCES)
    expected = translator.translate(proof)
    sources = [pair.source for pair in scored or test[:SPEED_SENTENCES]] or proof
    references = [pair.target for pair in scored] or None
    compared = (sources, references, folder.config().data.target_language)
    print(f"nmt: translating {len(sources)} sentences by each", file=sys.stderr)
    rows = [measure("run", _files_of(folder), translator, seconds, *compared)]
    for each, path in zip(formats, paths, strict=True):
        try:
            exported = write(folder, translator, each, path, expected)
        except ParityError as error:
            fail(error, 1)
        print(f"nmt: wrote {path}", file=sys.stderr)
        print(f"{each}: {format_parity(exported.parity)}")
        rows.append(measure(each, [path], exported.engine, exported.load_seconds, *compared))
    print(format_rows(rows))


def _files_of(folder):
    """Return what translating takes; the rest of a run folder is for training."""
    files = (folder.source_tokenizer_file, folder.target_tokenizer_file, folder.weights_file)
    return [folder.config_file, folder.manifest_file, *files]


def _test_pairs(folder):
    from nmt.data.corpora import read_tsv

    return read_tsv(folder.test_file) if folder.test_file.is_file() else []


def _pairs_of(folder, file):
    """Return pairs of the user's, as clean as those of the run."""
    from nmt.data.cleaning import clean_pairs
    from nmt.data.corpora import format_dropped, read_tsv

    kept, dropped = clean_pairs(read_tsv(file), folder.config().data.target_script)
    if dropped:
        print(f"nmt: {file}: {format_dropped(dropped)}", file=sys.stderr)
    return kept
