"""The OpenAPI document against the server: generated requests, good and bad, meet only what the document says."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from schemathesis import checks
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi import checks as openapi_checks

from app.bootstrap import build_app
from app.settings import Settings
from tests.agents import Script
from tests.asgi import TIMEOUT, serving

CHECKS = [
    checks.not_a_server_error,
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_headers_conformance,
    openapi_checks.response_schema_conformance,
]


class Served:
    """The application on a loop of its own, for tests that are not coroutines."""

    def __init__(self) -> None:
        script = Script()
        settings = Settings(
            _env_file=None, store_url="memory://", shutdown_grace=0.05, busy_wait=0.05, cancel_wait=0.05
        )
        self.app = build_app(settings, agent=script.agent())
        self.known: list[str] = []
        """Tasks that exist: one that has ended, one that waits."""
        self._stop = asyncio.Event()
        self._ready: concurrent.futures.Future[asyncio.AbstractEventLoop] = concurrent.futures.Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        self._loop = self._ready.result(TIMEOUT * 4)

    async def _serve(self) -> None:
        async with serving(self.app) as self._http:
            for text in ("hello", "ask"):
                message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}
                answer = await self._http.post("/message:send", json={"message": message})
                self.known.append(answer.json()["task"]["id"])
            self._ready.set_result(asyncio.get_running_loop())
            await self._stop.wait()

    def request(self, **request: Any) -> httpx.Response:
        """The response; of a stream its beginning."""
        return asyncio.run_coroutine_threadsafe(self._request(**request), self._loop).result(TIMEOUT * 4)

    async def _request(self, method: str, url: str, **options: Any) -> httpx.Response:
        if isinstance(options.get("data"), bytes):
            options["content"] = options.pop("data")
        request = httpx.Request(method, url, **options)
        response = await self._http.send(request, stream=True)
        try:
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                async for chunk in response.aiter_raw():
                    content = chunk
                    break
            else:
                content = await response.aread()
        finally:
            await response.aclose()
        read = httpx.Response(response.status_code, headers=response.headers, content=content, request=request)
        read.elapsed = response.elapsed
        return read

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(TIMEOUT * 4)


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    served = Served()
    yield served
    served.close()


def operations(server: Served) -> list[APIOperation[Any, Any, Any, Any]]:
    schema = schemathesis.openapi.from_dict(server.app.openapi())
    return [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]


def lead_further(case: schemathesis.Case[Any], task_id: str) -> None:
    """Make a request likelier to be accepted, where it is one for the document; chance alone seldom gets so far."""
    if "id" in case.path_parameters:
        case.path_parameters["id"] = task_id
    if case.meta is None or case.meta.generation.mode is GenerationMode.NEGATIVE:
        return
    case.query.pop("pageToken", None)
    if isinstance(case.body, dict) and isinstance(message := case.body.get("message"), dict):
        message |= {"role": "ROLE_USER", "parts": [{"text": "hello"}], "taskId": None}
        case.body.pop("configuration", None)
    if isinstance(case.body, dict) and "method" in case.body:
        case.body |= {"method": "GetTask", "params": {"id": task_id}}


def meet(server: Served, examples: int) -> None:
    """Send so many good and so many bad requests to each operation."""
    for operation in operations(server):
        takes_something = bool(operation.body) or any(True for _ in operation.iter_parameters())
        for mode in (
            (GenerationMode.POSITIVE, GenerationMode.NEGATIVE) if takes_something else (GenerationMode.POSITIVE,)
        ):

            @seed(1)
            @hypothesis_settings(
                max_examples=examples,
                deadline=None,
                database=None,
                phases=[Phase.explicit, Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy(generation_mode=mode), number=st.integers(0, 2))
            def answers_as_documented(case: schemathesis.Case[Any], number: int) -> None:
                if number < len(server.known):
                    lead_further(case, server.known[number])
                request = case.as_transport_kwargs(base_url="http://agent.test")
                case.validate_response(server.request(**request), checks=CHECKS)

            answers_as_documented()


def test_generated_requests_meet_what_the_document_says(server: Served) -> None:
    meet(server, 4)


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_many_generated_requests_meet_what_the_document_says(server: Served) -> None:
    meet(server, 100)
