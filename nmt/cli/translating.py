"""Commands that use a model: translate, evaluate, look inside."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from nmt.cli.app import Font, Run, app, check_output, import_tensorflow, valid
from nmt.config import ConfigError
from nmt.run_folder import RunFolder, replacing, write_text


@app.command(epilog="Example: nmt evaluate checkpoints/quickstart")
def evaluate(
    run: Annotated[
        Path | None, typer.Argument(metavar="[RUN]", help="Run folder whose test set to translate.")
    ] = None,
    split: Annotated[str, typer.Option("--split", help="test or validation.")] = "test",
    pairs: Annotated[
        Path | None, typer.Option("--pairs", help="TSV file to translate instead of the split.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="Also write the translations to this file.")
    ] = None,
    hypotheses: Annotated[
        Path | None, typer.Option("--hypotheses", help="Score this file instead of a run.")
    ] = None,
    reference: Annotated[
        list[Path] | None,
        typer.Option("--reference", help="Reference file for --hypotheses; may be repeated."),
    ] = None,
    language: Annotated[
        str, typer.Option("--language", help="Target language of --hypotheses.")
    ] = "zh",
):
    """Translate held-out sentences and print BLEU and chrF with their signatures."""
    from nmt.data.corpora import read_lines, read_tsv

    if hypotheses is not None:
        if run is not None or not reference:
            raise ConfigError("--hypotheses needs at least one --reference, and no run folder")
        _print_scores(read_lines(hypotheses), [read_lines(file) for file in reference], language)
        return
    if run is None:
        raise ConfigError("give a run folder, or --hypotheses with --reference")
    if split not in ("test", "validation"):
        raise ConfigError(f"--split must be test or validation; received {split!r}")
    check_output(output)
    folder = RunFolder(run)
    file = pairs or (folder.test_file if split == "test" else folder.validation_file)
    folder.require(folder.config_file, folder.weights_file)
    held_out = read_tsv(file)
    data = folder.config().data
    if pairs is not None:
        from nmt.data.cleaning import clean_pairs

        held_out, dropped = clean_pairs(held_out, data.target_script)
        if dropped:
            from nmt.data.corpora import format_dropped

            print(f"nmt: {pairs}: {format_dropped(dropped)}", file=sys.stderr)
    if not held_out:
        raise ConfigError(f"{file}: no sentence pairs to evaluate")
    translations = _load(folder).translate([pair.source for pair in held_out])
    texts = [translation.text for translation in translations]
    if output is not None:
        write_text(output, "".join(text + "\n" for text in texts))
    _print_scores(texts, [[pair.target for pair in held_out]], data.target_language)


@app.command(epilog='Example: nmt translate checkpoints/quickstart "Good morning."')
def translate(
    run: Run,
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="[TEXT]...", help="Sentences; none: read stdin.")
    ] = None,
    input: Annotated[
        Path | None, typer.Option("--input", help="Translate the lines of this file.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="Write here instead of to stdout.")
    ] = None,
):
    """Translate sentences: one line out for each line in."""
    if texts and input:
        raise ConfigError("give either sentences or --input, not both")
    folder = RunFolder(run)
    folder.require(folder.config_file, folder.weights_file)
    check_output(output)
    lines: Iterable[str]
    if texts:
        lines = texts
    elif input:
        from nmt.data.corpora import read_lines

        lines = read_lines(input)
    else:
        if sys.stdin.isatty():
            print(
                "nmt: reading sentences from the keyboard, one a line; end with Ctrl-D",
                file=sys.stderr,
            )
        lines = _stdin_lines()
    translator = _load(folder)
    translated = _translate_lines(translator, lines)
    if output is None:
        for text in translated:
            print(text, flush=sys.stdout.isatty())
        return
    with replacing(output) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as f:
        f.writelines(text + "\n" for text in translated)


@app.command(epilog='Example: nmt attention checkpoints/quickstart "I like cats." -o cats.png')
def attention(
    run: Run,
    sentence: Annotated[str, typer.Argument(help="The sentence to translate and look into.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Picture to write: .png, .svg or .pdf.")
    ] = Path("attention.png"),
    layer: Annotated[
        int | None, typer.Option("--layer", help="Decoder layer, from 1. Default: the last.")
    ] = None,
    head: Annotated[
        int | None, typer.Option("--head", help="Attention head, from 1. Default: all.")
    ] = None,
    font: Font = None,
):
    """Translate a sentence and draw which source words each target word looked at."""
    folder = RunFolder(run)
    folder.require(folder.config_file, folder.weights_file)
    model = folder.config().model
    for name, value, largest in (
        ("--layer", layer, model.num_layers),
        ("--head", head, model.num_heads),
    ):
        if value is not None and not 1 <= value <= largest:
            raise ConfigError(f"{name} must be from 1 to {largest}; received {value}")
    from nmt.text.normalize import clean

    if not valid(clean, sentence):
        raise ConfigError("there is nothing to draw: the sentence is empty")
    from nmt.visualize.fonts import font_for
    from nmt.visualize.heatmap import check_picture_path, plot_translation, save_figure

    check_picture_path(output)
    font_for([], font)
    translation = valid(_load(folder).translate, sentence, attention=True)
    save_figure(plot_translation(translation, layer, head, font), output)
    print(translation.text)
    print(f"nmt: wrote {output}", file=sys.stderr)


@app.command(epilog="Example: nmt info checkpoints/quickstart")
def info(run: Run):
    """Show what is in a run folder."""
    folder = RunFolder(run)
    folder.require(folder.config_file)
    from nmt.info import describe

    print(describe(folder))


def _load(folder):
    import_tensorflow()
    from nmt.decoding.translator import load_translator

    return load_translator(folder.path)


def _stdin_lines() -> Iterator[str]:
    """Yield lines of standard input as UTF-8, whatever the locale."""
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise ConfigError(f"standard input, line {number}: not UTF-8: {error}") from None


def _translate_lines(translator, lines: Iterable[str], chunk: int = 512) -> Iterator[str]:
    """Yield a translation for each line, reading `chunk` lines ahead at most."""
    waiting = []
    # A person who types wants an answer to every line.
    chunk = 1 if sys.stdin.isatty() and not isinstance(lines, list) else chunk
    for line in lines:
        waiting.append(line)
        if len(waiting) == chunk:
            yield from (t.text for t in valid(translator.translate, waiting))
            waiting = []
    if waiting:
        yield from (t.text for t in valid(translator.translate, waiting))


def _print_scores(hypotheses, references, language):
    from nmt.evaluation.scores import corpus_scores, format_scores

    print(format_scores(valid(corpus_scores, hypotheses, references, language)))
