"""One call for both bindings, so that a promise is asked of each with the same words."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
import pytest

from app.bootstrap import build_app
from app.handler import Agent
from app.settings import Settings
from app.store.base import TaskStore
from tests.agents import Script
from tests.asgi import serving
from tests.conftest import Api, read_events

REST: Final = "HTTP+JSON"
JSONRPC: Final = "JSONRPC"
on_both_bindings = pytest.mark.parametrize("binding", [REST, JSONRPC])


@dataclass
class Outcome:
    """What an operation answered, in the words that the bindings share."""

    status: int
    """Of HTTP."""
    headers: httpx.Headers
    result: Any = None
    """The answer; of a stream its events."""
    code: int | None = None
    """JSON-RPC's; over REST it stays unset."""
    message: str = ""
    details: list[dict[str, Any]] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        return bool(self.details)

    @property
    def reason(self) -> str | None:
        return self.details[0].get("reason") if self.details else None

    @property
    def fields(self) -> list[str]:
        return [violation["field"] for detail in self.details for violation in detail.get("fieldViolations", [])]


REST_PATHS: Final = {
    "SendMessage": ("POST", "/message:send", "json"),
    "SendStreamingMessage": ("POST", "/message:stream", "json"),
    "GetTask": ("GET", "/tasks/{id}", "params"),
    "ListTasks": ("GET", "/tasks", "params"),
    "CancelTask": ("POST", "/tasks/{id}:cancel", "json"),
    "SubscribeToTask": ("POST", "/tasks/{id}:subscribe", "params"),
    "GetExtendedAgentCard": ("GET", "/extendedAgentCard", "params"),
}
"""Method, path, and where over REST the parameters go that are not in the path."""


def request(binding: str, operation: str, params: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """Method, path and options of an httpx request."""
    if binding == JSONRPC:
        return "POST", "/rpc", {"json": {"jsonrpc": "2.0", "id": 1, "method": operation, "params": params}}
    method, path, place = REST_PATHS[operation]
    rest = {name: value for name, value in params.items() if name != "id"}
    return method, path.format(**params), {place: rest}


async def invoke(api: Api, binding: str, operation: str, params: dict[str, Any], **headers: str) -> Outcome:
    """Call an operation; a stream is read to its end."""
    method, path, options = request(binding, operation, params)
    async with api.http.stream(method, api.path(path), headers=headers, **options) as response:
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            return Outcome(
                response.status_code, response.headers, [event.data async for event in read_events(response)]
            )
        await response.aread()
    body = response.json() if response.content else {}
    if "error" not in body:
        result = body.get("result") if binding == JSONRPC else body
        return Outcome(response.status_code, response.headers, result)
    error = body["error"]
    details = error["data"] if binding == JSONRPC else error["details"]
    code = error["code"] if binding == JSONRPC else None
    return Outcome(response.status_code, response.headers, code=code, message=error["message"], details=details)


@asynccontextmanager
async def served(
    settings: Settings, agent: Agent | None = None, store: TaskStore | None = None, **changes: Any
) -> AsyncIterator[Api]:
    """A server whose settings differ from the test's in these."""
    script = Script()
    app = build_app(settings.model_copy(update=changes), agent=agent or script.agent(), store=store)
    async with serving(app) as http:
        try:
            yield Api(http, script)
        finally:
            for gate in list(script.gates.values()):
                gate.set()


async def total(api: Api) -> int:
    """How many tasks there are."""
    size: int = (await api.get("/tasks")).json()["totalSize"]
    return size
