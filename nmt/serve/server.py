"""From an application to a port that answers."""

import contextlib
import os
import signal
import socket
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

# At most so long does a stopping server finish what it has begun.
STOP_SECONDS = 30


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that is bound but does not listen yet; port 0: any free one.

    Raises:
      OSError: why this address cannot be had, in one line.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
        try:
            if os.name == "posix":  # elsewhere it would let two servers have the same port
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
    except (OSError, UnicodeError) as error:
        raise _explained(host, port, error) from None
    return bound


def url(host: str, bound: socket.socket) -> str:
    """Return the address of the page."""
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{bound.getsockname()[1]}/"


def serve(app: ASGIApp, bound: socket.socket, announce: Callable[[], object]) -> None:
    """Serve until SIGTERM or Ctrl-C; requests in flight are then answered.

    Args:
      app: the application.
      bound: see `bind`; closed in the end.
      announce: called once, as soon as requests are answered and signals obeyed.
    """

    class Server(uvicorn.Server):
        async def startup(self, sockets=None):
            await super().startup(sockets)
            announce()

    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,  # the address of the page may hold a text
        server_header=False,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    host, port = bound.getsockname()[:2]
    try:
        bound.listen(config.backlog)
    except OSError as error:
        raise _explained(host, port, error) from None
    with contextlib.closing(bound), _obeyed_signals():
        Server(config).run(sockets=[bound])


@contextlib.contextmanager
def _obeyed_signals():
    """Let a stop by signal be an end like any other.

    When it has stopped, uvicorn raises the signal once more for whoever handled it before.
    """
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(each, lambda *_: None) for each in signals]
    try:
        yield
    finally:
        for each, handler in zip(signals, before, strict=True):
            signal.signal(each, handler)


def _explained(host, port, error):
    reason = getattr(error, "strerror", None) or str(error)
    return OSError(f"cannot listen on {host} port {port}: {reason[0].lower()}{reason[1:]}")
