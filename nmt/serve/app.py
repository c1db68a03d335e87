"""The web application: routes, and one shape for every error.

POST /translate      own fields (text ...) or those of LibreTranslate (q ...); see openapi.py
POST /detect         as LibreTranslate's clients expect it, by script only
GET  /languages      likewise
GET  /healthz        what is served, its limits, how many requests wait
GET  /openapi.json   the description of all this
GET  /               the page
GET  /font           a font with Chinese characters, for browsers that have none
"""

import asyncio
import contextlib
import json
from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from nmt import __version__
from nmt.decoding.documents import Engine
from nmt.decoding.translation import Document
from nmt.serve.answers import libre_answer, own_answer
from nmt.serve.batcher import Batcher, ClosedError, QueueFullError
from nmt.serve.guard import Guard
from nmt.serve.limits import ATTENTION_CHARACTERS, DEFAULT_LIMITS, LARGEST_BEAM, Limits
from nmt.serve.openapi import openapi
from nmt.serve.page import load_page, web_font
from nmt.serve.served import Served
from nmt.serve.wanted import BadRequestError, Wanted, parse_fields, parse_texts, parse_translate

# Whoever sends a body more slowly than this has lost the connection, or wants to hold it.
BODY_SECONDS = 30.0

# By which a busy server has most likely worked off its queue in part.
RETRY_SECONDS = 1


def create_app(
    engine: Engine,
    served: Served,
    limits: Limits = DEFAULT_LIMITS,
    *,
    allowed_hosts: Sequence[str] = ("*",),
    cors_origins: Sequence[str] = (),
) -> Starlette:
    """Return the application; its batcher is at `app.state.batcher`, and closes with it.

    Args:
      engine: what translates; used from one thread only.
      served: what to say about it.
      limits: what is refused.
      allowed_hosts: names in the Host header that are answered; "*": any.
      cors_origins: other sites whose pages may use this server from a browser.
    """
    page = load_page()
    batcher = Batcher(engine, limits.queue)

    async def translate(request: Request) -> Response:
        fields = await _fields(request, limits)
        wanted = parse_translate(fields, limits, served)
        documents = await _documents(request, batcher, wanted, served)

        def render():
            # Attention is a lot of numbers: not on the thread that all connections wait for.
            if wanted.is_libre:
                return _json(libre_answer(documents, wanted, served))
            return _json(own_answer(documents, wanted))

        return Response(await run_in_threadpool(render), media_type="application/json")

    async def detect(request: Request) -> Response:
        texts, _ = parse_texts(await _fields(request, limits), "q", limits)
        return JSONResponse([served.detect("\n".join(texts))])

    async def languages(request: Request) -> Response:
        return JSONResponse(served.languages())

    async def healthz(request: Request) -> Response:
        ready = batcher.is_alive
        about = {
            "status": "ok" if ready else "the translating thread has ended",
            "ready": ready,
            "version": __version__,
            "model": served.name,
            "engine": served.engine,
            "source": served.source_language,
            "target": served.target_language,
            "attention": served.gives_attention,
            "limits": {
                "characters": limits.characters,
                "texts": limits.texts,
                "body_bytes": limits.body_bytes,
                "attention_characters": ATTENTION_CHARACTERS,
                "beam": LARGEST_BEAM,
                "queue": limits.queue,
            },
            "waiting": batcher.waiting,
        }
        return JSONResponse(about, 200 if ready else 503)

    async def description(request: Request) -> Response:
        return JSONResponse(openapi(limits, served))

    async def root(request: Request) -> Response:
        return HTMLResponse(page.html, headers={"Content-Security-Policy": page.policy})

    async def font(request: Request) -> Response:
        data = await run_in_threadpool(web_font)
        if data is None:
            raise HTTPException(404, "there is no font; the package noto-cjk-sans-otc is missing")
        return Response(
            data, media_type="font/otf", headers={"Cache-Control": "public, max-age=2592000"}
        )

    @contextlib.asynccontextmanager
    async def lifespan(app):
        yield
        await run_in_threadpool(batcher.close)

    middleware = [Middleware(Guard, allowed_hosts=allowed_hosts)]
    if cors_origins:
        middleware.append(
            Middleware(
                CORSMiddleware,
                allow_origins=cors_origins,
                allow_methods=["GET", "POST"],
                allow_headers=["Content-Type"],
            )
        )
    app = Starlette(
        routes=[
            Route("/translate", translate, methods=["POST"]),
            Route("/detect", detect, methods=["POST"]),
            Route("/languages", languages),
            Route("/healthz", healthz),
            Route("/openapi.json", description),
            Route("/", root),
            Route("/font", font),
        ],
        middleware=middleware,
        exception_handlers={
            BadRequestError: _bad_request,
            HTTPException: _http_error,
            Exception: _unforeseen,
        },
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    app.state.batcher = batcher
    return app


async def _fields(request, limits):
    """Return the fields of a body, which is never read further than the limit."""
    limit = limits.body_bytes
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise HTTPException(413, f"the body may have at most {limit} bytes; received {declared}")
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise HTTPException(
                        413, f"the body may have at most {limit} bytes; received more"
                    )
    except TimeoutError:
        # The rest may still come, and would be taken for the next request.
        raise HTTPException(
            408, f"the body must arrive within {BODY_SECONDS:.0f} s", {"Connection": "close"}
        ) from None
    except ClientDisconnect:
        raise HTTPException(400, "the connection was closed before the body was complete") from None
    return parse_fields(request.headers.get("content-type", ""), bytes(body))


async def _documents(request, batcher, wanted: Wanted, served) -> list[Document]:
    """Return the translations, in the order of the texts."""
    documents = [
        # Language "auto": what is in the target language already stays as it is.
        Document(text, text)
        if wanted.detects and served.detect(text)["language"] == served.target_language
        else None
        for text in wanted.texts
    ]
    rest = [text for text, known in zip(wanted.texts, documents, strict=True) if known is None]
    translated = iter(await _translated(request, batcher, rest, wanted) if rest else [])
    return [document or next(translated) for document in documents]


async def _translated(request, batcher, texts, wanted):
    """Return what the batcher makes of `texts`; drop it if the client does not wait for it."""
    try:
        future = asyncio.wrap_future(batcher.submit(texts, wanted.options, wanted.attention))
    except QueueFullError as error:
        raise HTTPException(
            429, f"the server is busy: {error}; try again", {"Retry-After": str(RETRY_SECONDS)}
        ) from None
    except ClosedError as error:
        raise HTTPException(503, str(error)) from None
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({future, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not future.done():
            raise HTTPException(400, "the client has gone")  # which nobody reads
        return future.result()
    except HTTPException:
        raise
    except Exception:  # noqa: BLE001  the batcher has logged it; what it says is not for clients
        raise HTTPException(500, "the translation failed; the server's log says why") from None
    finally:
        future.cancel()
        gone.cancel()


async def _disconnected(request):
    """Return when the client has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _json(value):
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


async def _bad_request(request, error):
    return JSONResponse({"error": str(error)}, 400)


async def _http_error(request, error):
    return JSONResponse({"error": error.detail}, error.status_code, headers=error.headers)


async def _unforeseen(request, error):
    return JSONResponse({"error": "the server failed; its log says why"}, 500)
