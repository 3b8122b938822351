"""What JSON is refused before it can be stored, and that all else can be read back."""

import json
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.protocol import Artifact, Message, Part, Task, TaskArtifactUpdateEvent, TaskState, TaskStatus, fold, to_json
from app.protocol.events import begin_turn_update, decode_event, update_of
from app.protocol.idempotency import IDEMPOTENCY_KEY_METADATA, IdempotencyKeyError, IdempotencyKeyFault, key_of
from app.protocol.protojson import MAX_DEPTH, MAX_ENTRY_DEPTH, Int32, ProtoModel, check_json, is_deeper_than
from app.protocol.requests import GetTaskRequest, ListTasksRequest, ListTasksResponse, SendMessageRequest
from tests.protocol.test_official_types import JSON

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
ODD_TEXTS = st.text(st.sampled_from('[]{}",:\\/x\u2028'), max_size=12)
NESTED = st.recursive(
    st.none() | ODD_TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ODD_TEXTS, inner, max_size=3),
    max_leaves=20,
)


def depth_of(value: Any) -> int:
    depth, level = 0, [value]
    while level := [one for one in level if isinstance(one, dict | list)]:
        depth += 1
        level = [inner for one in level for inner in (one.values() if isinstance(one, dict) else one)]
    return depth


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def send(levels: int) -> bytes:
    """A send whose data is nested so that the whole body has so many levels."""
    data = b"[" * (levels - 4) + b"1" + b"]" * (levels - 4)
    return b'{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"data":' + data + b"}]}}"


@given(NESTED, st.booleans())
@settings(max_examples=150, deadline=None, database=None)
def test_depth_is_counted_in_brackets_that_are_not_text(value: Any, ascii_only: bool) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only).encode()
    depth = depth_of(value)
    assert not is_deeper_than(depth, data)
    assert depth == 0 or is_deeper_than(depth - 1, data)


@pytest.mark.parametrize("text", ["[" * 1000, "{" * 1000, '\\"[' * 500, "\\"])
def test_brackets_in_text_are_not_depth(text: str) -> None:
    check_json(json.dumps(text).encode())
    check_json(json.dumps({text: [text]}).encode())
    assert update_of(_chunk(Part(text=text))).data


def test_many_brackets_side_by_side_are_not_depth() -> None:
    check_json(json.dumps([[{}]] * 10_000).encode())


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 1000])
def test_a_body_that_is_nested_deeper_than_the_limit_is_refused(levels: int) -> None:
    with pytest.raises(ValueError, match="levels deep"):
        check_json(send(levels))


def test_a_body_at_the_limit_can_be_read_back_from_whatever_it_goes_into() -> None:
    body = send(MAX_DEPTH)
    assert depth_of(json.loads(body)) == MAX_DEPTH
    check_json(body)
    message = SendMessageRequest.model_validate_json(body).message
    task = Task(id="t", status=TaskStatus(state=TaskState.SUBMITTED), history=[message])
    assert decode_event(update_of(task).data) == task
    begun = begin_turn_update(task, message, NOW)
    assert fold(task, decode_event(begun.data)).history == [message, message]
    page = to_json(ListTasksResponse(tasks=[task]))
    assert ListTasksResponse.model_validate_json(page).tasks == [task]


def test_an_event_at_the_limit_can_be_read_back_and_a_deeper_one_is_refused() -> None:
    levels = MAX_ENTRY_DEPTH - 5
    update = update_of(_chunk(Part(data=nested(levels))))
    assert is_deeper_than(MAX_ENTRY_DEPTH - 1, update.data)
    assert decode_event(update.data) == update.event
    wrapped = b'{"events":[{"event":' + update.data + b"}]}"
    assert json.loads(wrapped)["events"]
    with pytest.raises(ValueError, match="levels deep"):
        update_of(_chunk(Part(data=nested(levels + 1))))
    with pytest.raises(ValueError, match="levels deep"):
        update_of(_chunk(Part(text="x", metadata={"a": nested(levels)})))


@given(JSON)
@settings(max_examples=60, deadline=None, database=None)
def test_json_passes_and_cut_json_does_not(value: Any) -> None:
    body = json.dumps({"a": value}).encode()
    check_json(body)
    for end in range(len(body)):
        with pytest.raises(ValueError, match="JSON"):
            check_json(body[:end])


@given(st.text(st.sampled_from('\0\\u"0a'), max_size=12))
@settings(max_examples=150, deadline=None, database=None)
def test_nul_is_found_wherever_it_is_written_and_nowhere_else(text: str) -> None:
    for body in (json.dumps(text).encode(), orjson.dumps({text: []})):
        if "\0" in text:
            with pytest.raises(ValueError, match="NUL"):
                check_json(body)
        else:
            check_json(body)
    if "\0" in text:
        with pytest.raises(ValueError, match="NUL"):
            to_json(Part(text=text))
    else:
        assert json.loads(to_json(Part(text=text))) == {"text": text}


@pytest.mark.parametrize("body", [b'"\\ud800\\u0041"', b'"\\udc00\\ud800"', b'{"\\udfff":1}', b'"\xed\xa0\x80"'])
def test_surrogates_without_their_other_half_are_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="JSON"):
        check_json(body)


@pytest.mark.parametrize(
    ("text", "written"), [("\u2028", b"\\u2028"), ("\u2029", b"\\u2029"), ("\x85", b"\\u0085"), ("\x1e", b"\\u001e")]
)
def test_each_line_end_is_escaped_in_text_names_and_data(text: str, written: bytes) -> None:
    part = Part(data={text: [text]}, filename=text, metadata={text: text})
    data = to_json(part)
    assert data.count(written) == 5
    assert text.encode() not in data
    assert Part.model_validate_json(data) == part


@pytest.mark.parametrize(
    "written",
    [
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-01:00",
        "0000-01-01T00:00:00Z",
        "2026-02-30T00:00:00Z",
        "2026-01-31T12:00:00+99:00",
        "2026-01-31T12:00:60+01:00",
    ],
)
def test_a_time_that_utc_cannot_say_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="statusTimestampAfter"):
        ListTasksRequest.model_validate_json(json.dumps({"statusTimestampAfter": written}))


@pytest.mark.parametrize("written", [0, 1769860800, 1.5, True, [], {}])
def test_a_time_is_never_a_number(written: Any) -> None:
    with pytest.raises(ValueError, match="statusTimestampAfter"):
        ListTasksRequest.model_validate_json(json.dumps({"statusTimestampAfter": written}))


@pytest.mark.parametrize("name", ["pageSize", "page_size", "historyLength"])
@pytest.mark.parametrize("value", [True, False, 1.5, "x", "", [], 2**31])
def test_what_is_no_integer_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        ListTasksRequest.model_validate_json(json.dumps({name: value}))


@pytest.mark.parametrize("value", [7, 7.0, "7"])
def test_an_integer_may_be_written_in_each_way_of_protojson(value: Any) -> None:
    request = GetTaskRequest.model_validate_json(json.dumps({"id": "t", "historyLength": value}))
    assert request.history_length == 7


@pytest.mark.parametrize("value", ["true", 1, 0, "", []])
def test_a_flag_is_true_or_false_only(value: Any) -> None:
    with pytest.raises(ValueError, match="includeArtifacts"):
        ListTasksRequest.model_validate_json(json.dumps({"includeArtifacts": value}))


@pytest.mark.parametrize("value", ["task_state_working", "WORKING", "working", 2, True])
def test_an_enum_is_read_by_its_name_only(value: Any) -> None:
    with pytest.raises(ValueError, match="state"):
        TaskStatus.model_validate_json(json.dumps({"state": value}))


@pytest.mark.parametrize("raw", ["a", "a=b=", "====", "+/+", "ä+==", " AA=", "AA\n=", "AA===", 7, ["AA=="]])
def test_what_is_no_base64_is_refused_unless_only_padding_is_missing(raw: Any) -> None:
    if raw == "+/+":
        assert Part.model_validate_json(json.dumps({"raw": raw})).raw == b"\xfb\xff"
        return
    with pytest.raises(ValueError, match="raw"):
        Part.model_validate_json(json.dumps({"raw": raw}))


@pytest.mark.parametrize("value", [2**31 - 1, -(2**31)])
def test_a_number_of_32_bits_is_read_to_its_ends(value: int) -> None:
    class Holder(ProtoModel):
        number: Int32

    assert Holder.model_validate_json(json.dumps({"number": value})).number == value
    with pytest.raises(ValueError, match="number"):
        Holder.model_validate_json(json.dumps({"number": value + (1 if value > 0 else -1)}))


@pytest.mark.parametrize("blank", ["", " ", "\t\u3000", "x" * 1025])
def test_an_identifier_that_names_nothing_or_too_long_is_refused(blank: str) -> None:
    with pytest.raises(ValueError, match="id"):
        GetTaskRequest(id=blank)


def test_an_empty_context_is_no_context_as_in_protobuf() -> None:
    assert ListTasksRequest.model_validate_json('{"contextId":"","tenant":""}') == ListTasksRequest()


@pytest.mark.parametrize("held", [None, 7, ["a" * 16], {"key": "a" * 16}])
def test_a_message_whose_key_is_no_text_is_refused_and_not_taken_as_without_key(held: Any) -> None:
    message = Message.model_validate_json(
        json.dumps(
            {
                "messageId": "m",
                "role": "ROLE_USER",
                "parts": [{"text": "x"}],
                "metadata": {IDEMPOTENCY_KEY_METADATA: held},
            }
        )
    )
    with pytest.raises(IdempotencyKeyError) as refusal:
        key_of(message)
    assert refusal.value.fault is IdempotencyKeyFault.NOT_A_STRING


def _chunk(part: Part) -> TaskArtifactUpdateEvent:
    artifact = Artifact(artifact_id="a", parts=[part])
    return TaskArtifactUpdateEvent(task_id="t", context_id="c", artifact=artifact)


@pytest.mark.parametrize("value", [float("nan"), [float("inf")], {"a": [-float("inf"), "NaN"]}])
def test_what_is_no_number_in_json_is_refused_wherever_it_was_put(value: Any) -> None:
    part = Part(text="x", metadata={})
    assert part.metadata is not None
    part.metadata["a"] = value
    with pytest.raises(ValueError, match="no NaN"):
        to_json(part)
    with pytest.raises(ValueError, match="no NaN"):
        update_of(_chunk(part))


def test_words_for_what_is_no_number_are_text_like_any_other() -> None:
    part = Part(text='NaN, "Infinity" and 1e999', metadata={"NaN": ["-Infinity"]})
    assert Part.model_validate_json(to_json(part)) == part


@pytest.mark.parametrize("value", [2**64, -(2**70), 10**308, [{"a": 10**300}], 1.5e308])
def test_a_number_is_read_back_as_it_was(value: Any) -> None:
    part = Part(data=value, metadata={"a": value})
    assert Part.model_validate_json(to_json(part)) == part
    assert decode_event(update_of(_chunk(part)).data) == _chunk(part)
    check_json(to_json(part))


@pytest.mark.parametrize("digits", [310, 4_301, 5_000])
def test_a_number_that_readers_do_not_take_is_refused(digits: int) -> None:
    for value in (10 ** (digits - 1), -(10 ** (digits - 1))):
        with pytest.raises(ValueError, match="digits"):
            to_json(Part(data=[value]))
    with pytest.raises(ValueError, match="JSON"):
        check_json(b'{"data":%s}' % (b"9" * digits))
    text = Part(text="9" * digits)
    assert Part.model_validate_json(to_json(text)) == text
