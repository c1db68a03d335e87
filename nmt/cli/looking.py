"""Commands that look inside a model: attention, align, film."""

import contextlib
import json
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from nmt.cli.app import Beam, Font, Run, app, check_output, import_tensorflow, load, valid
from nmt.config import ConfigError
from nmt.decoding.options import SearchOptions
from nmt.run_folder import RunFolder, replacing, write_text


@app.command(epilog='Example: nmt attention checkpoints/quickstart "I like cats." -o cats.png')
def attention(
    run: Run,
    sentence: Annotated[str, typer.Argument(help="The sentence to translate and look into.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Picture to write: .png, .svg or .pdf. Default: attention.png, unless --html or "
            "--bertviz is given.",
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Page to write, to look around in with a browser.")
    ] = None,
    bertviz: Annotated[
        Path | None, typer.Option("--bertviz", help="JSON file to write, for BertViz.")
    ] = None,
    kind: Annotated[
        Literal["cross", "encoder", "decoder"],
        typer.Option("--kind", help="Of the picture: which attention."),
    ] = "cross",
    layer: Annotated[
        list[int] | None,
        typer.Option("--layer", help="Layer, from 1; may be repeated. Default: the last."),
    ] = None,
    head: Annotated[
        list[int] | None,
        typer.Option("--head", help="Attention head, from 1; may be repeated. Default: all."),
    ] = None,
    grid: Annotated[bool, typer.Option("--grid", help="All layers, one below the other.")] = False,
    mean: Annotated[
        bool, typer.Option("--mean", help="The mean of the heads instead of each of them.")
    ] = False,
    beam: Beam = 1,
    font: Font = None,
):
    """Translate a sentence and draw which words looked at which.

    The page of --html shows everything at once: all layers and heads, both kinds of self-attention
    and, with --beam, the alternatives.
    """
    folder = RunFolder(run)
    folder.require(folder.config_file, folder.weights_file)
    model = folder.config().model
    for name, values, largest in (
        ("--layer", layer, model.num_layers),
        ("--head", head, model.num_heads),
    ):
        for value in values or []:
            if not 1 <= value <= largest:
                raise ConfigError(f"{name} must be from 1 to {largest}; received {value}")
    if grid and layer:
        raise ConfigError("--grid shows all layers; give either --grid or --layer")
    options = SearchOptions(beam, nbest=beam)
    from nmt.decoding.engines import Located
    from nmt.text.normalize import clean

    if not valid(clean, sentence):
        raise ConfigError("there is nothing to draw: the sentence is empty")
    if output is None and html is None and bertviz is None:
        output = Path("attention.png")
    if output is not None:
        from nmt.visualize.fonts import font_for
        from nmt.visualize.heatmap import check_picture_path, plot_translation, save_figure

        check_picture_path(output)
        font_for([], font)
    for file in (html, bertviz):
        check_output(file)
    files = [file.resolve() for file in (output, html, bertviz) if file is not None]
    if len(set(files)) < len(files):
        raise ConfigError("--output, --html and --bertviz must be different files")
    translator = load(Located("tensorflow", folder.path))
    translation = valid(translator.translate, sentence, options, attention=True)
    if output is not None:
        layers = list(range(1, model.num_layers + 1)) if grid else layer
        figure = valid(plot_translation, translation, kind, layers, head, mean, font)
        save_figure(figure, output)
    if html is not None:
        from nmt.visualize.explorer import explorer_page

        write_text(html, explorer_page([translation]))
    if bertviz is not None:
        from nmt.visualize.explorer import bertviz as for_bertviz

        write_text(bertviz, json.dumps(for_bertviz(translation), ensure_ascii=False))
    print(translation.text)
    for file in (output, html, bertviz):
        if file is not None:
            print(f"nmt: wrote {file}", file=sys.stderr)


@app.command(epilog="Example: nmt align checkpoints/quickstart pairs.tsv -o pairs.align")
def align(
    run: Run,
    pairs: Annotated[Path, typer.Argument(help="TSV file: source, tab, its translation.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write here instead of to stdout.")
    ] = None,
    layer: Annotated[
        int | None, typer.Option("--layer", help="Only this decoder layer, from 1. Default: all.")
    ] = None,
    head: Annotated[
        int | None, typer.Option("--head", help="Only this head, from 1. Default: all.")
    ] = None,
    units: Annotated[
        bool, typer.Option("--units", help="Also the words that are numbered, as two columns.")
    ] = False,
):
    """Say which word of a translation belongs to which of its source, in Pharaoh format.

    A line for each pair: 0-0 1-2 ..., word of the source, then of the target, counted from 0.
    Words of Chinese are its characters; other words are what stands between spaces. All heads have
    a say, the more the better they align; the best is named.
    """
    folder = RunFolder(run)
    folder.require(folder.config_file, folder.weights_file)
    config = folder.config()
    check_output(output)
    from nmt.data.corpora import read_tsv
    from nmt.decoding.alignment import (
        align_words,
        attended,
        best_head,
        head_weights,
        mean_scores,
        pharaoh,
    )
    from nmt.decoding.engines import Located
    from nmt.progress import translation_progress

    # A layer or head that is not there shows now, not after the file.
    equal = [[1.0] * config.model.num_heads] * config.model.num_layers
    valid(head_weights, equal, layer, head)
    given = [(pair.source, pair.target) for pair in read_tsv(pairs)]
    if not given:
        raise ConfigError(f"{pairs}: no sentence pairs to align")
    translator = load(Located("tensorflow", folder.path))

    def each_pair():
        with translation_progress(len(given)) as show:
            for number, translation in enumerate(attended(translator, given), 1):
                yield translation
                show(number)

    # Twice through the file: attention of all of it at once would not fit into memory.
    scores = valid(mean_scores, each_pair())
    weights = head_weights(scores, layer, head)
    spaced = [
        not language.startswith("zh")
        for language in (config.data.source_language, config.data.target_language)
    ]
    aligned = 0
    with contextlib.ExitStack() as stack:
        file = sys.stdout
        if output is not None:
            temporary = stack.enter_context(replacing(output))
            file = stack.enter_context(open(temporary, "w", encoding="utf-8", newline="\n"))
        for translation in each_pair():
            alignment = align_words(translation, weights, *spaced)
            columns = [pharaoh(alignment.links)]
            if units:
                columns += map(" ".join, (alignment.source_units, alignment.target_units))
            print(*columns, sep="\t", file=file)
            aligned += bool(alignment.links)
    best = best_head(weights)
    how = "" if layer and head else "the heads together, each by its score; the best: "
    print(
        f"nmt: {len(given):,} pairs, {aligned:,} aligned, by {how}layer {best[0]}, "
        f"head {best[1]}, score {scores[best[0] - 1][best[1] - 1]:.2f}",
        file=sys.stderr,
    )


@app.command(epilog="Example: nmt film checkpoints/quickstart -o film.html --gif film.gif")
def film(
    run: Run,
    sentences: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SENTENCE]...", help="What to translate. Default: three of ours."),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Page to write, with a slider over the training.")
    ] = Path("film.html"),
    gif: Annotated[
        Path | None, typer.Option("--gif", help="Also write the first sentence's film as a GIF.")
    ] = None,
    font: Font = None,
):
    """Show how a run learned to align: sentences translated at each of its checkpoints.

    Only the newest checkpoints stay on disk; train with --set training.keep_checkpoints=50 for a
    longer film.
    """
    folder = RunFolder(run)
    folder.require(folder.config_file)
    language = folder.config().data.source_language[:2]
    check_output(output)
    from nmt.visualize.film import (
        SENTENCES,
        check_gif_path,
        describe,
        film_frames,
        film_page,
        write_gif,
    )
    from nmt.visualize.fonts import font_for

    if gif is not None:
        check_gif_path(gif)
        font_for([], font)
    chosen = sentences or SENTENCES.get(language)
    if not chosen:
        raise ConfigError("give at least one sentence to translate")
    import_tensorflow()
    frames = valid(
        film_frames,
        folder,
        chosen,
        lambda frame: print(
            f"nmt: {describe(frame)}   {frame.translations[0].text}", file=sys.stderr
        ),
    )
    write_text(output, film_page(frames))
    print(f"nmt: wrote {output}", file=sys.stderr)
    if gif is not None:
        write_gif(frames, gif, font=font)
        print(f"nmt: wrote {gif}", file=sys.stderr)
