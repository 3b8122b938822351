"""Every error a client can meet, each with its codes in both bindings (A2A 3.3.2, 5.4, 9.5, 11.6)."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

ERROR_DOMAIN: Final = "a2a-protocol.org"
_ERROR_INFO: Final = "type.googleapis.com/google.rpc.ErrorInfo"
_BAD_REQUEST: Final = "type.googleapis.com/google.rpc.BadRequest"


class FieldViolation(NamedTuple):
    """One field that is wrong, by its JSON path, and why."""

    field: str
    description: str


class A2AError(Exception):
    """An error in the protocol's shape.

    The class attributes are the one table both bindings read: JSON-RPC code, HTTP status, `google.rpc` status name and
    the `ErrorInfo` reason.
    """

    code: ClassVar[int]
    http_status: ClassVar[int]
    status: ClassVar[str]
    reason: ClassVar[str]
    default_message: ClassVar[str]

    def __init__(self, message: str | None = None, *, metadata: Mapping[str, str] | None = None) -> None:
        self.message = message or self.default_message
        self.metadata = dict(metadata or {})
        super().__init__(self.message)

    @property
    def headers(self) -> dict[str, str]:
        """HTTP headers that belong to the answer."""
        return {}

    def details(self) -> list[dict[str, Any]]:
        """The `details` of REST and the `data` of JSON-RPC."""
        info: dict[str, Any] = {"@type": _ERROR_INFO, "reason": self.reason, "domain": ERROR_DOMAIN}
        if self.metadata:
            info["metadata"] = self.metadata
        return [info]


class TaskNotFoundError(A2AError):
    """There is no such task for this caller; missing and foreign are the same answer."""

    code, http_status, status, reason = -32001, 404, "NOT_FOUND", "TASK_NOT_FOUND"
    default_message = "The task does not exist or is not accessible."


class TaskNotCancelableError(A2AError):
    """The task is in a state that cannot be cancelled."""

    code, http_status, status, reason = -32002, 400, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE"
    default_message = "The task cannot be cancelled: it has already ended."


class PushNotificationNotSupportedError(A2AError):
    """This agent does not send push notifications."""

    code, http_status, status, reason = -32003, 400, "FAILED_PRECONDITION", "PUSH_NOTIFICATION_NOT_SUPPORTED"
    default_message = "This agent does not support push notifications."


class UnsupportedOperationError(A2AError):
    """The operation, or an aspect of it, is not supported here or not in this state."""

    code, http_status, status, reason = -32004, 400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"
    default_message = "This operation is not supported."


class ContentTypeNotSupportedError(A2AError):
    """A media type in the message's parts is not supported by the agent."""

    code, http_status, status, reason = -32005, 400, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED"
    default_message = "The media type is not supported."


class UnsupportedMediaTypeError(ContentTypeNotSupportedError):
    """The `Content-Type` of the request itself is not JSON."""

    http_status = 415
    default_message = "The Content-Type must be application/json or application/a2a+json."


class InvalidAgentResponseError(A2AError):
    """The agent answered against the specification."""

    code, http_status, status, reason = -32006, 500, "INTERNAL", "INVALID_AGENT_RESPONSE"
    default_message = "The agent gave an invalid response."


class ExtendedAgentCardNotConfiguredError(A2AError):
    """The extended card is declared but there is none."""

    code, http_status, status, reason = -32007, 400, "FAILED_PRECONDITION", "EXTENDED_AGENT_CARD_NOT_CONFIGURED"
    default_message = "No extended agent card is configured."


class ExtensionSupportRequiredError(A2AError):
    """The card requires an extension that the request does not declare."""

    code, http_status, status, reason = -32008, 400, "FAILED_PRECONDITION", "EXTENSION_SUPPORT_REQUIRED"
    default_message = "The request must declare a required extension in A2A-Extensions."


class VersionNotSupportedError(A2AError):
    """The requested A2A version is not spoken here."""

    code, http_status, status, reason = -32009, 400, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED"
    default_message = "This A2A version is not supported."


class InvalidParamsError(A2AError):
    """A parameter is missing, mistyped or out of its bounds; `violations` name which."""

    code, http_status, status, reason = -32602, 400, "INVALID_ARGUMENT", "INVALID_PARAMS"
    default_message = "The request is invalid."

    def __init__(self, message: str | None = None, *, violations: Sequence[FieldViolation] = ()) -> None:
        super().__init__(message or "; ".join(f"{field}: {text}" for field, text in violations) or None)
        self.violations = tuple(violations)

    @classmethod
    def of(cls, field: str, description: str) -> "InvalidParamsError":
        """One wrong field."""
        return cls(violations=[FieldViolation(field, description)])

    def details(self) -> list[dict[str, Any]]:
        """A `BadRequest` that names the fields, if any is to blame, and the `ErrorInfo` by which clients know it."""
        info = super().details()
        if not self.violations:
            return info
        fields = [violation._asdict() for violation in self.violations]
        return [{"@type": _BAD_REQUEST, "fieldViolations": fields}, *info]


class ParseError(InvalidParamsError):
    """The body is not JSON."""

    code = -32700
    reason = "PARSE_ERROR"
    default_message = "The body is not valid JSON."


class InvalidRequestError(A2AError):
    """The JSON-RPC envelope is wrong."""

    code, http_status, status, reason = -32600, 400, "INVALID_ARGUMENT", "INVALID_REQUEST"
    default_message = "The request is not a JSON-RPC request."


class MethodNotFoundError(A2AError):
    """There is no such JSON-RPC method."""

    code, http_status, status, reason = -32601, 404, "UNIMPLEMENTED", "METHOD_NOT_FOUND"
    default_message = "There is no such method."


class PayloadTooLargeError(A2AError):
    """The body is larger than the server takes."""

    code, http_status, status, reason = -32600, 413, "INVALID_ARGUMENT", "PAYLOAD_TOO_LARGE"
    default_message = "The request body is too large."


class RequestTimeoutError(A2AError):
    """The body did not arrive in time; what the sender still has is not read."""

    code, http_status, status, reason = -32600, 408, "DEADLINE_EXCEEDED", "REQUEST_TIMEOUT"
    default_message = "The request body did not arrive in time."

    @property
    def headers(self) -> dict[str, str]:
        """The connection is of no more use: the rest of the body would be read as a request."""
        return {"Connection": "close"}


class HeadTooLargeError(A2AError):
    """URL and headers are larger than the server takes."""

    code, http_status, status, reason = -32600, 431, "INVALID_ARGUMENT", "HEAD_TOO_LARGE"
    default_message = "URL and headers are too large."


class NotFoundError(A2AError):
    """There is nothing at this path."""

    code, http_status, status, reason = -32601, 404, "NOT_FOUND", "NOT_FOUND"
    default_message = "There is no such path."


class MethodNotAllowedError(A2AError):
    """The path exists, the method does not."""

    code, http_status, status, reason = -32601, 405, "UNIMPLEMENTED", "METHOD_NOT_ALLOWED"
    default_message = "This method is not allowed here."


class UnavailableError(A2AError):
    """The server cannot do this now; nothing was done, and a retry may succeed."""

    code, http_status, status, reason = -32603, 503, "UNAVAILABLE", "UNAVAILABLE"
    default_message = "The server is temporarily unavailable."

    def __init__(self, message: str | None = None, *, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds."""

    @property
    def headers(self) -> dict[str, str]:
        """`Retry-After`."""
        return {"Retry-After": str(self.retry_after)}


class LogTruncatedError(A2AError):
    """The oldest entries were dropped before this reader came to them."""

    code, http_status, status, reason = -32603, 410, "OUT_OF_RANGE", "EVENT_LOG_TRUNCATED"
    default_message = "The event log was truncated past this position; resume to get a snapshot."


class InternalError(A2AError):
    """A fault of the server; the log knows more than the message says."""

    code, http_status, status, reason = -32603, 500, "INTERNAL", "INTERNAL"
    default_message = "Internal error."


def http_body(error: A2AError) -> dict[str, Any]:
    """`google.rpc.Status` as REST answers it (A2A 11.6)."""
    return {
        "error": {
            "code": error.http_status,
            "status": error.status,
            "message": error.message,
            "details": error.details(),
        }
    }
