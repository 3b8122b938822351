"""The stores under test, by name; another joins by one entry of `STORES`."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import pytest

from app.store.base import TaskStore
from app.store.memory import MemoryTaskStore
from app.store.sql import SqlTaskStore

# SQL
from app.store.turns import TurnStore
from app.store.wakeups import LocalWakeups

NAMES = ("memory", "sqlite", "postgresql")


class FullStore(TurnStore, Protocol):
    """What the bundled stores are: a task store and a turn store."""


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def monotonic(self) -> float:
        return self.now.timestamp()

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


StoreFactory = Callable[..., Any]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def wakeups() -> LocalWakeups:
    return LocalWakeups()


@pytest.fixture(params=NAMES)
def store_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def make_store(
    request: pytest.FixtureRequest, store_name: str, tmp_path: Path, clock: Clock, wakeups: LocalWakeups
) -> Callable[..., Any]:
    """Opens a store of the kind under test; keywords are those all kinds share."""
    url = request.getfixturevalue("postgres_url") if store_name == "postgresql" else f"sqlite:///{tmp_path}/tasks.db"

    @asynccontextmanager
    async def opened(**options: Any) -> AsyncIterator[Any]:
        store: TaskStore
        if store_name == "memory":
            store = MemoryTaskStore(clock=clock, monotonic=clock.monotonic, wakeups=wakeups, **options)
        else:
            store = SqlTaskStore(url, clock=clock, wakeups=wakeups, **options)
        async with store:
            yield store

    return opened


@pytest.fixture
async def store(make_store: Callable[..., Any]) -> AsyncIterator[Any]:
    async with make_store() as opened:
        yield opened


Reader = Callable[[str], Awaitable[Any]]
