"""The command that keeps a model at hand: serve."""

import ipaddress
import os
import sys
from typing import Annotated, Literal

import typer

from nmt.cli.app import Run, app, fail, import_tensorflow
from nmt.run_folder import RunFolder
from nmt.serve.limits import Limits

# What the loopback address is called.
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


@app.command(epilog="Example: nmt serve checkpoints/quickstart, then open http://127.0.0.1:8000/")
def serve(
    run: Run,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; 0.0.0.0: all of this machine.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="0: any that is free.")
    ] = 8000,
    engine: Annotated[
        Literal["tensorflow", "ctranslate2", "ctranslate2-int8"] | None,
        typer.Option(
            "--engine",
            help="What computes; ctranslate2 is faster, but gives no attention. Default: "
            "tensorflow, or what an exported folder is made for.",
        ),
    ] = None,
    max_characters: Annotated[
        int, typer.Option("--max-characters", help="Most characters in a request.")
    ] = Limits.characters,
    max_texts: Annotated[
        int, typer.Option("--max-texts", help="Most texts in a request.")
    ] = Limits.texts,
    queue: Annotated[
        int, typer.Option("--queue", help="Most requests that wait; more are told to come again.")
    ] = Limits.queue,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option(
            "--cors-origin",
            help="Site whose pages may use this server, such as https://example.org; may be "
            "repeated. Default: none.",
        ),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allowed-host",
            help="Name by which this server is reached, such as that of a proxy; may be repeated. "
            "Default: this machine's own names, or any with a --host that others can reach.",
        ),
    ] = None,
    warm_up: Annotated[
        bool,
        typer.Option(
            "--warm-up/--no-warm-up",
            help="Also prepare for beams before the start, and make machine code for single "
            "sentences after it.",
        ),
    ] = True,
):
    """Offer a model to browsers and programs: a page, and a JSON interface."""
    from nmt.decoding.engines import locate_engine
    from nmt.serve import server

    limits = Limits(max_characters, max_texts, queue)
    located = locate_engine(run, engine)
    # Before the model is loaded: this may go wrong, and then at once.
    try:
        bound = server.bind(host, port)
    except OSError as error:
        fail(error, 1)
    is_local = ipaddress.ip_address(bound.getsockname()[0]).is_loopback
    if not is_local:
        print(
            f"nmt: whoever can reach this machine as {host} can use this server; it asks for no "
            f"password",
            file=sys.stderr,
        )
    print(f"nmt: loading {located.folder}", file=sys.stderr)
    loaded = _load(located, warm_up)
    from nmt.serve.app import create_app

    names = [*LOCAL_NAMES, host, *(allowed_host or [])]
    application = create_app(
        *(loaded, _served(run, located), limits),
        allowed_hosts=names if is_local or allowed_host else ["*"],
        cors_origins=cors_origin or [],
    )

    def announce():
        print(f"serving {run} at {server.url(host, bound)}", flush=True)
        print("nmt: Ctrl-C stops it", file=sys.stderr)
        if warm_up and located.engine == "tensorflow":
            loaded.searcher.compile_ahead()

    server.serve(application, bound, announce)
    print("nmt: stopped", file=sys.stderr, flush=True)
    # Not by `return`: a thread that is in TensorFlow, making machine code, cannot be ended, and
    # an interpreter that ends around it would wait for it or abort.
    os._exit(0)


def _load(located, warm_up):
    """Return the engine; it has translated once, as the first time of a kind takes seconds."""
    if located.engine == "tensorflow":
        import_tensorflow()
    from nmt.decoding.engines import load_engine
    from nmt.decoding.options import SearchOptions

    engine = load_engine(located.folder, located.engine)
    engine.translate(["Hello."])
    if warm_up and located.engine == "tensorflow":
        engine.translate(["Hello."], SearchOptions(beam=4, nbest=4), attention=True)  # the page's
    return engine


def _served(run, located):
    """Return what is to be said of the model."""
    from nmt.decoding.exported import is_exported, read_description
    from nmt.serve.served import Served

    known = read_description(run) if is_exported(run) else RunFolder(run).config().data
    return Served(
        *(run.resolve().name, located.engine),
        *(known.source_language, known.target_language, known.target_script),
        gives_attention=located.engine == "tensorflow",
    )
