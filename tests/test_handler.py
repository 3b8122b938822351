"""What an author meets: turns, artifacts, rehearsals."""

import asyncio

import pytest

from app.handler import FAILURE_TEXT, Turn, TurnEndedError, rehearse
from app.protocol import Artifact, Message, Owner, Part, Role, TaskState


async def test_pieces_of_a_streamed_artifact_are_appended_to_one_artifact() -> None:
    async def handle(turn: Turn) -> None:
        async with turn.artifact("answer", description="All of it.", metadata={"n": 1}) as out:
            await out.write("one ")
            await out.write("two ", Part(url="https://example.com/three"), last=True)

    (artifact,) = (await rehearse(handle, "go")).artifacts
    assert artifact == Artifact(
        artifact_id="answer",
        name="answer",
        description="All of it.",
        metadata={"n": 1},
        parts=[Part(text="one "), Part(text="two "), Part(url="https://example.com/three")],
    )


async def test_an_artifact_can_begin_with_content_and_go_on() -> None:
    async def handle(turn: Turn) -> None:
        async with turn.artifact("answer", "one ") as out:
            await out.write("two")

    assert [part.text for part in (await rehearse(handle, "go")).artifacts[0].parts] == ["one ", "two"]


async def test_an_artifact_nobody_wrote_to_does_not_exist() -> None:
    async def handle(turn: Turn) -> None:
        async with turn.artifact("answer"):
            pass

    assert (await rehearse(handle, "go")).artifacts == []


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
async def test_text_that_no_store_can_hold_is_refused_at_the_write(text: str) -> None:
    seen: list[type[Exception]] = []

    async def handle(turn: Turn) -> None:
        try:
            await turn.artifact("answer", text)
        except ValueError as error:
            seen.append(type(error))
            await turn.artifact("answer", "instead")

    task = await rehearse(handle, "go")
    assert len(seen) == 1
    assert [part.text for artifact in task.artifacts for part in artifact.parts] == ["instead"]
    assert task.status.state is TaskState.COMPLETED


async def test_writing_nothing_is_an_error_of_the_author() -> None:
    async def handle(turn: Turn) -> None:
        with pytest.raises(ValueError, match="at least one part"):
            await turn.artifact("answer").write()

    assert (await rehearse(handle, "go")).status.state is TaskState.COMPLETED


async def test_nothing_can_be_said_after_the_end() -> None:
    async def handle(turn: Turn) -> None:
        await turn.complete("done")
        with pytest.raises(TurnEndedError):
            await turn.artifact("late", "late")
        await turn.working("late too")

    task = await rehearse(handle, "go")
    assert task.status.state is TaskState.COMPLETED
    assert task.status.message is not None
    assert task.status.message.parts == [Part(text="done")]
    assert task.artifacts == []


async def test_an_exception_fails_the_task_with_a_safe_sentence_and_keeps_what_was_written() -> None:
    async def handle(turn: Turn) -> None:
        await turn.artifact("answer", "half")
        raise RuntimeError("password is 1234")

    task = await rehearse(handle, "go")
    assert task.status.state is TaskState.FAILED
    assert task.status.message is not None
    assert task.status.message.parts == [Part(text=FAILURE_TEXT)]
    assert len(task.artifacts) == 1


async def test_progress_messages_move_to_the_history_when_the_next_status_comes() -> None:
    async def handle(turn: Turn) -> None:
        await turn.working("first")
        await turn.working("second")

    task = await rehearse(handle, "go")
    assert [message.parts[0].text for message in task.history] == ["go", "first", "second"]
    assert [message.role for message in task.history] == [Role.USER, Role.AGENT, Role.AGENT]


async def test_cancellation_passes_through_a_rehearsal() -> None:
    async def handle(_turn: Turn) -> None:
        await asyncio.Event().wait()

    rehearsal = asyncio.ensure_future(rehearse(handle, "go"))
    await asyncio.sleep(0)
    rehearsal.cancel()
    with pytest.raises(asyncio.CancelledError):
        await rehearsal


async def test_a_turn_knows_its_message_its_owner_its_resources_and_its_text() -> None:
    seen: list[Turn] = []

    async def handle(turn: Turn) -> None:
        seen.append(turn)

    message = Message(
        message_id="m", role=Role.USER, parts=[Part(text="a"), Part(data={"x": 1}), Part(text="b")], context_id="c"
    )
    task = await rehearse(handle, message, resources={"model": "m"}, owner=Owner("acme", "alice"))
    (turn,) = seen
    assert turn.text == "a\nb"
    assert turn.message is message
    assert turn.resources == {"model": "m"}
    assert turn.owner == Owner("acme", "alice")
    assert turn.attempt == 1
    assert turn.task is task
    assert task.context_id == "c"


async def test_artifact_ids_are_unique_within_a_task() -> None:
    async def handle(turn: Turn) -> None:
        await turn.artifact("x", "1")
        await turn.artifact("x", "2")
        await turn.artifact("x-2", "3")
        await turn.require_input()

    task = await rehearse(handle, "one")
    task = await rehearse(handle, "two", task=task)
    ids = [artifact.artifact_id for artifact in task.artifacts]
    assert ids == ["x", "x-2", "x-2-2", "x-t2", "x-t2-2", "x-2-t2"]


async def test_a_reply_without_a_task_is_rehearsed_as_the_message_of_the_status() -> None:
    async def handle(turn: Turn) -> None:
        await turn.reply("hello", Part(data={"n": 1}))

    task = await rehearse(handle, "hi", may_reply=True)
    assert task.status.state is TaskState.COMPLETED
    assert task.status.message is not None
    assert task.status.message.task_id is None
    assert [part.text for part in task.status.message.parts] == ["hello", None]
    undeclared = await rehearse(handle, "hi")
    assert undeclared.status.state is TaskState.FAILED


async def test_a_reply_is_the_first_and_only_thing_said() -> None:
    refusals: list[str] = []

    async def handle(turn: Turn) -> None:
        if turn.text == "late":
            await turn.working()
        for content in ((), ("one",), ("two",)):
            try:
                await turn.reply(*content)
            except (RuntimeError, ValueError) as error:
                refusals.append(type(error).__name__)

    for text in ("now", "late"):
        await rehearse(handle, text, may_reply=True)
    assert refusals == ["ValueError", "RuntimeError", *["RuntimeError"] * 3]
