"""Negotiating extensions (A2A 3.3.4, 4.6): the client names, the card knows, the answer says what is active."""

from typing import Any

import pytest

from app.handler import Agent, Turn
from app.protocol import AgentCapabilities, AgentExtension, Message, Owner, Part, Role, Task, TaskState, TaskStatus
from app.protocol.extensions import IDEMPOTENCY_EXTENSION_URI, RESUME_EXTENSION_URI
from app.settings import Settings
from app.store.base import NewTask
from app.store.memory import MemoryTaskStore
from tests.agents import CARD
from tests.conftest import Api
from tests.five_methods import FiveMethodStore
from tests.operations.bindings import invoke, on_both_bindings, served, total
from tests.requirements import requirement

ONE, TWO, ELSEWHERE = "urn:test:one", "urn:test:two/v2", "urn:test:elsewhere"


class Notes:
    """An agent that notes which extensions it was called with."""

    def __init__(self, *extensions: AgentExtension) -> None:
        self.seen: list[frozenset[str]] = []
        card = CARD.model_copy(update={"capabilities": AgentCapabilities(extensions=list(extensions))})
        self.agent = Agent(card=card, handle=self.handle, recovery="restart")

    async def handle(self, turn: Turn) -> None:
        self.seen.append(turn.extensions)
        if turn.text == "ask":
            await turn.require_input()


def optional() -> Notes:
    return Notes(AgentExtension(uri=ONE), AgentExtension(uri=TWO, required=False, params={"a": 1}))


def required() -> Notes:
    return Notes(AgentExtension(uri=ONE, required=True), AgentExtension(uri=TWO))


def activated(headers: Any) -> str | None:
    said: str | None = headers.get("a2a-extensions")
    return said


NAMED: list[tuple[str | None, list[str]]] = [
    (ONE, [ONE]),
    (f"{TWO},{ONE}", [ONE, TWO]),
    (f" {ELSEWHERE} , {TWO} ,, {TWO}", [TWO]),
    ("urn:test:two/v1", []),
    (ONE.upper(), []),
    (f"{IDEMPOTENCY_EXTENSION_URI}, {RESUME_EXTENSION_URI}", [IDEMPOTENCY_EXTENSION_URI, RESUME_EXTENSION_URI]),
    ("", []),
    (None, []),
]


@requirement("extensions.activated")
@on_both_bindings
@pytest.mark.parametrize("operation", ["SendMessage", "SendStreamingMessage"])
async def test_what_the_client_names_and_the_card_knows_is_active_for_handler_and_client(
    settings: Settings, binding: str, operation: str
) -> None:
    notes = optional()
    async with served(settings, notes.agent) as api:
        for named, active in NAMED:
            headers = {} if named is None else {"A2A-Extensions": named}
            outcome = await invoke(api, binding, operation, {"message": api.message("hello")}, **headers)
            assert not outcome.failed
            assert notes.seen.pop() == frozenset(active)
            assert activated(outcome.headers) == (", ".join(active) or None)


async def test_several_header_lines_are_one_list_and_the_query_stands_in_for_the_header(settings: Settings) -> None:
    async with served(settings, optional().agent) as api:
        lines = [("A2A-Extensions", TWO), ("A2A-Extensions", ONE), ("A2A-Version", "1.0")]
        assert activated((await api.http.get("/tasks", headers=lines)).headers) == f"{ONE}, {TWO}"
        assert activated((await api.get("/tasks", **{"A2A-Extensions": TWO})).headers) == TWO


@on_both_bindings
async def test_an_error_says_as_well_what_was_active(settings: Settings, binding: str) -> None:
    async with served(settings, optional().agent) as api:
        outcome = await invoke(api, binding, "GetTask", {"id": "nowhere"}, **{"A2A-Extensions": ONE})
        assert (outcome.reason, activated(outcome.headers)) == ("TASK_NOT_FOUND", ONE)


@on_both_bindings
async def test_each_turn_has_the_extensions_of_its_own_message(settings: Settings, binding: str) -> None:
    notes = optional()
    async with served(settings, notes.agent) as api:
        first = await invoke(
            api, binding, "SendMessage", {"message": api.message("ask")}, **{"A2A-Extensions": f"{ONE},{TWO}"}
        )
        message = api.message("go on", taskId=first.result["task"]["id"])
        await invoke(api, binding, "SendMessage", {"message": message}, **{"A2A-Extensions": TWO})
        assert notes.seen == [frozenset({ONE, TWO}), frozenset({TWO})]


OPERATIONS = ["SendMessage", "SendStreamingMessage", "GetTask", "ListTasks", "CancelTask", "SubscribeToTask"]


def params(api: Api, operation: str, task_id: str) -> dict[str, Any]:
    if operation.startswith("Send"):
        return {"message": api.message("hello")}
    return {} if operation == "ListTasks" else {"id": task_id}


@requirement("capability.extension")
@on_both_bindings
@pytest.mark.parametrize("operation", OPERATIONS)
async def test_what_the_card_requires_has_to_be_named(settings: Settings, binding: str, operation: str) -> None:
    notes = required()
    async with served(settings, notes.agent) as api:
        message = api.message("ask")
        waiting = await invoke(api, binding, "SendMessage", {"message": message}, **{"A2A-Extensions": ONE})
        task_id = waiting.result["task"]["id"]
        api.http.headers["A2A-Extensions"] = ONE
        assert await total(api) == 1
        for named in ("", TWO, ELSEWHERE, f"{ONE}/v2"):
            api.http.headers["A2A-Extensions"] = named
            refused = await invoke(api, binding, operation, params(api, operation, task_id))
            assert refused.reason == "EXTENSION_SUPPORT_REQUIRED"
            assert refused.details[0]["metadata"] == {"requiredExtensions": ONE}
            assert (refused.code or refused.status) in {-32008, 400}
        api.http.headers["A2A-Extensions"] = ONE
        assert (await total(api), len(notes.seen)) == (1, 1)
        if operation != "SubscribeToTask":
            assert not (await invoke(api, binding, operation, params(api, operation, task_id))).failed


@pytest.mark.parametrize("path", ["/tasks/{id}/events", "/tasks/{id}:subscribe"])
async def test_what_only_rest_has_asks_for_it_too(settings: Settings, path: str) -> None:
    async with served(settings, required().agent) as api:
        refused = await api.get(path.format(id="t"))
        assert refused.json()["error"]["details"][0]["reason"] == "EXTENSION_SUPPORT_REQUIRED"
        named = await api.get(path.format(id="t"), **{"A2A-Extensions": ONE})
        assert named.json()["error"]["details"][0]["reason"] == "TASK_NOT_FOUND"


@on_both_bindings
async def test_who_asks_for_a_card_need_not_know_its_extensions(settings: Settings, binding: str) -> None:
    async with served(settings, required().agent) as api:
        card = (await api.get("/.well-known/agent-card.json")).json()
        assert {"uri": ONE, "required": True} in card["capabilities"]["extensions"]
        assert (await invoke(api, binding, "GetExtendedAgentCard", {})).reason == "UNSUPPORTED_OPERATION"
        assert (await api.get("/readyz")).status_code == 200


async def test_an_agent_may_require_an_extension_of_the_server_where_the_store_has_it(settings: Settings) -> None:
    notes = Notes(AgentExtension(uri=IDEMPOTENCY_EXTENSION_URI, description="Always.", required=True))
    async with served(settings, notes.agent) as api:
        card = (await api.get("/.well-known/agent-card.json")).json()
        found = [one for one in card["capabilities"]["extensions"] if one["uri"] == IDEMPOTENCY_EXTENSION_URI]
        assert found == [{"uri": IDEMPOTENCY_EXTENSION_URI, "description": "Always.", "required": True}]
        assert (await api.get("/tasks")).status_code == 400
        assert (await api.get("/tasks", **{"A2A-Extensions": IDEMPOTENCY_EXTENSION_URI})).status_code == 200
    async with served(settings, notes.agent, FiveMethodStore()) as api:
        card = (await api.get("/.well-known/agent-card.json")).json()
        assert card["capabilities"].get("extensions", []) == []
        assert (await api.get("/tasks")).status_code == 200


async def test_a_turn_that_runs_again_has_the_extensions_that_its_message_names(settings: Settings) -> None:
    notes, store = optional(), MemoryTaskStore()
    message = Message(message_id="m", role=Role.USER, parts=[Part(text="go")], extensions=[TWO, ELSEWHERE])
    task = Task(id="t", context_id="c", status=TaskStatus(state=TaskState.SUBMITTED), history=[message])
    await store.for_owner(Owner()).create_task(NewTask(task))
    async with served(settings, notes.agent, store) as api:
        await api.wait_for("t", "TASK_STATE_COMPLETED")
    assert notes.seen == [frozenset({TWO})]
