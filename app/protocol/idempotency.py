"""Idempotency keys: where a message carries one and what a good one looks like."""

import re
import secrets
from enum import StrEnum
from typing import Final

from app.protocol.extensions import IDEMPOTENCY_EXTENSION_URI
from app.protocol.types import Message

IDEMPOTENCY_KEY_METADATA: Final = "a2a-rust.com/idempotency-key"
MIN_KEY_LENGTH: Final = 16
MAX_KEY_LENGTH: Final = 255
_INVALID: Final = re.compile(r"[^A-Za-z0-9\-_.:]")


class IdempotencyKeyFault(StrEnum):
    """What is wrong with a key."""

    NOT_A_STRING = "must be a string"
    TOO_SHORT = f"must have at least {MIN_KEY_LENGTH} characters"
    TOO_LONG = f"must have at most {MAX_KEY_LENGTH} characters"
    INVALID_CHARACTER = "may hold only ASCII letters, digits and - _ . :"


class IdempotencyKeyError(ValueError):
    """A key that no server takes."""

    def __init__(self, fault: IdempotencyKeyFault) -> None:
        super().__init__(f"the idempotency key {fault.value}")
        self.fault = fault


def validate_key(key: object) -> str:
    """Return the key if it is 16 to 255 characters of `[A-Za-z0-9-_.:]`.

    Raises:
        IdempotencyKeyError: it is not.
    """
    if not isinstance(key, str):
        raise IdempotencyKeyError(IdempotencyKeyFault.NOT_A_STRING)
    if _INVALID.search(key):
        raise IdempotencyKeyError(IdempotencyKeyFault.INVALID_CHARACTER)
    if len(key) < MIN_KEY_LENGTH:
        raise IdempotencyKeyError(IdempotencyKeyFault.TOO_SHORT)
    if len(key) > MAX_KEY_LENGTH:
        raise IdempotencyKeyError(IdempotencyKeyFault.TOO_LONG)
    return key


def new_key() -> str:
    """An unguessable key: 32 random bytes in URL-safe base64."""
    return secrets.token_urlsafe(32)


def set_key(message: Message, key: str) -> None:
    """Put a key on a message and declare the extension, once.

    Raises:
        IdempotencyKeyError: the key is malformed; the message is unchanged.
    """
    message.metadata = {**(message.metadata or {}), IDEMPOTENCY_KEY_METADATA: validate_key(key)}
    if IDEMPOTENCY_EXTENSION_URI not in message.extensions:
        message.extensions = [*message.extensions, IDEMPOTENCY_EXTENSION_URI]


def key_of(message: Message) -> str | None:
    """The key a message carries, whether or not its `extensions` declare it.

    Raises:
        IdempotencyKeyError: it carries something that is not a key.
    """
    if not message.metadata or IDEMPOTENCY_KEY_METADATA not in message.metadata:
        return None
    return validate_key(message.metadata[IDEMPOTENCY_KEY_METADATA])
