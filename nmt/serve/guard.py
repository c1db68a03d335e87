"""What surrounds every answer: headers that tell browsers to be strict, and known hosts only."""

import urllib.parse
from collections.abc import Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",  # the address of the page may hold a text
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    # For all that is not the page, which says its own.
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


class Guard:
    """Adds the headers, and refuses requests that were sent to a name that is not ours.

    A page on the web can make its own name point to 127.0.0.1 (DNS rebinding) and would then be
    of the same origin as a server on this machine; its name in the Host header gives it away.
    """

    def __init__(self, app: ASGIApp, allowed_hosts: Sequence[str]):
        self.app = app
        self.allowed_hosts = {host.lower() for host in allowed_hosts}  # "*": any

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        app = self.app
        host = _host_name(Headers(scope=scope).get("host", ""))
        if "*" not in self.allowed_hosts and host not in self.allowed_hosts:
            known = ", ".join(sorted(self.allowed_hosts))
            message = f"this server is called {known}; the request was for {host!r}"
            app = JSONResponse({"error": f"{message}; see --allowed-host"}, 400)
        await app(scope, receive, send_guarded)


def _host_name(host):
    """Return the name or address in a Host header, without port and brackets; "" if malformed."""
    try:
        return urllib.parse.urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
