"""ProtoJSON for Pydantic: how every A2A type is read from and written to JSON.

Reading accepts camelCase and snake_case names, ignores unknown members and takes `null` as absent.
Writing uses camelCase, leaves out what is unset and keeps what is set, `false` and `""` included
(A2A 5.5, 5.6, 5.7 and the ProtoJSON rules they cite).
"""

import base64
import binascii
import operator
import re
from datetime import UTC, datetime
from itertools import accumulate
from typing import Annotated, Any, Final, TypeVar

import orjson
from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetPydanticSchema,
    JsonValue,
    PlainSerializer,
    StrictBool,
    StringConstraints,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)
from pydantic.alias_generators import to_camel

T = TypeVar("T")


class JsonNull:
    """The JSON value `null` where it is content, as in `Part(data=JSON_NULL)`; `None` means absent."""

    _instance: "JsonNull | None" = None

    def __new__(cls) -> "JsonNull":
        """There is one."""
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    def __repr__(self) -> str:
        return "JSON_NULL"

    def __copy__(self) -> "JsonNull":
        return self

    def __deepcopy__(self, _memo: dict[int, Any]) -> "JsonNull":
        return self


JSON_NULL: Final = JsonNull()


class ProtoModel(BaseModel):
    """Base of every A2A type."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        serialize_by_alias=True,
        extra="ignore",
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        # Not JSON, but seen and refused by `to_json`, where `null` would be a value that nobody wrote.
        ser_json_inf_nan="constants",
    )


def to_json(model: BaseModel) -> bytes:
    """Write a model as ProtoJSON, one line of UTF-8.

    Raises:
        ValueError: it holds a lone surrogate or a NUL, which no store can keep, or a number that is none in JSON or has
            more than `MAX_DIGITS` digits.
    """
    data = model.__pydantic_serializer__.to_json(model, by_alias=True, exclude_none=True)
    return _storable(data)


def text_to_json(text: str) -> bytes:
    """Write a string as `to_json` does; raises as it does."""
    try:
        return _storable(orjson.dumps(text))
    except orjson.JSONEncodeError:
        raise ValueError("text must not contain lone surrogates") from None


def to_dict(model: BaseModel) -> dict[str, Any]:
    """Write a model as a dictionary of JSON values, by the rules of `to_json`."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


# Line ends to `str.splitlines` that JSON leaves as they are; SSE readers built on it would break a frame there.
_LINE_ENDS: Final = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085"))
_NOT_FINITE: Final = (b"NaN", b"Infinity")

MAX_DIGITS: Final = 309
"""Digits of an integer. The largest double has so many, and readers of JSON take no larger number."""

_TO_DIGITS: Final = bytes(ord("0") if chr(code).isdigit() else ord(" ") for code in range(128)) + b" " * 128
_TOO_LONG: Final = b"0" * (MAX_DIGITS + 1)
_NUL: Final = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")

MAX_DEPTH: Final = 128
"""How many arrays and objects inside each other a body may have. What is made of it (a log entry, a list of tasks, a
JSON-RPC answer) nests it a few levels deeper, and our reader takes 200."""

MAX_ENTRY_DEPTH: Final = MAX_DEPTH + 16
"""The same for a log entry."""

_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_TO_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[{]}"))


def _storable(data: bytes) -> bytes:
    if b"\\u0000" in data and _NUL.search(data):
        raise ValueError("text must not contain the NUL character (U+0000)")
    if any(name in data for name in _NOT_FINITE) and any(name in _STRING.sub(b"", data) for name in _NOT_FINITE):
        raise ValueError("JSON has no NaN and no Infinity")
    if _has_long_number(data) and _has_long_number(_STRING.sub(b"", data)):
        raise ValueError(f"a number must not have more than {MAX_DIGITS} digits")
    if not data.isascii():
        for raw, escaped in _LINE_ENDS:
            if raw in data:
                data = data.replace(raw, escaped)
    return data


def _has_long_number(data: bytes) -> bool:
    return len(data) > MAX_DIGITS and _TOO_LONG in data.translate(_TO_DIGITS)


def is_deeper_than(depth: int, data: bytes) -> bool:
    """Whether valid JSON has more than so many arrays and objects inside each other."""
    if data.count(b"[") + data.count(b"{") <= depth:
        return False
    steps = _STRING.sub(b"", data).translate(_TO_STEPS, _NO_BRACKETS)
    return max(accumulate(memoryview(steps).cast("b")), default=0) > depth


def check_json(body: bytes) -> None:
    """Refuse JSON that a database or a strict parser would refuse later.

    Raises:
        ValueError: not JSON (RFC 8259), nested too deeply, NaN or Infinity, a lone surrogate, or a NUL character.
    """
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"the body is not valid JSON: {error}") from None
    if b"\\u0000" in body and _NUL.search(body):
        raise ValueError("the body contains the NUL character (U+0000), which cannot be stored")
    if is_deeper_than(MAX_DEPTH, body):
        raise ValueError(f"the body's JSON is nested more than {MAX_DEPTH} levels deep")


def _read_timestamp(value: object) -> object:
    if isinstance(value, str) and not _RFC3339.fullmatch(value):
        raise ValueError("must be an ISO 8601 timestamp with a time zone, such as 2026-01-31T12:00:00.000Z")
    if isinstance(value, int | float):
        raise ValueError("must be an ISO 8601 timestamp string")  # noqa: TRY004 - Pydantic collects ValueError only
    if isinstance(value, str) and not value.endswith("Z"):
        try:
            return datetime.fromisoformat(value).astimezone(UTC)
        except (OverflowError, ValueError):
            raise ValueError("must be a timestamp within the years 1 to 9999, in UTC") from None
    return value


_RFC3339: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)")


def format_timestamp(value: datetime) -> str:
    """UTC, milliseconds, `Z` (A2A 5.6.1)."""
    if value.tzinfo is not UTC:
        value = value.astimezone(UTC)
    return value.isoformat(timespec="milliseconds")[:-6] + "Z"


Timestamp = Annotated[
    AwareDatetime,
    BeforeValidator(_read_timestamp),
    PlainSerializer(format_timestamp, return_type=str, when_used="json-unless-none"),
]


def _read_bytes(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        padded = value.replace("-", "+").replace("_", "/")
        return base64.b64decode(padded + "=" * (-len(padded) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("must be base64") from None


def _write_bytes(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


Bytes = Annotated[
    bytes,
    BeforeValidator(_read_bytes),
    PlainSerializer(_write_bytes, return_type=str, when_used="json-unless-none"),
    WithJsonSchema({"type": "string", "contentEncoding": "base64"}),
]


def _read_data(value: object, inner: ValidatorFunctionWrapHandler, info: ValidationInfo) -> object:
    if value is JSON_NULL:
        return value
    if value is None:
        return JSON_NULL if info.mode == "json" else None
    return inner(value)


def _write_data(value: object) -> object:
    return None if value is JSON_NULL else value


Data = Annotated[
    JsonValue | JsonNull,
    GetPydanticSchema(lambda _source, handler: handler(JsonValue)),
    WrapValidator(_read_data),
    PlainSerializer(_write_data, when_used="unless-none"),
    WithJsonSchema({"description": "Any JSON value, null included."}),
]
"""Any JSON value as content. A JSON `null` reads as `JSON_NULL`; `None` means that there is no such member."""


def _read_repeated(value: object) -> object:
    return [] if value is None else value


Struct = dict[str, JsonValue]
"""`google.protobuf.Struct`: a JSON object with any values, `null` included."""

MAX_ID_LENGTH: Final = 1024

Id = Annotated[str, StringConstraints(min_length=1, max_length=MAX_ID_LENGTH, pattern=r"\S")]
"""An identifier: 1 to 1,024 characters, not all blank."""


def _read_optional(value: object) -> object:
    return None if value == "" else value


OptionalId = Annotated[
    Annotated[str, StringConstraints(max_length=MAX_ID_LENGTH)] | None, BeforeValidator(_read_optional)
]
"""An identifier that may be absent; the empty string is absent, as in proto3."""


def _refuse_boolean(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("must be an integer")  # noqa: TRY004 - Pydantic collects ValueError only
    return value


Integer = Annotated[int, BeforeValidator(_refuse_boolean)]
"""A number, or a string of one, without a fraction, as in ProtoJSON."""

Int32 = Annotated[Integer, Field(ge=-(2**31), le=2**31 - 1)]

Flag = StrictBool
"""A boolean that takes `true` and `false` only, as ProtoJSON does."""

Repeated = Annotated[list[T], BeforeValidator(_read_repeated), Field(exclude_if=operator.not_)]
"""A repeated field: `null` and absent are the empty list, which is not written."""

RequiredRepeated = Annotated[list[T], BeforeValidator(_read_repeated)]
"""A repeated field that is always written."""
