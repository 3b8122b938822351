"""PostgreSQL for the SQL store: asyncpg, pooled by SQLAlchemy's engine.

What runs often runs on the driver itself, with arrays for rows; a connection is taken for one script and given back.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import asyncpg
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from app.protocol.errors import InternalError, InvalidParamsError, UnavailableError
from app.store.engines import ConnectionLostError, LostCommitError, RacedError, StoreUrl
from app.store.scripts import Query, Row, Script, Write
from app.store.statements import DialectName
from app.store.values import StoreStartError
from app.telemetry import get_logger

log = get_logger(__name__)
T = TypeVar("T")

COMMAND_TIMEOUT: Final = 10.0
"""Seconds that one statement may take."""
IDLE_TIMEOUT: Final = 3.0
"""Seconds that a transaction may wait for its next statement: a process that stands still in the middle of one holds
locks on tasks that others are to take over."""
IDLE_SETTING: Final = f"idle_in_transaction_session_timeout = {round(IDLE_TIMEOUT * 1000)}"
POOL_TIMEOUT: Final = 10.0
"""Seconds that a script waits for a connection."""

UNREACHABLE: Final = (
    OSError,
    TimeoutError,
    PoolTimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
)
"""What says that the database cannot do this now, and not that it was asked wrongly."""


_LOST: Final = (
    ConnectionResetError,
    BrokenPipeError,
    asyncpg.InterfaceError,
    # What the driver says when the server ends a connection between two statements.
    asyncpg.InternalClientError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.PostgresConnectionError,
)
"""What says that a connection broke, and not that none can be made."""


_NOT_TAKEN: Final = (asyncpg.DataError, asyncpg.ProgramLimitExceededError)
"""What says that a value is no text to the database, out of its range, or too long."""


async def connect(url: StoreUrl, cached: int | None = None) -> Any:
    """One of the driver's connections, keeping so many statements prepared; raises what is in `UNREACHABLE`."""
    options: dict[str, Any] = {"timeout": url.connect_timeout, "command_timeout": COMMAND_TIMEOUT}
    cached = url.statement_cache_size if cached is None else cached
    if cached is not None:
        options["statement_cache_size"] = cached
    return await asyncpg.connect(url.dsn, **options)


async def is_shared(url: StoreUrl) -> bool:
    """Whether a pooler such as PgBouncer answers: it makes up the process it says the connection is served by.

    Such a pooler may carry each transaction to another of its own connections. Raises what is in `UNREACHABLE`.
    """
    connection = await connect(url, 0)
    try:
        shared: bool = await connection.fetchval("SELECT pg_backend_pid()") != connection.get_server_pid()
    finally:
        await connection.close()
    return shared


class PostgresqlDatabase:
    """A pool of connections to one database."""

    dialect: DialectName = "postgresql"

    def __init__(self, url: StoreUrl, *, pool_size: int) -> None:
        self._url = url
        self._shared: bool | None = None
        """Whether a pooler may put each transaction on another of its lines; found out when first connected."""
        self._begin = "BEGIN"
        self._engine = create_async_engine(
            "postgresql+asyncpg://",
            async_creator=self._connect,
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=POOL_TIMEOUT,
        )

    async def open(self) -> None:
        """Reach the database once.

        Raises:
            StoreStartError: it cannot be reached.
        """
        try:
            async with self._connection():
                pass
        except UnavailableError as error:
            raise StoreStartError(
                f"PostgreSQL at {self._url.shown} cannot be used: {_said(error.__cause__ or error)}."
            ) from None

    async def close(self) -> None:
        """Close all connections."""
        await self._engine.dispose()

    async def with_connection(self, work: Callable[[Connection], T]) -> T:
        """Do something with a SQLAlchemy connection, in one transaction."""
        try:
            async with self._engine.begin() as connection:
                return await connection.run_sync(work)
        except (*UNREACHABLE, DBAPIError) as error:
            raise UnavailableError(f"The database cannot be used now: {_said(error)}.") from error

    async def read(self, script: Script[T]) -> T:
        """Run a script that only reads."""
        async with self._connection() as raw:
            return await _run(raw, script)

    async def write(self, script: Script[T]) -> T:
        """Run a script in one transaction."""
        async with self._connection() as raw:
            await raw.execute(self._begin)
            try:
                result = await _run(raw, script)
            except asyncpg.TransactionRollbackError as error:
                await raw.execute("ROLLBACK")
                raise RacedError from error
            except BaseException as error:
                # A line that is not used again is broken off, which undoes as much and waits for nobody.
                if _leaves_whole(error):
                    with contextlib.suppress(*UNREACHABLE):
                        await raw.execute("ROLLBACK")
                raise
            try:
                await raw.execute("COMMIT")
            except UNREACHABLE as error:
                raise LostCommitError from error
            return result

    async def _connect(self) -> Any:
        if self._shared is None:
            self._shared = await is_shared(self._url)
            if self._shared and self._url.statement_cache_size is None:
                log.info(
                    "a connection pooler answers for PostgreSQL; no statement is kept prepared", at=self._url.shown
                )
        cached = self._url.statement_cache_size
        if self._shared and cached is None:
            cached = 0
        connection = await connect(self._url, cached)
        if cached != 0 and not self._shared:
            # A prepared statement keeps the plan it got when the tables were empty, until they are analyzed, and there
            # is an index for everything that runs often. On a shared line it would be set for others.
            await connection.execute("SET enable_seqscan = off")
            await connection.execute(f"SET {IDLE_SETTING}")
        else:
            self._begin = f"BEGIN; SET LOCAL {IDLE_SETTING}"
        return connection

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        """The driver's connection; one that broke is not given to anybody else."""
        connection: AsyncConnection | None = None
        raw: Any = None
        try:
            try:
                connection, raw = await self._take()
                while raw.is_closed():
                    # It broke while nobody used it, and so did the others of its age.
                    await connection.invalidate()
                    await connection.close()
                    connection, raw = await self._take()
                yield raw
            except BaseException as error:
                if connection is not None and not _is_whole(raw, error):
                    if raw is not None:
                        # Not closed in order: over a line that has fallen silent, nobody would hear the farewell.
                        raw.terminate()
                    with contextlib.suppress(Exception):
                        await connection.invalidate()
                raise
        except _LOST as error:
            raise ConnectionLostError(f"The database cannot be used now: {_said(error)}.") from error
        except (*UNREACHABLE, DBAPIError) as error:
            raise UnavailableError(f"The database cannot be used now: {_said(error)}.") from error
        except _NOT_TAKEN as error:
            raise InvalidParamsError(f"The database cannot take this: {_said(error)}.") from error
        except asyncpg.PostgresError as error:
            raise InternalError(f"The database refused a statement: {_said(error)}.") from error
        finally:
            if connection is not None:
                with contextlib.suppress(Exception):
                    await asyncio.shield(connection.close())

    async def _take(self) -> tuple[AsyncConnection, Any]:
        connection = await self._engine.connect()
        return connection, (await connection.get_raw_connection()).driver_connection


def _is_whole(raw: Any, error: BaseException) -> bool:
    """Whether a connection is as good as before, for all that went wrong on it."""
    return _leaves_whole(error) and raw is not None and not raw.is_closed() and not raw.is_in_transaction()


def _leaves_whole(error: BaseException) -> bool:
    """Whether this says nothing against the connection it came over."""
    return isinstance(error, Exception) and not isinstance(error, (LostCommitError, *UNREACHABLE))


async def _run(raw: Any, script: Script[T]) -> T:
    answer: Sequence[Row] | int | None = None
    while True:
        try:
            step = script.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        answer = await _query(raw, step) if isinstance(step, Query) else await _write(raw, step)


async def _query(raw: Any, query: Query) -> Sequence[Row]:
    statement, args = query
    if statement.arrange is not None:
        args = statement.arrange(args)
    rows: Sequence[Row] = await raw.fetch(statement.sql, *args)
    return rows


async def _write(raw: Any, step: Write) -> int:
    """All rows in one statement, a column an array."""
    statement, rows = step
    columns: Sequence[Any] = [list(column) for column in zip(*rows, strict=True)]
    if statement.arrange is not None:
        columns = statement.arrange(columns)
    status: str = await raw.execute(statement.sql, *columns)
    return int(status.rpartition(" ")[2])


def _said(error: BaseException) -> str:
    if isinstance(error, DBAPIError) and error.orig is not None:
        # SQLAlchemy puts the names of its classes before what the driver said.
        error = error.orig.__cause__ or error.orig
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
