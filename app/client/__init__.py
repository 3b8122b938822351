"""A small A2A client: idempotency keys, retries where they are safe, streams that resume."""

from app.client.client import A2AClient
from app.client.delegation import Delegation, delegate
from app.client.errors import AmbiguousSendError, ConnectionFailedError, InvalidPeerResponseError
from app.client.retry import RetryPolicy
from app.client.streams import StreamEvent

__all__ = [
    "A2AClient",
    "AmbiguousSendError",
    "ConnectionFailedError",
    "Delegation",
    "InvalidPeerResponseError",
    "RetryPolicy",
    "StreamEvent",
    "delegate",
]
