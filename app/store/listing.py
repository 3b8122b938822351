"""Pages of a listing: keyset positions in opaque tokens, the same for every store (A2A 3.1.4)."""

import base64
import binascii
import hashlib
from datetime import datetime
from typing import Final, NamedTuple, Self

import orjson

from app.protocol.errors import InvalidParamsError
from app.protocol.identity import Owner
from app.protocol.requests import DEFAULT_PAGE_SIZE, ListTasksRequest

_MAX_TOTAL: Final = 2**31 - 1
_MAX_TIMESTAMP: Final = 2**53
"""Anybody can compute the digest, so what a token says is as untrusted as any parameter."""


class PageToken(NamedTuple):
    """Where the page before ended, and how many tasks the listing had when it began."""

    timestamp: int
    """Status timestamp of its last task, in milliseconds."""
    task_id: str
    total: int

    def encode(self, owner: Owner, params: ListTasksRequest) -> str:
        """An opaque token, good for this owner and these filters only."""
        fields = [self.timestamp, self.task_id, self.total, _digest(owner, params)]
        return base64.urlsafe_b64encode(orjson.dumps(fields)).decode("ascii").rstrip("=")

    @classmethod
    def decode(cls, owner: Owner, params: ListTasksRequest) -> Self | None:
        """The token of a request; `None` on the first page.

        Raises:
            InvalidParamsError: it is no token, or one of another owner or other filters.
        """
        text = params.page_token
        if not text:
            return None
        try:
            fields = orjson.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
            timestamp, task_id, total, digest = fields
        except (ValueError, TypeError, binascii.Error):
            raise InvalidParamsError.of("pageToken", "is not a token of this server") from None
        if not (_within(timestamp, -_MAX_TIMESTAMP, _MAX_TIMESTAMP) and _within(total, 0, _MAX_TOTAL)):
            raise InvalidParamsError.of("pageToken", "is not a token of this server")
        if not isinstance(task_id, str) or "\0" in task_id:
            raise InvalidParamsError.of("pageToken", "is not a token of this server")
        if digest != _digest(owner, params):
            raise InvalidParamsError.of("pageToken", "belongs to another listing; repeat the filters of its first page")
        return cls(timestamp, task_id, total)


def _within(value: object, lowest: int, highest: int) -> bool:
    return type(value) is int and lowest <= value <= highest


def _digest(owner: Owner, params: ListTasksRequest) -> str:
    filters = [*owner, params.context_id, params.status, str(params.status_timestamp_after)]
    return hashlib.sha256(orjson.dumps(filters)).hexdigest()[:16]


def page_size(params: ListTasksRequest) -> int:
    """The size asked for, or the default."""
    return params.page_size or DEFAULT_PAGE_SIZE


def milliseconds(time: datetime | None) -> int:
    """Since the epoch; 0 for none."""
    return 0 if time is None else round(time.timestamp() * 1000)
