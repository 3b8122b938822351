"""Errors, keys, storable text, and the rules of a task's life."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.protocol import (
    Artifact,
    Message,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
    copy_task,
    errors,
    fold,
    to_json,
    trim_history,
)
from app.protocol.events import begin_turn_update, decode_event, encode_event, utc_now
from app.protocol.extensions import IDEMPOTENCY_EXTENSION_URI
from app.protocol.idempotency import IdempotencyKeyError, IdempotencyKeyFault, key_of, new_key, set_key, validate_key
from app.protocol.protojson import check_json


def message(text: str = "hello", **members: Any) -> Message:
    return Message(message_id=f"m-{text}", role=Role.USER, parts=[Part(text=text)], **members)


def task(**members: Any) -> Task:
    return Task(id="t", context_id="c", status=TaskStatus(state=TaskState.SUBMITTED), **members)


# A2A 5.4: error type, JSON-RPC code, HTTP status.
CODES = [
    ("TaskNotFoundError", -32001, 404),
    ("TaskNotCancelableError", -32002, 400),
    ("PushNotificationNotSupportedError", -32003, 400),
    ("UnsupportedOperationError", -32004, 400),
    ("ContentTypeNotSupportedError", -32005, 400),
    ("InvalidAgentResponseError", -32006, 500),
    ("ExtendedAgentCardNotConfiguredError", -32007, 400),
    ("ExtensionSupportRequiredError", -32008, 400),
    ("VersionNotSupportedError", -32009, 400),
]


@pytest.mark.parametrize(("name", "code", "status"), CODES)
def test_each_error_has_the_codes_of_the_specification(name: str, code: int, status: int) -> None:
    found: type[errors.A2AError] = getattr(errors, name)
    assert (found.code, found.http_status) == (code, status)
    reason = re.sub(r"(?<!^)(?=[A-Z])", "_", name.removesuffix("Error")).upper()
    body = errors.http_body(found(metadata={"k": "v"}))["error"]
    assert body["code"] == status
    assert body["details"] == [
        {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": reason,
            "domain": "a2a-protocol.org",
            "metadata": {"k": "v"},
        }
    ]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nan",
        b"[NaN]",
        b"[Infinity]",
        b"[-Infinity]",
        b"[1e999]",
        b'"\\ud800"',
        b'"\xff"',
        b'"\\u0000"',
        b'{"\\u0000":1}',
        b'"\\\\\\u0000"',
        b"[" * 100_000 + b"]" * 100_000,
        b'"\x00"',
    ],
)
def test_json_that_cannot_be_stored_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"JSON|NUL"):
        check_json(body)


@pytest.mark.parametrize("body", [b"null", b'"\\\\u0000"', b'"\\ud83d\\ude00"', b"[1.5e300]", '"ä\u2028"'.encode()])
def test_json_that_can_be_stored_passes(body: bytes) -> None:
    check_json(body)


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "\\\0"])
def test_text_that_cannot_be_stored_is_not_written(text: str) -> None:
    with pytest.raises(ValueError, match=r"NUL|utf-8|surrogate"):
        to_json(Part(text=text))
    with pytest.raises(ValueError, match=r"NUL|utf-8|surrogate"):
        to_json(Part(data={"a": text}))


def test_not_a_number_is_no_data() -> None:
    for value in (float("nan"), float("inf"), [1.0, float("nan")]):
        with pytest.raises(ValueError, match="finite"):
            Part(data=value)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
@settings(max_examples=200, deadline=None)
def test_written_text_is_one_line_to_every_reader_and_reads_back(text: str) -> None:
    written = to_json(Part(text=text))
    assert len(written.decode().splitlines()) == 1
    assert json.loads(written)["text"] == text


@pytest.mark.parametrize(
    ("key", "fault"),
    [
        (7, IdempotencyKeyFault.NOT_A_STRING),
        (None, IdempotencyKeyFault.NOT_A_STRING),
        ("retry", IdempotencyKeyFault.TOO_SHORT),
        ("a" * 15, IdempotencyKeyFault.TOO_SHORT),
        ("", IdempotencyKeyFault.TOO_SHORT),
        ("a" * 256, IdempotencyKeyFault.TOO_LONG),
        ("a" * 16 + "\n", IdempotencyKeyFault.INVALID_CHARACTER),
        ("a" * 16 + " ", IdempotencyKeyFault.INVALID_CHARACTER),
        ("ä" * 16, IdempotencyKeyFault.INVALID_CHARACTER),
    ],
)
def test_a_bad_key_is_refused_for_its_fault(key: object, fault: IdempotencyKeyFault) -> None:
    with pytest.raises(IdempotencyKeyError) as refusal:
        validate_key(key)
    assert refusal.value.fault is fault


@pytest.mark.parametrize("key", ["a" * 16, "a" * 255, "tenant-a:8f14e45f_ceea.167a"])
def test_a_good_key_is_taken(key: str) -> None:
    assert validate_key(key) == key


def test_a_key_is_set_once_and_found() -> None:
    carried = message(metadata={"other": 1})
    assert key_of(carried) is None
    key = new_key()
    assert len(validate_key(key)) >= 22
    set_key(carried, key)
    set_key(carried, key)
    assert key_of(carried) == key
    assert carried.extensions == [IDEMPOTENCY_EXTENSION_URI]
    assert carried.metadata is not None
    assert carried.metadata["other"] == 1
    carried.extensions = []
    assert key_of(carried) == key
    with pytest.raises(IdempotencyKeyError):
        set_key(carried, "short")
    assert key_of(carried) == key


def chunk(text: str, artifact_id: str = "a", *, append: bool = True) -> TaskArtifactUpdateEvent:
    artifact = Artifact(artifact_id=artifact_id, parts=[Part(text=text)])
    return TaskArtifactUpdateEvent(task_id="t", context_id="c", artifact=artifact, append=append)


def texts(of: Task) -> dict[str, list[str | None]]:
    return {artifact.artifact_id: [part.text for part in artifact.parts] for artifact in of.artifacts}


def test_append_adds_parts_creates_what_is_not_there_and_never_merges_text() -> None:
    made = task()
    for event in (chunk("1"), chunk("2"), chunk("3", "b"), chunk("4")):
        made = fold(made, event)
    assert texts(made) == {"a": ["1", "2", "4"], "b": ["3"]}
    assert texts(fold(made, chunk("5", append=False))) == {"a": ["5"], "b": ["3"]}


def test_a_status_moves_the_message_before_it_into_the_history() -> None:
    made = task(history=[message("user")])
    for text in ("one", "two"):
        status = TaskStatus(state=TaskState.WORKING, message=message(text))
        made = fold(made, TaskStatusUpdateEvent(task_id="t", context_id="c", status=status))
    assert [held.parts[0].text for held in made.history] == ["user", "one"]
    assert made.status.message == message("two")


def test_the_entry_that_begins_a_turn_carries_its_message_into_the_history() -> None:
    made = task(history=[message("user")])
    made.status = TaskStatus(state=TaskState.INPUT_REQUIRED, message=message("which?"))
    answer = Message(
        message_id="m", role=Role.USER, parts=[Part.model_validate_json('{"data":null}'), Part(raw=b"\xff")]
    )
    update = begin_turn_update(made, answer, utc_now())
    made = fold(made, decode_event(update.data))
    assert [held.message_id for held in made.history] == ["m-user", "m-which?", "m"]
    assert made.history[-1] == answer
    assert made.status.state is TaskState.WORKING
    assert made.status.message is None


def test_a_task_replaces_what_was_there_and_a_bare_message_ends_it() -> None:
    other = task(history=[message("x")])
    assert fold(task(), other) == other
    replied = fold(task(), message("y"))
    assert replied.status == TaskStatus(
        state=TaskState.COMPLETED, message=message("y"), timestamp=task().status.timestamp
    )


def test_a_copy_can_be_changed_without_the_task() -> None:
    made = fold(task(history=[message()]), chunk("1"))
    kept = made.model_copy(deep=True)
    copied = copy_task(made)
    fold(copied, chunk("2"))
    copied.history.append(message("more"))
    copied.status.state = TaskState.FAILED
    assert made == kept


@pytest.mark.parametrize(("length", "kept"), [(None, 3), (0, 0), (1, 1), (2, 2), (3, 3), (99, 3)])
def test_history_is_trimmed_to_its_newest(length: int | None, kept: int) -> None:
    made = task(history=[message("1"), message("2"), message("3")])
    trimmed = trim_history(made, length)
    assert trimmed.history == made.history[3 - kept :]
    assert len(made.history) == 3


def test_events_are_written_and_read_as_stream_responses() -> None:
    for event, name in (
        (task(), "task"),
        (message(), "message"),
        (chunk("x"), "artifactUpdate"),
        (
            TaskStatusUpdateEvent(task_id="t", context_id="c", status=TaskStatus(state=TaskState.WORKING)),
            "statusUpdate",
        ),
    ):
        data = encode_event(event)
        assert list(json.loads(data)) == [name]
        assert decode_event(data) == event
