"""SQLite for the SQL store: one thread that writes, a few that read.

Only the writer has a connection that can write or checkpoint. SQLite before 3.51.3 can lose a commit when two
connections checkpoint at the same time, and with one writer nobody ever waits for a locked database.
"""

import asyncio
import contextlib
import sqlite3
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import orjson
from sqlalchemy import Connection, create_engine, event
from sqlalchemy.pool import StaticPool

from app.protocol.errors import InternalError, InvalidParamsError, UnavailableError
from app.store.engines import StoreUrl
from app.store.scripts import Query, Row, Script, Write
from app.store.statements import DialectName
from app.store.values import StoreStartError

T = TypeVar("T")

Synchronous = Literal["FULL", "NORMAL"]

READERS: Final = 4
CACHED_STATEMENTS: Final = 256
SWITCH_INTERVAL: Final = 0.0001
"""Seconds, for the whole process. SQLite lets the interpreter go in every statement; while the event loop is busy, the
thread gets it back only after so long, and at the usual 5 ms a transaction would wait ten times as long as it works."""
FEW_ROWS: Final = 4
"""So many are written faster one by one."""
MAX_VALUES: Final = 2_048
"""Values in one statement."""
LOCK_SUFFIX: Final = ".lock"
CHECKPOINT_PAGES: Final = 4_000
"""Pages of the write-ahead log that are moved into the file at once: 16 MB."""


class SqliteDatabase:
    """A SQLite file held by this process alone, or a database in memory that lives as long as this is open."""

    dialect: DialectName = "sqlite"

    def __init__(self, url: StoreUrl, *, synchronous: Synchronous) -> None:
        self._url = url
        self._synchronous = synchronous
        self._writer = ThreadPoolExecutor(1, "sqlite-writer")
        self._readers = ThreadPoolExecutor(READERS, "sqlite-reader")
        self._local = threading.local()
        self._reading: list[sqlite3.Connection] = []
        self._writing: sqlite3.Connection | None = None
        self._lock: sqlite3.Connection | None = None

    async def open(self) -> None:
        """Take the file for this process and begin to write to it."""
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_INTERVAL))
        try:
            await self._on_writer(self._open)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Checkpoint and let go of the file."""
        await asyncio.to_thread(self._readers.shutdown)
        for connection in self._reading:
            connection.close()
        await self._on_writer(self._close)
        self._writer.shutdown()

    async def with_connection(self, work: Callable[[Connection], T]) -> T:
        """Do something with a SQLAlchemy connection, on the writer's thread, in one transaction."""
        return await self._on_writer(lambda: self._with_connection(work))

    async def read(self, script: Script[T]) -> T:
        """Run a script that only reads, on one state of the database."""
        if self._url.path is None:
            return await self._on_writer(lambda: _transact(self._writing, "BEGIN", script))
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, lambda: _transact(self._reader(), "BEGIN", script))

    async def write(self, script: Script[T]) -> T:
        """Run a script in one transaction."""
        return await self._on_writer(lambda: _transact(self._writing, "BEGIN IMMEDIATE", script))

    async def _on_writer(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._writer, call)

    # -- on the writer's thread

    def _open(self) -> None:
        path = self._url.path
        if path is None:
            self._writing = _connect(":memory:")
            return
        self._lock = _take_lock(path)
        try:
            self._writing = _connect(str(path))
            (mode,) = self._writing.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                raise StoreStartError(f"The SQLite file {path} is in a place without shared memory; WAL needs it.")
            # A file that is only readable is found out by a write, which changes nothing.
            (version,) = self._writing.execute("PRAGMA user_version").fetchone()
            self._writing.execute(f"PRAGMA user_version = {version}")
        except sqlite3.Error as error:
            raise StoreStartError(f"The SQLite file {path} cannot be used: {error}.") from error
        self._writing.execute(f"PRAGMA synchronous = {self._synchronous}")
        self._writing.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")

    def _close(self) -> None:
        for connection in (self._writing, self._lock):
            if connection is not None:
                with contextlib.suppress(sqlite3.Error):
                    connection.close()
        self._writing = self._lock = None

    def _with_connection(self, work: Callable[[Connection], T]) -> T:
        writing = self._writing
        assert writing is not None  # noqa: S101 - open
        engine = create_engine("sqlite://", creator=lambda: writing, poolclass=StaticPool)
        # The driver begins no transaction for DDL; this one holds it all.
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
        with engine.begin() as connection:
            return work(connection)

    # -- on a reader's thread

    def _reader(self) -> sqlite3.Connection:
        found: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if found is None:
            assert self._url.path is not None  # noqa: S101 - a database in memory has no readers
            found = _connect(f"{self._url.path.absolute().as_uri()}?mode=ro", uri=True)
            self._local.connection = found
            self._reading.append(found)
        return found


def _connect(database: str, *, uri: bool = False) -> sqlite3.Connection:
    return sqlite3.connect(
        database,
        uri=uri,
        timeout=5.0,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=CACHED_STATEMENTS,
    )


def _take_lock(path: Path) -> sqlite3.Connection:
    """Hold the file for this process: a lock that SQLite itself takes, on a file of its own, gone with the process."""
    beside = path.with_name(path.name + LOCK_SUFFIX)
    lock: sqlite3.Connection | None = None
    try:
        lock = sqlite3.connect(beside, timeout=0, isolation_level=None, check_same_thread=False)
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        if lock is not None:
            lock.close()
        if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            raise StoreStartError(
                f"The SQLite file {path} is in use by another process; SQLite serves one server, PostgreSQL many."
            ) from None
        raise StoreStartError(f"The SQLite file {path} cannot be opened: {error}.") from error
    return lock


def _transact(connection: sqlite3.Connection | None, begin: str, script: Script[T]) -> T:
    """Run a script between `begin` and COMMIT; whatever it raises rolls back."""
    if connection is None:
        raise UnavailableError("The store is closed.")
    try:
        connection.execute(begin)
        try:
            result = _run(connection, script)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    except (UnicodeError, OverflowError, sqlite3.DataError) as error:
        raise InvalidParamsError(f"The database cannot take this: {error}.") from error
    except (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.NotSupportedError) as error:
        raise InternalError(f"The database refused a statement: {error}.") from error
    except sqlite3.Error as error:
        raise UnavailableError(f"The database cannot be used now: {error}.") from error
    return result


def _run(connection: sqlite3.Connection, script: Script[T]) -> T:
    answer: Sequence[Row] | int | None = None
    while True:
        try:
            step = script.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        answer = _query(connection, step) if isinstance(step, Query) else _write(connection, step)


def _query(connection: sqlite3.Connection, query: Query) -> Sequence[Row]:
    statement, args = query
    args = [_argument(arg) for arg in args]
    if statement.arrange is not None:
        args = statement.arrange(args)
    cursor = connection.execute(statement.sql, args)
    if statement.packed is None:
        return cursor.fetchall()
    found: list[list[Any]] = orjson.loads(cursor.fetchone()[0])
    for number in statement.packed:
        for row in found:
            if row[number] is not None:
                row[number] = row[number].encode()
    return found


def _write(connection: sqlite3.Connection, step: Write) -> int:
    """Many rows in few statements: each lets the interpreter go once, and a busy event loop gives it back late."""
    statement, rows = step
    arrange, spelled = statement.arrange, statement.spelled
    if spelled is None or len(rows) <= FEW_ROWS:
        return connection.executemany(statement.sql, rows if arrange is None else map(arrange, rows)).rowcount
    if arrange is not None and spelled.arranged:
        rows = list(map(arrange, rows))
    changed = start = 0
    # Powers of two, so that there are few different statements to prepare.
    size = 1 << (MAX_VALUES // spelled.width).bit_length() - 1
    while start < len(rows):
        while size > len(rows) - start:
            size //= 2
        values = [value for row in rows[start : start + size] for value in row]
        changed += connection.execute(statement.for_rows(spelled, size), values).rowcount
        start += size
    return changed


def _argument(value: Any) -> Any:
    return orjson.dumps(value).decode() if isinstance(value, list) else value
