"""The entry point: all commands, and what becomes of a user's mistake."""

import logging
import os
import sys

from nmt.cli import (  # noqa: F401  they bring the commands
    exporting,
    looking,
    serving,
    training,
    translating,
)
from nmt.cli.app import app, fail
from nmt.config import ConfigError


def main():
    """Run the command line; a user's mistake is one line and exit code 2, never a traceback."""
    # Whatever the locale says: Chinese must come out, and come out right.
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    log = logging.getLogger("nmt")
    log.addHandler(handler := logging.StreamHandler(sys.stderr))
    handler.setFormatter(logging.Formatter("nmt: %(message)s"))
    log.setLevel(logging.INFO)
    log.propagate = False  # the root logger's handlers are other libraries'
    # What TFDS warns of on the way is no news to a user; its errors are exceptions.
    for name in ("absl", "urllib3"):
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        app(prog_name="nmt")
    except ConfigError as error:
        fail(error, 2)
    except BrokenPipeError:
        # Whoever reads the output, `head` for one, has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        fail(error, 1)
    except KeyboardInterrupt:
        fail("interrupted", 130)
