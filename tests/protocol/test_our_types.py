"""Generated instances of our models, value by value against what the official types read.

`test_official_types` begins with what the official types can say. Here our own models are the source, so that what
only they tell apart (a flag that is `false` but set, text that is empty but there, a `null` that is content) is tried
too, and each protobuf field is compared with ours instead of being trusted to come back.
"""

import json
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
from google.protobuf import json_format
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import AwareDatetime, JsonValue

from app.protocol import JSON_NULL, AgentCard, ProtoModel, to_json
from app.protocol.protojson import JsonNull
from tests.protocol.test_official_types import IDS, JSON, MESSAGES, MODELS, TEXTS, is_required, official

ZONES = st.sampled_from([UTC, timezone(timedelta(hours=14)), timezone(timedelta(hours=-9, minutes=-30))])
TIMES = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=ZONES).map(  # noqa: DTZ001 - wants naive bounds
    lambda time: time.replace(microsecond=time.microsecond // 1000 * 1000)
)
# What `a2a.proto` requires and we may leave out: tasks from elsewhere need not have a context; ours always do.
MAY_BE_ABSENT = {"TaskStatusUpdateEvent.context_id", "TaskArtifactUpdateEvent.context_id"}


def values(annotation: Any, name: str, *, required: bool, depth: int) -> st.SearchStrategy[Any]:  # noqa: PLR0911 - one a type
    """Values that a field of a model may hold."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is JsonValue:
        return JSON
    if origin is Annotated:
        return values(arguments[0], name, required=required, depth=depth)
    if origin in {Union, UnionType}:
        if JsonNull in arguments:
            return JSON.map(lambda value: JSON_NULL if value is None else value)
        (inner,) = (one for one in arguments if one is not type(None))
        return values(inner, name, required=required, depth=depth)
    if origin is list:
        least = 1 if name == "parts" else 0
        return st.lists(values(arguments[0], "", required=False, depth=depth), min_size=least, max_size=2)
    if origin is dict:
        return st.dictionaries(TEXTS, values(arguments[1], "", required=False, depth=depth), max_size=2)
    if annotation is AwareDatetime:
        return TIMES
    if issubclass(annotation, ProtoModel):
        return instances(annotation, depth + 1)
    if issubclass(annotation, Enum):
        return st.sampled_from([member for member in annotation if member.name != "UNSPECIFIED"])
    return {
        bool: st.booleans(),
        int: st.integers(1, 100),
        bytes: st.binary(max_size=8),
        str: IDS if required or name.endswith("id") else TEXTS,
    }[annotation]


@st.composite
def instances(draw: st.DrawFn, model: type[ProtoModel], depth: int = 0) -> ProtoModel:
    """An instance of a model, made in Python."""
    drawn: dict[str, Any] = {}
    message: Any = MESSAGES[model.__name__]
    excluded: set[str] = set()
    for one in message.oneofs:
        members = [field.name for field in one.fields]
        if len(members) > 1:
            excluded |= set(members) - {draw(st.sampled_from(members))}
    for name, field in model.model_fields.items():
        one_of = message.fields_by_name[name].containing_oneof
        chosen = one_of is not None and len(one_of.fields) > 1
        optional = not (field.is_required() or chosen)
        if name in excluded or (optional and (depth > 3 or draw(st.booleans()))):
            continue
        drawn[name] = draw(values(field.annotation, name, required=field.is_required(), depth=depth))
    return model(**drawn)


def assert_same(theirs: Any, ours: ProtoModel) -> None:
    """Each field of a protobuf message holds what ours holds, or nothing where ours holds nothing."""
    for field in theirs.DESCRIPTOR.fields:
        value = getattr(ours, field.name)
        where = f"{field.full_name}: {value!r}"
        if field.has_presence:
            assert theirs.HasField(field.name) == (value is not None), where
        if value is None:
            assert field.name not in {held.name for held, _ in theirs.ListFields()}, where
            continue
        found = getattr(theirs, field.name)
        if isinstance(value, dict) and field.is_repeated:
            assert set(found) == set(value), where
            for key, inner in value.items():
                assert_same_value(field, found[key], inner, where)
        elif field.is_repeated:
            assert len(found) == len(value), where
            for each, inner in zip(found, value, strict=True):
                assert_same_value(field, each, inner, where)
        else:
            assert_same_value(field, found, value, where)


def assert_same_value(field: Any, found: Any, value: Any, where: str) -> None:
    if isinstance(value, ProtoModel):
        assert_same(found, value)
    elif isinstance(value, Enum):
        assert field.enum_type.values_by_number[found].name == value.value, where
    elif isinstance(value, datetime):
        assert found.ToDatetime(UTC) == value, where
    elif field.message_type is not None and field.message_type.file.name.startswith("google/"):
        assert json_format.MessageToDict(found) == (None if value is JSON_NULL else value), where
    else:
        assert type(found) is type(value), where
        assert found == value, where


def required_by_a2a(name: str) -> set[str]:
    message: Any = MESSAGES[name]
    return {field.name for field in message.fields if is_required(field)}


def with_noise(message: Any, data: dict[str, Any]) -> dict[str, Any]:
    """The same message to a reader of ProtoJSON: unknown members, and `null` where there is nothing."""
    noisy: dict[str, Any] = {"kind": "x", "xUnknown": {"a": [None]}}
    for field in message.fields:
        inner = field.message_type
        value = data.get(field.json_name)
        if field.json_name not in data:
            if inner is None or inner.full_name != "google.protobuf.Value":
                noisy[field.json_name] = None
        elif inner is None or inner.file.name.startswith("google/") or inner.GetOptions().map_entry:
            noisy[field.json_name] = value
        elif field.is_repeated:
            noisy[field.json_name] = [with_noise(inner, each) for each in data[field.json_name]]
        else:
            noisy[field.json_name] = with_noise(inner, data[field.json_name])
    return noisy


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_what_we_write_has_what_a2a_requires_and_the_official_types_read_each_value(name: str) -> None:
    model = MODELS[name]
    always = {
        model.model_fields[field].alias for field in required_by_a2a(name) if f"{name}.{field}" not in MAY_BE_ABSENT
    }

    @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(instances(model))
    def check(ours: ProtoModel) -> None:
        written = json.loads(to_json(ours))
        assert always <= set(written)
        theirs = official(name, written)
        assert_same(theirs, ours)
        assert_same(theirs, model.model_validate_json(json.dumps(json_format.MessageToDict(theirs))))
        assert model.model_validate_json(to_json(ours)) == ours
        assert model.model_validate_json(json.dumps(with_noise(MESSAGES[name], written))) == ours

    check()


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_we_refuse_nothing_that_a2a_lets_be_absent(name: str) -> None:
    assert {field for field, info in MODELS[name].model_fields.items() if info.is_required()} <= required_by_a2a(name)


def test_we_have_no_types_that_a2a_does_not_have() -> None:
    assert {name for name in MODELS if not name.startswith("_")} == set(MESSAGES)


def test_two_cards_share_nothing_that_can_be_changed() -> None:
    one, other = (AgentCard(name="n", description="d", version="1") for _ in range(2))
    before = to_json(other)
    for field in ("supported_interfaces", "default_input_modes", "skills"):
        getattr(one, field).append("x")
    one.capabilities.streaming = True
    assert to_json(other) == before
