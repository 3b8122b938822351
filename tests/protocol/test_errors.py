"""The table of errors, against the tables of the specification."""

import json
from http import HTTPStatus

import pytest

from app.protocol import errors
from app.protocol.errors import A2AError, FieldViolation, InvalidParamsError, UnavailableError, http_body
from tests.requirements import requirement

# A2A 5.4, as it is written there.
SPECIFICATION = """
| `TaskNotFoundError`                   | `-32001`      | `NOT_FOUND`           | `404 Not Found`             |
| `TaskNotCancelableError`              | `-32002`      | `FAILED_PRECONDITION` | `400 Bad Request`           |
| `PushNotificationNotSupportedError`   | `-32003`      | `FAILED_PRECONDITION` | `400 Bad Request`           |
| `UnsupportedOperationError`           | `-32004`      | `FAILED_PRECONDITION` | `400 Bad Request`           |
| `ContentTypeNotSupportedError`        | `-32005`      | `INVALID_ARGUMENT`    | `400 Bad Request`           |
| `InvalidAgentResponseError`           | `-32006`      | `INTERNAL`            | `500 Internal Server Error` |
| `ExtendedAgentCardNotConfiguredError` | `-32007`      | `FAILED_PRECONDITION` | `400 Bad Request`           |
| `ExtensionSupportRequiredError`       | `-32008`      | `FAILED_PRECONDITION` | `400 Bad Request`           |
| `VersionNotSupportedError`            | `-32009`      | `FAILED_PRECONDITION` | `400 Bad Request`           |
"""
ROWS = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in SPECIFICATION.strip().splitlines()]
# JSON-RPC 2.0, 5.1.
JSON_RPC = {
    "ParseError": -32700,
    "InvalidRequestError": -32600,
    "MethodNotFoundError": -32601,
    "InvalidParamsError": -32602,
    "InternalError": -32603,
}
CLASSES = [found for found in vars(errors).values() if isinstance(found, type) and issubclass(found, A2AError)]
# `google.rpc.Code`, by name.
STATUSES = {"INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL"} | {
    "UNAVAILABLE",
    "UNAUTHENTICATED",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "DEADLINE_EXCEEDED",
}


def found(name: str) -> type[A2AError]:
    (one,) = (each for each in CLASSES if each.__name__ == name)
    return one


@requirement("errors.mapping")
@pytest.mark.parametrize(("name", "code", "status", "http_status"), ROWS)
def test_each_error_of_a2a_has_its_row_of_the_specification(
    name: str, code: str, status: str, http_status: str
) -> None:
    error = found(name)
    assert (error.code, error.status) == (int(code), status)
    assert f"{error.http_status} {HTTPStatus(error.http_status).phrase}" == http_status


@pytest.mark.parametrize(("name", "code"), JSON_RPC.items())
def test_each_error_of_json_rpc_has_its_code(name: str, code: int) -> None:
    assert found(name).code == code


@requirement("errors.parts")
@pytest.mark.parametrize("error", [each for each in CLASSES if each is not A2AError])
def test_each_error_can_be_answered_in_both_bindings(error: type[A2AError]) -> None:
    made = error()
    body = json.loads(json.dumps(http_body(made)))["error"]
    assert body["code"] == error.http_status >= 400
    assert body["status"] == error.status
    assert error.status in STATUSES
    assert body["message"] == str(made) == error.default_message
    assert (
        body["details"]
        == made.details()
        == [
            {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": error.reason,
                "domain": "a2a-protocol.org",
            }
        ]
    )
    assert error.reason == error.reason.upper()
    assert not error.reason.endswith("_ERROR") or error.reason == "PARSE_ERROR"
    assert -32768 <= error.code <= -32000


def test_no_two_errors_have_the_same_reason_unless_one_refines_the_other() -> None:
    for one in CLASSES[1:]:
        for other in CLASSES[1:]:
            if one.reason == other.reason and one is not other:
                assert issubclass(one, other) or issubclass(other, one)


def test_a_message_of_its_own_replaces_the_default_and_an_empty_one_does_not() -> None:
    assert errors.TaskNotFoundError("gone").message == "gone"
    assert errors.TaskNotFoundError("").message == errors.TaskNotFoundError.default_message


def test_invalid_params_name_each_wrong_field() -> None:
    error = InvalidParamsError(
        violations=[FieldViolation("message.parts", "is empty"), FieldViolation("id", "is blank")]
    )
    assert error.message == "message.parts: is empty; id: is blank"
    assert error.details() == [
        {
            "@type": "type.googleapis.com/google.rpc.BadRequest",
            "fieldViolations": [
                {"field": "message.parts", "description": "is empty"},
                {"field": "id", "description": "is blank"},
            ],
        },
        {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": "INVALID_PARAMS",
            "domain": "a2a-protocol.org",
        },
    ]
    assert InvalidParamsError.of("id", "is blank").violations == (FieldViolation("id", "is blank"),)


def test_only_what_may_succeed_later_says_when_to_retry() -> None:
    assert UnavailableError(retry_after=7).headers == {"Retry-After": "7"}
    assert [each for each in CLASSES[1:] if "Retry-After" in each().headers] == [UnavailableError]
