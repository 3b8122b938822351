"""What every test may ask for."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from app.bootstrap import build_app
from app.settings import Settings
from app.telemetry import configure_logging
from tests.agents import Script
from tests.asgi import TIMEOUT, serving
from tests.postgres import SERVER_URL_VARIABLE, create_template, database, postgres_server

configure_logging("warning", "console")


@dataclass
class Event:
    """A frame of a stream."""

    id: str | None
    event: str | None
    data: dict[str, Any]

    @property
    def kind(self) -> str:
        return next(iter(self.data))

    @property
    def state(self) -> str | None:
        member = self.data[self.kind]
        return member["status"]["state"] if "status" in member else None


@dataclass
class Api:
    """Speaks A2A to the server under test, as raw JSON."""

    http: httpx.AsyncClient
    script: Script
    tenant: str = ""
    sent: int = field(default=0)

    def path(self, path: str) -> str:
        return f"/{self.tenant}{path}" if self.tenant else path

    def message(self, text: str, **members: Any) -> dict[str, Any]:
        self.sent += 1
        return {"messageId": f"m-{self.sent}", "role": "ROLE_USER", "parts": [{"text": text}], **members}

    async def post(self, path: str, body: Any = None, **options: Any) -> httpx.Response:
        return (
            await self.http.post(self.path(path), json=body, **options)
            if body is not None
            else (await self.http.post(self.path(path), **options))
        )

    async def get(self, path: str, **query: Any) -> httpx.Response:
        return await self.http.get(self.path(path), params=query)

    async def send(self, text: str, configuration: Any = None, **members: Any) -> dict[str, Any]:
        body: dict[str, Any] = {"message": self.message(text, **members)}
        if configuration is not None:
            body["configuration"] = configuration
        response = await self.post("/message:send", body)
        assert response.status_code == 200, response.text
        task: dict[str, Any] = response.json()["task"]
        return task

    async def task(self, task_id: str, **query: Any) -> dict[str, Any]:
        response = await self.get(f"/tasks/{task_id}", **query)
        assert response.status_code == 200, response.text
        task: dict[str, Any] = response.json()
        return task

    async def start(self, text: str, **members: Any) -> str:
        """A task that is left running."""
        task_id: str = (await self.send(text, {"returnImmediately": True}, **members))["id"]
        return task_id

    async def held(self, gate: str) -> str:
        """A task whose handler waits at a gate."""
        task_id = await self.start(f"hold {gate}")
        await self.script.reached[gate].wait()
        return task_id

    async def wait_for(self, task_id: str, state: str) -> dict[str, Any]:
        """The task, when it is in a state."""
        async with asyncio.timeout(TIMEOUT):
            while (task := await self.task(task_id))["status"]["state"] != state:  # noqa: ASYNC110 - seen from outside
                await asyncio.sleep(0)
        return task

    async def stream(self, path: str, body: Any = None, method: str = "POST", **options: Any) -> list[Event]:
        """All events of a stream that ends."""
        return [event async for event in self.events(path, body, method, **options)]

    async def events(self, path: str, body: Any = None, method: str = "POST", **options: Any) -> AsyncIterator[Event]:
        if body is not None:
            options["json"] = body
        async with self.http.stream(method, self.path(path), **options) as response:
            if response.status_code != 200:
                await response.aread()
            assert response.status_code == 200, response.text
            assert response.headers["content-type"].startswith("text/event-stream")
            async for event in read_events(response):
                yield event

    async def stream_of(self, text: str, **members: Any) -> list[Event]:
        return await self.stream("/message:stream", {"message": self.message(text, **members)})


async def read_events(response: httpx.Response) -> AsyncIterator[Event]:
    """Frames, split at blank lines and at LF only, as the standard says."""
    buffer = b""
    async for chunk in response.aiter_bytes():
        buffer += chunk
        while b"\n\n" in buffer:
            frame, buffer = buffer.split(b"\n\n", 1)
            fields: dict[str, str] = {}
            for line in frame.split(b"\n"):
                if line and not line.startswith(b":"):
                    name, _, value = line.decode().partition(":")
                    assert name not in fields, f"{name} twice in one frame"
                    fields[name] = value.removeprefix(" ")
            if "data" in fields:
                yield Event(fields.get("id"), fields.get("event"), json.loads(fields["data"]))


@pytest.fixture(scope="session")
def postgres_server_url() -> Iterator[str]:
    """A PostgreSQL server, for the whole run."""
    given = os.environ.get(SERVER_URL_VARIABLE)
    if given:
        yield given
        return
    with postgres_server() as server:
        yield server.url


@pytest.fixture(scope="session")
def postgres_template(postgres_server_url: str) -> str:
    """A migrated database to clone."""
    return asyncio.run(create_template(postgres_server_url))


@pytest.fixture
async def postgres_url(postgres_server_url: str, postgres_template: str) -> AsyncIterator[str]:
    """A migrated database of the test's own."""
    async with database(postgres_server_url, postgres_template) as url:
        yield url


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def store_url() -> str:
    """Where the server under test keeps its tasks; `on_every_store` makes it all three in turn."""
    return "memory://"


@pytest.fixture
def settings(store_url: str) -> Settings:
    return Settings(
        _env_file=None, store_url=store_url, cancel_grace=0.05, busy_wait=0.2, shutdown_grace=0.05, lease_ttl=15.0
    )


@pytest.fixture
def binding() -> str:
    """What the test's requests are sent over; `on_both_bindings` and `everywhere` make it both in turn."""
    return "HTTP+JSON"


@pytest.fixture
async def api(script: Script, settings: Settings, binding: str) -> AsyncIterator[Api]:
    async with serving(build_app(settings, agent=script.agent()), binding=binding) as http:
        yield Api(http, script)
        for gate in list(script.gates.values()):
            gate.set()
