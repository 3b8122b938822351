"""Every A2A type against the official protobuf types, in both directions.

A generated protobuf message is written by the official `MessageToDict`, read by our model, written by us, and read by
the official `ParseDict`: what comes out must equal what went in. So we read all that they write, and they read all that
we write, as the same thing.
"""

import importlib
import json
from typing import Any

import pytest
from a2a.types import a2a_pb2 as pb
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.protocol import ProtoModel, agent_card, push, requests, to_dict, to_json, types
from tests.requirements import requirement

field_behavior = importlib.import_module("google.api.field_behavior_pb2")  # has no types

MODELS: dict[str, type[ProtoModel]] = {
    name: found
    for module in (types, agent_card, push, requests)
    for name, found in vars(module).items()
    if isinstance(found, type) and issubclass(found, ProtoModel) and found is not ProtoModel
}
MESSAGES: dict[str, Descriptor] = dict(pb.DESCRIPTOR.message_types_by_name)

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
IDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12).filter(
    str.strip
)
NUMBERS = st.integers(-(2**31), 2**31 - 1) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
# Fields that A2A bounds more narrowly than their protobuf type does.
BOUNDED: dict[str, st.SearchStrategy[Any]] = {
    "ListTasksRequest.page_size": st.integers(1, 100),
    "ListTasksRequest.history_length": st.integers(0, 2**31 - 1),
    "GetTaskRequest.history_length": st.integers(0, 2**31 - 1),
    "SendMessageConfiguration.history_length": st.integers(0, 2**31 - 1),
}
# Required lists that must not be empty either.
FILLED = {"Message.parts"}


def values(  # noqa: PLR0911 - one case a type
    field: Any, depth: int
) -> st.SearchStrategy[Any]:
    """Values of one field, as `ParseDict` reads them."""
    name = f"{field.containing_type.name}.{field.name}"
    if name in BOUNDED:
        return BOUNDED[name]
    if field.type == FieldDescriptor.TYPE_ENUM:
        return st.sampled_from([value.name for value in field.enum_type.values if value.number])
    if field.type == FieldDescriptor.TYPE_BOOL:
        return st.booleans()
    if field.type == FieldDescriptor.TYPE_BYTES:
        return st.binary(max_size=8).map(_base64)
    if field.type == FieldDescriptor.TYPE_INT32:
        return st.integers(-(2**31), 2**31 - 1)
    if field.type == FieldDescriptor.TYPE_STRING:
        return IDS if field.name.endswith("id") or is_required(field) else TEXTS
    match field.message_type.full_name:
        case "google.protobuf.Timestamp":
            return st.datetimes(min_value=_year(1), max_value=_year(9999)).map(_timestamp)
        case "google.protobuf.Struct":
            return st.dictionaries(TEXTS, JSON, max_size=3)
        case "google.protobuf.Value":
            return JSON
    return messages(field.message_type, depth + 1)


@st.composite
def messages(draw: st.DrawFn, message: Any, depth: int = 0) -> dict[str, Any]:
    """A message of a type in ProtoJSON, valid by A2A's rules."""
    drawn: dict[str, Any] = {}
    chosen = {one.name: draw(st.sampled_from(list(one.fields))).name for one in message.oneofs if _is_real(one)}
    for field in message.fields:
        one = field.containing_oneof
        if one is not None and _is_real(one):
            if chosen[one.name] != field.name:
                continue
        elif not is_required(field) and (depth > 3 or draw(st.booleans())):
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            entries = values(field.message_type.fields_by_name["value"], depth)
            drawn[field.json_name] = draw(st.dictionaries(TEXTS, entries, max_size=2))
        elif field.is_repeated:
            least = 1 if f"{message.name}.{field.name}" in FILLED else 0
            drawn[field.json_name] = draw(st.lists(values(field, depth), min_size=least, max_size=2))
        else:
            drawn[field.json_name] = draw(values(field, depth))
    return drawn


def _is_real(one: Any) -> bool:
    """Whether this is a one-of, and not how protobuf keeps the presence of one optional field."""
    return not (len(one.fields) == 1 and one.name.startswith("_"))


def is_required(field: Any) -> bool:
    """Whether `a2a.proto` marks the field as required."""
    return field_behavior.REQUIRED in field.GetOptions().Extensions[field_behavior.field_behavior]


def _year(year: int) -> Any:
    from datetime import datetime  # noqa: PLC0415 - used here only

    return datetime(year, 6, 1)  # noqa: DTZ001 - hypothesis wants naive bounds


def _timestamp(value: Any) -> str:
    return f"{value.isoformat(timespec='milliseconds')}Z"


def _base64(value: bytes) -> str:
    import base64  # noqa: PLC0415 - used here only

    return base64.b64encode(value).decode()


def official(name: str, data: Any) -> Any:
    return json_format.ParseDict(data, getattr(pb, name)(), ignore_unknown_fields=False)


@requirement("data.model")
def test_every_official_message_has_a_model_with_its_fields() -> None:
    assert set(MESSAGES) <= set(MODELS)
    for name, message in MESSAGES.items():
        assert {field.name for field in message.fields} == set(MODELS[name].model_fields), name


def test_every_official_enum_has_our_values() -> None:
    for name, ours in (("Role", types.Role), ("TaskState", types.TaskState)):
        assert {value.name for value in pb.DESCRIPTOR.enum_types_by_name[name].values} == {
            value.value for value in ours
        }


@requirement("data.camel-case")
@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_what_either_side_writes_the_other_reads_as_the_same(name: str) -> None:
    @settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(messages(MESSAGES[name]))
    def check(data: dict[str, Any]) -> None:
        theirs = official(name, data)
        ours = MODELS[name].model_validate_json(json.dumps(json_format.MessageToDict(theirs)))
        assert official(name, json.loads(to_json(ours))) == theirs
        assert MODELS[name].model_validate_json(to_json(ours)) == ours
        assert to_dict(ours) == json.loads(to_json(ours))
        snake = json_format.MessageToDict(theirs, preserving_proto_field_name=True)
        assert MODELS[name].model_validate_json(json.dumps(snake)) == ours

    check()


PARTS: list[dict[str, Any]] = [
    {"text": ""},
    {"text": "a\u2028b\u0085c\U0001f600"},
    {"raw": ""},
    {"raw": "+/+/AA=="},
    {"url": ""},
    {"data": None},
    {"data": False},
    {"data": 0},
    {"data": ""},
    {"data": []},
    {"data": {}},
    {"data": [None, {"a": None}, [[]]], "metadata": {"b": None, "c": {}}},
    {"text": "x", "filename": "", "mediaType": "text/plain"},
]


@pytest.mark.parametrize("part", PARTS, ids=json.dumps)
def test_each_content_of_a_part_survives_both_directions(part: dict[str, Any]) -> None:
    ours = types.Part.model_validate_json(json.dumps(part))
    assert json.loads(to_json(ours)) == part
    assert official("Part", json.loads(to_json(ours))) == official("Part", part)


@pytest.mark.parametrize("raw", ["_-8", "_-8=", "/+8", "/+8="])
def test_bytes_are_read_in_either_alphabet_with_or_without_padding_and_written_in_the_standard_one(raw: str) -> None:
    part = types.Part.model_validate_json(json.dumps({"raw": raw}))
    assert part.raw == b"\xff\xef"
    assert to_json(part) == b'{"raw":"/+8="}'


@pytest.mark.parametrize(
    "part", ["{}", '{"text":"a","url":"b"}', '{"text":null}', '{"metadata":{}}', '{"text":"a","data":null}']
)
def test_a_part_is_a_true_one_of(part: str) -> None:
    with pytest.raises(ValueError, match="exactly one of text, raw, url, data"):
        types.Part.model_validate_json(part)


@requirement("data.presence")
def test_what_is_false_is_written_and_what_is_unset_is_not() -> None:
    event = types.TaskArtifactUpdateEvent(
        task_id="t", context_id="c", artifact=types.Artifact(artifact_id="a"), append=False
    )
    assert json.loads(to_json(event)) == {
        "taskId": "t",
        "contextId": "c",
        "artifact": {"artifactId": "a", "parts": []},
        "append": False,
    }


def test_required_lists_are_written_empty_and_others_left_out() -> None:
    assert to_json(requests.ListTasksResponse()) == b'{"tasks":[],"nextPageToken":"","pageSize":0,"totalSize":0}'
    card = agent_card.AgentCard(name="n", description="d", version="1")
    assert json.loads(to_json(card)) == {
        "name": "n",
        "description": "d",
        "version": "1",
        "supportedInterfaces": [],
        "capabilities": {},
        "defaultInputModes": [],
        "defaultOutputModes": [],
        "skills": [],
    }


def test_null_is_absent_and_unknown_members_are_ignored() -> None:
    text = '{"id":"t","contextId":null,"status":{"state":"TASK_STATE_WORKING","mood":1},"history":null,"x":{}}'
    task = types.Task.model_validate_json(text)
    assert task == types.Task(id="t", status=types.TaskStatus(state=types.TaskState.WORKING))
    assert json.loads(to_json(task)) == {"id": "t", "status": {"state": "TASK_STATE_WORKING"}}


@requirement("data.timestamps")
@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00.000Z"),
        ("2026-01-31T12:00:00.123456789Z", "2026-01-31T12:00:00.123Z"),
        ("2026-01-31T12:00:00+02:00", "2026-01-31T10:00:00.000Z"),
    ],
)
def test_timestamps_are_written_in_utc_with_milliseconds(written: str, read: str) -> None:
    status = types.TaskStatus.model_validate_json(f'{{"state":"TASK_STATE_WORKING","timestamp":"{written}"}}')
    assert json.loads(to_json(status))["timestamp"] == read


@pytest.mark.parametrize("written", ["yesterday", "2026-01-31", "2026-01-31T12:00:00", "1769860800", ""])
def test_what_is_no_timestamp_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="timestamp"):
        types.TaskStatus.model_validate_json(f'{{"state":"TASK_STATE_WORKING","timestamp":"{written}"}}')
