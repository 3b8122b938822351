"""What a card does not offer is refused before anything is looked up; what it need not know is ignored (A2A 3.3.4)."""

from collections.abc import AsyncIterator

import pytest

from app.bootstrap import build_app
from app.handler import Agent
from app.protocol import AgentCapabilities
from app.protocol.extensions import RESUME_EXTENSION_URI
from app.settings import Settings
from tests.agents import CARD, Script
from tests.asgi import serving
from tests.conftest import Api
from tests.operations.conftest import on_both_bindings
from tests.requirements import requirement

pytestmark = on_both_bindings


@pytest.fixture
async def silent(script: Script, settings: Settings, binding: str) -> AsyncIterator[Api]:
    """A server whose agent file says that it does not stream."""
    card = CARD.model_copy(update={"capabilities": AgentCapabilities(streaming=False)})
    async with serving(build_app(settings, agent=Agent(card=card, handle=script.handle)), binding=binding) as http:
        yield Api(http, script)


@requirement("capability.streaming")
async def test_an_agent_that_does_not_stream_refuses_streams(silent: Api) -> None:
    card = (await silent.get("/.well-known/agent-card.json")).json()
    assert card["capabilities"]["streaming"] is False
    assert RESUME_EXTENSION_URI not in str(card)
    for path, body in (
        ("/message:stream", {"message": silent.message("x")}),
        ("/message:stream", {"message": silent.message("x", taskId="nowhere")}),
        ("/tasks/nowhere:subscribe", None),
    ):
        response = await silent.post(path, body)
        assert response.status_code == 400
        assert response.json()["error"]["details"][0]["reason"] == "UNSUPPORTED_OPERATION"
    assert silent.script.runs == 0
    assert (await silent.send("hello"))["status"]["state"] == "TASK_STATE_COMPLETED"


@requirement("extensions.unknown")
async def test_an_extension_that_nobody_knows_is_ignored(api: Api) -> None:
    other_version = RESUME_EXTENSION_URI.replace("v1", "v9")
    headers = {"A2A-Extensions": f"urn:nobody:knows, {other_version}"}
    response = await api.post("/message:send", {"message": api.message("hello")}, headers=headers)
    assert "a2a-extensions" not in response.headers
    assert response.json()["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


@requirement("parameters.case")
@pytest.mark.parametrize("name", ["A2A-Version", "a2a-version", "A2A-VERSION"])
async def test_service_parameters_are_read_in_any_case(api: Api, name: str) -> None:
    del api.http.headers["A2A-Version"]
    assert (await api.http.get("/tasks", headers={name: "1.0"})).status_code == 200
