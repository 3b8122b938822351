"""The operation suite: a module or a test asks for its bindings and stores by a mark.

Tests are written in REST; over JSON-RPC the same words are sent as methods (`tests/jsonrpc_transport.py`).
"""

from pathlib import Path

import httpx
import pytest

REST, JSON_RPC = "HTTP+JSON", "JSONRPC"

on_every_store = pytest.mark.parametrize("store_kind", ["memory", "sqlite", "postgresql"])
"""Over one binding: what is said of HTTP itself, or of JSON-RPC."""

on_both_bindings = pytest.mark.parametrize("binding", [REST, JSON_RPC])
"""In memory: what no store has a part in."""

everywhere = pytest.mark.parametrize(
    ("binding", "store_kind"),
    [
        pytest.param(REST, "memory", id="rest-memory"),
        pytest.param(REST, "sqlite", id="rest-sqlite"),
        pytest.param(REST, "postgresql", id="rest-postgresql"),
        pytest.param(JSON_RPC, "memory", id="jsonrpc-memory"),
    ],
)
"""Both bindings and all three stores. A binding knows no store: `test_jsonrpc.py` has a slice on the other two."""


def is_at_end(response: httpx.Response, binding: str) -> bool:
    """Whether an answer says that a resume has nothing to come: 204, for which JSON-RPC has no word but an error."""
    if binding == REST:
        return response.status_code == 204 and not response.content
    return bool(response.json()["error"]["details"][0]["reason"] == "UNSUPPORTED_OPERATION")


@pytest.fixture
def store_kind() -> str:
    return "memory"


@pytest.fixture
def store_url(request: pytest.FixtureRequest, store_kind: str, tmp_path: Path) -> str:
    match store_kind:
        case "sqlite":
            return f"sqlite:///{tmp_path}/tasks.db"
        case "postgresql":
            url: str = request.getfixturevalue("postgres_url")
            return url
        case _:
            return "memory://"
