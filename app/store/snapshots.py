"""Artifacts as a snapshot keeps them, apart from the rest of their task."""

from collections.abc import Sequence
from typing import Final

from pydantic import TypeAdapter

from app.protocol.protojson import to_json
from app.protocol.types import Artifact

SNAPSHOT_BYTES: Final = 256 * 1024
"""A tail no longer than this, or than the snapshot before it, is read without a new snapshot."""

_ARTIFACTS: Final = TypeAdapter(list[Artifact])


def encode_artifacts(artifacts: Sequence[Artifact]) -> bytes:
    """A JSON array; raises `ValueError` for text that no store can keep."""
    return b"[" + b",".join([to_json(artifact) for artifact in artifacts]) + b"]"


def decode_artifacts(data: bytes) -> list[Artifact]:
    """The reverse of `encode_artifacts`."""
    return _ARTIFACTS.validate_json(data)
