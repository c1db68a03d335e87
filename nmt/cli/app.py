"""What all commands share: the application, options that several of them take, errors."""

import os
import platform
import sys
from pathlib import Path
from typing import Annotated

import typer

from nmt import __version__
from nmt.config import ConfigError
from nmt.decoding.options import LARGEST_BEAM
from nmt.run_folder import check_writable

app = typer.Typer(
    help="Train a Transformer that translates English to Chinese, and look inside it.",
    epilog="Start with: nmt quickstart",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)

Run = Annotated[
    Path, typer.Argument(metavar="RUN", help="Run folder, such as checkpoints/quickstart.")
]
Beam = Annotated[
    int,
    typer.Option(
        "--beam", help=f"Hypotheses kept side by side, 1 to {LARGEST_BEAM}. Default: 1, greedy."
    ),
]
Font = Annotated[
    Path | None, typer.Option("--font", help="Font file for the labels; found by itself otherwise.")
]


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
):
    if version:
        print(f"nmt {__version__}")
        raise typer.Exit()


def fail(message, code):
    """Print the message, without traceback, and exit."""
    print(f"nmt: {message}", file=sys.stderr)
    sys.exit(code)


def import_tensorflow(for_training=False):
    """Import TensorFlow, the slow part of every start, and without the notices of its C++ side.

    Errors are exceptions all the same. Where TF_CPP_MIN_LOG_LEVEL is set, the notices are shown.
    """
    if for_training and platform.machine() in ("x86_64", "AMD64"):
        # Without AVX-512, TensorFlow leaves oneDNN's products off; yet training steps are 1.1 to
        # 1.4 times as fast with them (bench/README.md). Translating was not measured with them.
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    # Keras would import matplotlib, a fifth of the time, for galleries of images; None says that
    # there is none. Afterwards it can be imported.
    is_hidden = sys.modules.setdefault("matplotlib", None) is None
    try:
        if "TF_CPP_MIN_LOG_LEVEL" in os.environ:
            import tensorflow
        else:
            tensorflow = _import_tensorflow_quietly()
    finally:
        if is_hidden:
            del sys.modules["matplotlib"]
    # It takes a second of each training graph, and no step is faster for it (bench/README.md).
    tensorflow.config.optimizer.set_experimental_options({"constant_folding": False})


def _import_tensorflow_quietly():
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    # The first few are printed before that variable is looked at.
    with open(os.devnull, "wb") as nowhere:
        standard_error = os.dup(2)
        os.dup2(nowhere.fileno(), 2)
        try:
            import tensorflow
        finally:
            os.dup2(standard_error, 2)
            os.close(standard_error)
    return tensorflow


def load(located, ensemble=()):
    """Return the engine that `locate_engine` found."""
    if located.engine == "tensorflow":
        import_tensorflow()
        from nmt.decoding.translator import load_translator

        return load_translator(located.folder, *ensemble)
    from nmt.decoding.engines import load_engine

    return load_engine(located.folder, located.engine)


def valid(function, *args, **kwargs):
    """Call `function`; what it says about the user's text becomes the message."""
    try:
        return function(*args, **kwargs)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def check_output(output):
    """Raise ConfigError unless the file `output` can be written; None is fine."""
    if output is not None:
        check_writable(output)
