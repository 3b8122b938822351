"""Folding events onto a task, against a second fold that is written on plain JSON."""

import json
from datetime import UTC, datetime
from typing import Any, TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from app.protocol import (
    JSON_NULL,
    Artifact,
    Event,
    Message,
    Part,
    ProtoModel,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    copy_task,
    fold,
    to_dict,
)
from app.protocol.events import Update, begin_turn_update, decode_event, encode_event, update_of
from app.protocol.extensions import TURN_MESSAGE_METADATA

Model = TypeVar("Model", bound=ProtoModel)


def made(model: type[Model], **members: st.SearchStrategy[Any]) -> st.SearchStrategy[Model]:
    """Instances of a model; `st.builds` would look at the aliases of its members."""
    return st.fixed_dictionaries(members).map(lambda drawn: model(**drawn))


NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
JSON: st.SearchStrategy[Any] = st.sampled_from([None, 0, False, "", [], {}, [None, {"a": None}], 2**70, -1.5])
METADATA = st.none() | st.dictionaries(st.sampled_from("kl"), JSON, max_size=2)
EXTENSIONS = st.lists(st.sampled_from(["urn:x", "urn:y"]), max_size=2, unique=True)
PARTS = st.lists(
    made(Part, text=st.sampled_from(["", "a", "b\u2028"]), metadata=METADATA)
    | JSON.map(lambda value: Part(data=JSON_NULL if value is None else value))
    | made(Part, raw=st.binary(max_size=2)),
    min_size=1,
    max_size=2,
)
MESSAGES = made(
    Message,
    message_id=st.sampled_from(["m-1", "m-2", "m-3"]),
    role=st.sampled_from([Role.USER, Role.AGENT]),
    parts=PARTS,
    metadata=METADATA,
)
STATUSES = made(
    TaskStatus, state=st.sampled_from(list(TaskState)[1:]), message=st.none() | MESSAGES, timestamp=st.just(NOW)
)
ARTIFACTS = made(
    Artifact,
    artifact_id=st.sampled_from("ab"),
    name=st.none() | st.sampled_from(["", "n"]),
    parts=PARTS | st.just([]),
    metadata=METADATA,
    extensions=EXTENSIONS,
)
ARTIFACT_UPDATES = made(
    TaskArtifactUpdateEvent,
    task_id=st.just("t"),
    context_id=st.just("c"),
    artifact=ARTIFACTS,
    append=st.none() | st.booleans(),
    last_chunk=st.none() | st.booleans(),
)
STATUS_UPDATES = made(
    TaskStatusUpdateEvent, task_id=st.just("t"), context_id=st.just("c"), status=STATUSES, metadata=METADATA
)


def submitted(message: Message) -> Task:
    status = TaskStatus(state=TaskState.SUBMITTED, timestamp=NOW)
    return Task(id="t", context_id="c", status=status, history=[message])


def begun(message: Message) -> Event:
    return decode_event(begin_turn_update(submitted(message), message, NOW).data)


FIRST = MESSAGES.map(submitted)
OTHERS = STATUS_UPDATES | MESSAGES.map(begun) | MESSAGES | FIRST
# In half of all tasks nothing but artifacts changes: what an event does to one shows in the third event or later.
EVENTS = st.lists(ARTIFACT_UPDATES, max_size=8) | st.lists(ARTIFACT_UPDATES | OTHERS, max_size=8)


def plain_fold(task: dict[str, Any], frame: dict[str, Any]) -> dict[str, Any]:
    """One frame of a stream applied to a task, both in JSON, changing neither."""
    if "task" in frame:
        return dict(frame["task"])
    if "statusUpdate" in frame:
        update = frame["statusUpdate"]
        history = list(task.get("history", []))
        if "message" in task["status"]:
            history.append(task["status"]["message"])
        if TURN_MESSAGE_METADATA in update.get("metadata", {}):
            history.append(update["metadata"][TURN_MESSAGE_METADATA])
        return {**task, "status": update["status"]} | ({"history": history} if history else {})
    if "artifactUpdate" in frame:
        update = frame["artifactUpdate"]
        artifact = update["artifact"]
        held = {each["artifactId"]: each for each in task.get("artifacts", [])}
        before = held.get(artifact["artifactId"])
        if before is not None and update.get("append"):
            artifact = before | {"parts": before["parts"] + artifact["parts"]} | _joined(before, artifact)
        held[artifact["artifactId"]] = artifact
        return {**task, "artifacts": list(held.values())}
    # A bare Message is the whole answer.
    times = {name: value for name, value in task["status"].items() if name == "timestamp"}
    return {**task, "status": {"state": "TASK_STATE_COMPLETED", "message": frame["message"], **times}}


def _joined(before: dict[str, Any], added: dict[str, Any]) -> dict[str, Any]:
    joined: dict[str, Any] = {}
    if added.get("metadata"):
        joined["metadata"] = before.get("metadata", {}) | added["metadata"]
    uris = list(dict.fromkeys(before.get("extensions", []) + added.get("extensions", [])))
    return joined | ({"extensions": uris} if uris else {})


@settings(max_examples=200, deadline=None, database=None)
@given(FIRST, EVENTS)
def test_the_frames_in_order_give_the_task_and_change_nothing_else(first: Task, events: list[Event]) -> None:
    frames = [encode_event(event) for event in (first, *events)]

    folded = copy_task(first)
    for event in events:
        folded = fold(folded, event)

    plain: dict[str, Any] = {}
    for frame in frames:
        plain = plain_fold(plain, json.loads(frame))
    assert to_dict(folded) == plain

    read = decode_event(frames[0])
    assert isinstance(read, Task)
    for frame in frames[1:]:
        read = fold(read, decode_event(frame))
    assert read == folded

    assert [encode_event(event) for event in (first, *events)] == frames


@settings(max_examples=100, deadline=None, database=None)
@given(FIRST, EVENTS, EVENTS)
def test_a_copy_and_its_task_go_their_own_ways(first: Task, events: list[Event], later: list[Event]) -> None:
    task = copy_task(first)
    for event in events:
        task = fold(task, event)
    before = to_dict(task)
    copied = copy_task(task)
    for event in later:
        copied = fold(copied, event)
    assert to_dict(task) == before


def test_an_append_to_an_artifact_that_is_not_there_creates_it_with_all_it_has() -> None:
    artifact = Artifact(artifact_id="a", name="n", description="d", parts=[Part(text="x")], extensions=["urn:x"])
    event = TaskArtifactUpdateEvent(task_id="t", context_id="c", artifact=artifact, append=True)
    folded = fold(submitted(_message()), event)
    assert folded.artifacts == [artifact]
    folded.artifacts[0].parts.append(Part(text="y"))
    assert len(artifact.parts) == 1


def test_a_replaced_artifact_keeps_its_place() -> None:
    task = submitted(_message())
    for artifact_id, text in (("a", "1"), ("b", "2"), ("a", "3")):
        artifact = Artifact(artifact_id=artifact_id, parts=[Part(text=text)])
        task = fold(task, TaskArtifactUpdateEvent(task_id="t", context_id="c", artifact=artifact))
    assert [(held.artifact_id, held.parts[0].text) for held in task.artifacts] == [("a", "3"), ("b", "2")]


def test_a_message_with_an_integer_of_any_size_begins_a_turn() -> None:
    task = submitted(_message())
    answer = Message(message_id="m-2", role=Role.USER, parts=[Part(data=[2**70, -(10**300)])])
    update: Update = begin_turn_update(task, answer, NOW)
    assert fold(task, decode_event(update.data)).history[-1] == answer
    assert update_of(decode_event(update.data)) == update


def _message() -> Message:
    return Message(message_id="m-1", role=Role.USER, parts=[Part(text="hello")])
