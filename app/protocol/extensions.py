"""The extensions this server advertises, by URI (A2A 4.6)."""

from typing import Final

RESUME_EXTENSION_URI: Final = "urn:a2a:ext:event-log-resume:v1"
"""Streams carry `id:` = position in the task's event log and resume by `Last-Event-ID`."""

IDEMPOTENCY_EXTENSION_URI: Final = "https://a2a-rust.com/extensions/idempotency/v1"
"""A keyed send that is retried answers with the turn it started the first time."""

TURN_MESSAGE_METADATA: Final = RESUME_EXTENSION_URI + "/message"
"""Metadata of the status update that begins a later turn: the user's message, which `fold` adds to the history."""
