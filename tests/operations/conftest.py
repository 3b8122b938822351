"""Operations on every store: a module asks for it with `pytestmark = on_every_store`."""

from pathlib import Path

import pytest

on_every_store = pytest.mark.parametrize("store_kind", ["memory", "sqlite", "postgresql"])


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
