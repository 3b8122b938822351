"""The FastAPI application: routes, errors, documents."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api import errors, jsonrpc, ops, rest, rest_push, well_known
from app.api.deps import Services, State
from app.api.extensions import SaysActivatedExtensions
from app.api.openapi import DescribedFastAPI

DESCRIPTION = """An A2A v1.0 agent. Every path below is also served under `/{tenant}`.

Streams carry `id:` and resume after `Last-Event-ID`; sends that carry an idempotency key may be retried.
"""


def create_app(
    start: Callable[[], AbstractAsyncContextManager[Services]], *, title: str, version: str, docs: bool
) -> FastAPI:
    """An application whose lifespan is that of the services `start` gives."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[State]:
        async with start() as services:
            yield State(services=services)

    app = DescribedFastAPI(
        title=title,
        version=version,
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url="/docs" if docs else None,
        redoc_url="/redoc" if docs else None,
        openapi_url="/openapi.json" if docs else None,
        redirect_slashes=False,
    )
    app.include_router(rest.router)
    app.include_router(rest_push.router)
    app.include_router(jsonrpc.router)
    app.include_router(well_known.router)
    app.include_router(ops.router)
    for router in (jsonrpc.router, rest.router, rest_push.router):
        app.include_router(router, prefix="/{tenant}", include_in_schema=False)
    app.add_middleware(SaysActivatedExtensions)
    errors.install(app)
    return app


def with_state(app: ASGIApp, state: Mapping[str, Any]) -> ASGIApp:
    """The application with the state of a lifespan that somebody else runs."""

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"] = dict(state)
        await app(scope, receive, send)

    return served
