"""Commands that use a model: evaluate, translate, score, info."""

import contextlib
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import typer

from nmt.cli.app import Beam, Run, app, check_output, load, valid
from nmt.config import ConfigError
from nmt.decoding.options import GREEDY, SearchOptions
from nmt.run_folder import RunFolder, replacing, write_text

LengthPenalty = Annotated[
    float, typer.Option("--length-penalty", help="Of --beam: 0 none, larger for longer texts.")
]
Ensemble = Annotated[
    list[Path] | None,
    typer.Option("--ensemble", help="Another run with the same tokenizers; may be repeated."),
]
EngineName = Annotated[
    Literal["tensorflow", "ctranslate2", "ctranslate2-int8"] | None,
    typer.Option("--engine", help="tensorflow, or an export that is faster to start and to run."),
]


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
    beam: Beam = 1,
    length_penalty: LengthPenalty = GREEDY.length_penalty,
    engine: EngineName = None,
):
    """Translate held-out sentences and print BLEU and chrF with their signatures."""
    from nmt.data.corpora import read_lines, read_tsv
    from nmt.decoding.documents import translate_stream
    from nmt.decoding.engines import locate_engine

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
    options = SearchOptions(beam, length_penalty=length_penalty)
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
    located = locate_engine(run, engine)
    documents = translate_stream(load(located), (pair.source for pair in held_out), options)
    texts = [document.text for document in documents]
    if output is not None:
        write_text(output, "".join(text + "\n" for text in texts))
    _print_scores(texts, [[pair.target for pair in held_out]], data.target_language)


@app.command(epilog='Example: nmt translate checkpoints/quickstart "Good morning." --beam 4')
def translate(
    run: Run,
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TEXT]...", help="Texts of any length; none: read stdin."),
    ] = None,
    input: Annotated[
        Path | None, typer.Option("--input", help="Translate the lines of this file (.gz is fine).")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="Write here instead of to stdout.")
    ] = None,
    beam: Beam = 1,
    nbest: Annotated[
        int,
        typer.Option(
            "--nbest",
            help="So many translations, best first; a line each: number of the input line, tab, "
            "score, tab, text.",
        ),
    ] = 1,
    length_penalty: LengthPenalty = GREEDY.length_penalty,
    coverage_penalty: Annotated[
        float,
        typer.Option("--coverage-penalty", help="Prefer hypotheses that looked at every word."),
    ] = 0.0,
    no_repeat_ngram: Annotated[
        int, typer.Option("--no-repeat-ngram", help="No so many subwords in a row twice; 0: off.")
    ] = 0,
    sample: Annotated[
        bool, typer.Option("--sample", help="Draw tokens by their probability; --beam: how often.")
    ] = False,
    temperature: Annotated[
        float, typer.Option("--temperature", help="Of --sample; below 1 bolder.")
    ] = 1.0,
    top_k: Annotated[
        int, typer.Option("--top-k", help="Of --sample: so many likeliest tokens; 0: all.")
    ] = 0,
    top_p: Annotated[
        float, typer.Option("--top-p", help="Of --sample: likeliest tokens of this probability.")
    ] = 1.0,
    seed: Annotated[int, typer.Option("--seed", help="Of --sample.")] = 1,
    prefix: Annotated[
        str, typer.Option("--prefix", help="What each translation must begin with.")
    ] = "",
    scores: Annotated[
        bool,
        typer.Option("--scores", help="Put the score, log-probability by length, before the text."),
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="A JSON object a line: tokens, their scores, alignment."),
    ] = False,
    ensemble: Ensemble = None,
    engine: EngineName = None,
    window: Annotated[
        int, typer.Option("--window", min=1, help="Lines read ahead and sorted by length.")
    ] = 4096,
):
    """Translate texts: one line out for each line in.

    The sentences of a line are translated one by one, and joined again.
    """
    from nmt.decoding.documents import translate_stream
    from nmt.decoding.engines import locate_engine

    if texts and input:
        raise ConfigError("give either sentences or --input, not both")
    options = SearchOptions(
        *(beam, nbest, length_penalty, coverage_penalty, no_repeat_ngram),
        *(sample, temperature, top_k, top_p, seed),
    )
    located = locate_engine(run, engine)
    if ensemble and located.engine != "tensorflow":
        raise ConfigError("--ensemble needs --engine tensorflow")
    for folder in map(RunFolder, ensemble or []):
        folder.require(folder.config_file, folder.weights_file)
    check_output(output)
    by_hand = not texts and not input and sys.stdin.isatty()
    translator = load(located, ensemble or [])
    if by_hand:
        print(
            "nmt: type a text and Enter; arrow keys edit and repeat, Ctrl-D ends", file=sys.stderr
        )
        if located.engine == "tensorflow":
            translator.searcher.compile_ahead()  # pays from the second sentence on
    documents = translate_stream(
        translator,
        texts or _lines_of(input, by_hand),
        options,
        attention=as_json and located.engine == "tensorflow",
        prefix=prefix,
        # A person who types wants an answer to every line.
        window=1 if by_hand else window,
    )
    lines = (
        line
        for number, document in enumerate(documents, 1)
        for line in _formatted(document, number, nbest, scores, as_json)
    )
    try:
        if output is None:
            for line in lines:
                print(line, flush=sys.stdout.isatty())
            return
        with (
            replacing(output) as temporary,
            open(temporary, "w", encoding="utf-8", newline="\n") as f,
        ):
            f.writelines(line + "\n" for line in lines)
    except ValueError as error:
        raise ConfigError(str(error)) from None


@app.command(epilog="Example: nmt score checkpoints/quickstart pairs.tsv")
def score(
    run: Run,
    pairs: Annotated[Path, typer.Argument(help="TSV file: source, tab, its translation.")],
    output: Annotated[
        Path | None, typer.Option("--output", help="Write here instead of to stdout.")
    ] = None,
    ensemble: Ensemble = None,
):
    """Say how likely given translations are: a line each, log-probability, tab, per token."""
    folder = RunFolder(run)
    folder.require(folder.config_file, folder.weights_file)
    check_output(output)
    from nmt.data.corpora import read_tsv
    from nmt.decoding.engines import Located

    given = read_tsv(pairs)
    if not given:
        raise ConfigError(f"{pairs}: no sentence pairs to score")
    translator = load(Located("tensorflow", folder.path), ensemble or [])
    scored = valid(
        translator.score, [each.source for each in given], [each.target for each in given]
    )
    lines = [
        f"{each.log_prob:.4f}\t{each.log_prob / max(1, len(each.target_tokens)):.4f}"
        for each in scored
    ]
    if output is None:
        print("\n".join(lines))
    else:
        write_text(output, "".join(line + "\n" for line in lines))
    tokens = sum(len(each.target_tokens) for each in scored)
    mean = sum(each.log_prob for each in scored) / max(1, tokens)
    print(
        f"nmt: {len(scored):,} pairs, {tokens:,} target tokens, {mean:.4f} nats a token, "
        f"perplexity {math.exp(-mean):.2f}",
        file=sys.stderr,
    )


@app.command(epilog="Example: nmt info checkpoints/quickstart")
def info(run: Run):
    """Show what is in a run folder."""
    folder = RunFolder(run)
    folder.require(folder.config_file)
    from nmt.info import describe

    print(describe(folder))


def _lines_of(file: Path | None, by_hand: bool) -> Iterator[str]:
    """Yield the lines of a file or of standard input; on a terminal show how far they are."""
    from nmt.data.corpora import decode_lines, iterate_lines

    if by_hand:
        yield from _typed_lines()
        return
    if file is not None:
        total = sum(1 for _ in iterate_lines(file))  # bad bytes show now, not after hours
        from nmt.progress import translation_progress

        with translation_progress(total) as show:
            for number, line in enumerate(iterate_lines(file)):
                show(number)
                yield line.replace("\r", " ")
        return
    # Iterating over a file reads ahead; a program at the other end may wait for each answer.
    stream = iter(sys.stdin.buffer.readline, b"")
    for line in decode_lines(stream, "standard input"):
        yield line.replace("\r", " ")


def _typed_lines() -> Iterator[str]:
    """Yield what a person types up to Ctrl-D, with the terminal's line editing and history."""
    with contextlib.suppress(ImportError):  # Windows has no such module, and edits lines itself
        import readline  # noqa: F401  `input` finds it by itself
    # A prompt goes to stdout, where it must not get into a file.
    prompt = "> " if sys.stdout.isatty() else ""
    while True:
        try:
            line = input(prompt)
        except EOFError:
            print(file=sys.stderr)  # the shell's prompt begins a line of its own
            return
        except UnicodeDecodeError as error:
            print(f"nmt: not UTF-8, type it again: {error.reason}", file=sys.stderr)
            continue
        if line.strip():
            yield line


def _formatted(document, number, nbest, with_scores, as_json) -> Iterator[str]:
    """Yield what is printed of a document."""
    if as_json:
        yield json.dumps(_as_json(document), ensure_ascii=False)
    elif nbest > 1:
        for each in [document, *document.alternatives]:
            yield f"{number}\t{each.score:.4f}\t{each.text}"
    else:
        yield f"{document.score:.4f}\t{document.text}" if with_scores else document.text


def _as_json(document):
    return {
        "source": document.source,
        "text": document.text,
        "score": round(document.score, 4),
        "truncated": document.truncated,
        "segments": [_segment_as_json(segment) for segment in document.segments],
    }


def _segment_as_json(segment):
    from nmt.decoding.translation import align

    return {
        "source": segment.source,
        "text": segment.text,
        "score": round(segment.score, 4),
        "truncated": segment.truncated,
        "source_tokens": segment.source_tokens,
        "target_tokens": segment.target_tokens,
        "token_log_probs": [round(value, 4) for value in segment.token_log_probs],
        "alignment": align(segment) if segment.attention is not None else None,
        "alternatives": [_segment_as_json(each) for each in segment.alternatives],
    }


def _print_scores(hypotheses, references, language):
    from nmt.evaluation.scores import corpus_scores, format_scores

    print(format_scores(valid(corpus_scores, hypotheses, references, language)))
