"""What kinds of content an agent takes, and what its caller would like back (A2A 3.1.1, 3.2.2, 4.4.1, 4.4.5)."""

import base64
from typing import Any

import pytest

from app.handler import Agent, Turn, rehearse
from app.protocol import AgentSkill, Part
from app.protocol.media_types import MediaTypes, media_type_of
from app.settings import Settings
from tests.agents import CARD
from tests.operations.bindings import JSONRPC, REST, invoke, on_both_bindings, served, total
from tests.requirements import requirement

RAW = base64.b64encode(b"\x89PNG").decode()
TEXT = ["text/plain"]
SENDS = [(binding, operation) for binding in (REST, JSONRPC) for operation in ("SendMessage", "SendStreamingMessage")]


def agent(defaults: list[str], *of_skills: list[str]) -> Agent:
    async def handle(turn: Turn) -> None:
        await turn.complete(", ".join(turn.accepted_output_modes) or "anything")

    skills = [
        AgentSkill(id=f"s{number}", name="S", description="S.", input_modes=modes)
        for number, modes in enumerate(of_skills)
    ]
    return Agent(card=CARD.model_copy(update={"default_input_modes": defaults, "skills": skills}), handle=handle)


TAKEN: list[tuple[Agent, dict[str, Any]]] = [
    (agent(TEXT), {"text": "x"}),
    (agent(TEXT), {"text": "x", "mediaType": ""}),
    (agent(TEXT), {"text": "x", "mediaType": "Text/Plain; charset=utf-8"}),
    (agent(TEXT), {"raw": RAW, "mediaType": "text/plain"}),
    (agent(["text/plain;charset=utf-8"]), {"text": "x"}),
    (agent(TEXT, ["text/markdown"], ["application/json"]), {"text": "x", "mediaType": "text/markdown"}),
    (agent(TEXT, ["text/markdown"], ["application/json"]), {"data": {"a": 1}}),
    (agent(TEXT, ["text/markdown"], ["application/json"]), {"data": None}),
    (agent(TEXT, ["image/*"]), {"raw": RAW, "mediaType": "image/png"}),
    (agent(["*/*"]), {"url": "https://example.com/x", "mediaType": "video/mp4"}),
    # A part that provides no media type provides none that could be refused.
    (agent(TEXT), {"raw": RAW}),
    (agent(TEXT), {"url": "https://example.com/x"}),
]
REFUSED: list[tuple[Agent, dict[str, Any], str]] = [
    (agent(TEXT), {"data": {"a": 1}}, "application/json"),
    (agent(TEXT), {"data": None}, "application/json"),
    (agent(TEXT), {"raw": RAW, "mediaType": "image/png"}, "image/png"),
    (agent(TEXT), {"raw": RAW, "mediaType": "application/octet-stream"}, "application/octet-stream"),
    (agent(TEXT), {"url": "https://example.com/x", "mediaType": "video/mp4"}, "video/mp4"),
    (agent(TEXT), {"text": "x", "mediaType": "text/html"}, "text/html"),
    (agent(["application/json"]), {"text": "x"}, "text/plain"),
    (agent(["image/*"]), {"text": "x", "mediaType": "imagery/png"}, "imagery/png"),
    (agent(TEXT), {"text": "x", "mediaType": "nonsense"}, "nonsense"),
    (agent(TEXT), {"text": "x", "mediaType": "*/*"}, "*/*"),
]


@pytest.mark.parametrize(("taker", "part"), TAKEN)
async def test_a_part_of_an_input_mode_of_card_or_skill_is_taken(
    settings: Settings, taker: Agent, part: dict[str, Any]
) -> None:
    async with served(settings, taker) as api:
        for binding, operation in SENDS:
            assert not (await invoke(api, binding, operation, {"message": api.message("", parts=[part])})).failed


@requirement("send.media-type")
@pytest.mark.parametrize(("taker", "part", "named"), REFUSED)
async def test_a_part_of_another_media_type_is_refused_and_nothing_runs(
    settings: Settings, taker: Agent, part: dict[str, Any], named: str
) -> None:
    async with served(settings, taker) as api:
        for binding, operation in SENDS:
            message = api.message("", parts=[{"raw": RAW}, part])
            refused = await invoke(api, binding, operation, {"message": message})
            assert refused.reason == "CONTENT_TYPE_NOT_SUPPORTED"
            assert (refused.code or refused.status) in {-32005, 400}
            assert refused.message == f"message.parts[1]: {named!r} is not a media type that this agent takes."
            assert refused.details[0]["metadata"]["supportedMediaTypes"]
        assert await total(api) == 0


async def test_a_follow_up_is_held_to_the_same_and_the_task_stays_as_it_was(settings: Settings) -> None:
    async def handle(turn: Turn) -> None:
        await turn.require_input()

    async with served(settings, Agent(card=CARD.model_copy(update={"skills": []}), handle=handle)) as api:
        task = await api.send("ask")
        body = {"message": api.message("", taskId=task["id"], parts=[{"data": 1}])}
        assert (await api.post("/message:send", body)).status_code == 400
        assert await api.task(task["id"]) == task


@on_both_bindings
async def test_an_agent_hears_what_its_caller_would_like_back(settings: Settings, binding: str) -> None:
    async with served(settings, agent(TEXT)) as api:
        for modes, heard in (([], "anything"), (["image/png", "text/html"], "image/png, text/html")):
            sent = {"message": api.message("x"), "configuration": {"acceptedOutputModes": modes}}
            task = (await invoke(api, binding, "SendMessage", sent)).result["task"]
            assert task["status"]["message"]["parts"] == [{"text": heard}]
            assert task["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_a_rehearsal_can_say_what_is_asked_for() -> None:
    handle = agent(TEXT).handle
    task = await rehearse(handle, "x", accepted_output_modes=["text/html"])
    assert task.status.message is not None
    assert task.status.message.parts == [Part(text="text/html")]


def test_a_set_of_media_types_says_what_is_in_it() -> None:
    assert str(MediaTypes(["text/plain", "image/*", "TEXT/plain"])) == "image/*, text/plain"
    assert "text/plain" not in MediaTypes([])
    assert media_type_of(Part(raw=b"")) is None
