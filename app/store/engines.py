"""Where a store URL leads, and what every database of the SQL store can do."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, TypeVar
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from sqlalchemy import Connection

from app.protocol.errors import UnavailableError
from app.store.scripts import Script
from app.store.statements import DialectName
from app.store.values import StoreStartError

T = TypeVar("T")

POSTGRESQL_SCHEMES: Final = frozenset({"postgres", "postgresql", "postgresql+asyncpg", "postgres+asyncpg"})
SQLITE_SCHEMES: Final = frozenset({"sqlite", "sqlite+aiosqlite", "sqlite+pysqlite"})

USABLE_URLS: Final = "use sqlite:///file.db, postgresql://host/database or memory://"
MAX_PORT: Final = 65_535

_CLIENT_ONLY: Final = frozenset({"channel_binding", "gssencmode", "sslcompression", "sslsni", "keepalives"})
"""Parameters of libpq that asyncpg would send on to the server, which knows nothing of them."""


class ConnectionLostError(UnavailableError):
    """The connection broke before anything was committed; another may serve."""


class RacedError(Exception):
    """Another transaction came in between; nothing was written, and the same work can be tried again."""


class LostCommitError(Exception):
    """The connection was lost while a transaction was being committed: it may have been, or not."""


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """A store URL, read."""

    dialect: DialectName
    path: Path | None = None
    """The SQLite file; `None` for a database in memory."""
    dsn: str = ""
    """What asyncpg connects to."""
    statement_cache_size: int | None = None
    """Prepared statements a connection keeps; 0 behind PgBouncer in transaction mode. `None` leaves it to asyncpg."""
    connect_timeout: float = 5.0
    """Seconds."""
    shown: str = field(default="", compare=False)
    """The place without credentials, for messages."""


def parse_store_url(url: str) -> StoreUrl:
    """Read a store URL.

    `sqlite:///relative.db`, `sqlite:////absolute.db`, `sqlite://` (in memory), and `postgres://`, `postgresql://` or
    `postgresql+asyncpg://` as libpq reads them: percent-encoded passwords, several hosts, `?host=/path` for a unix
    socket, `sslmode` and its companions. `?statement_cache_size=0` is for PgBouncer in transaction mode.

    Raises:
        StoreStartError: it is none of these, or a part of it is wrong.
    """
    scheme, separator, _ = url.partition("://")
    scheme = scheme.lower()
    if not separator:
        # What it is may hold a password, and is not shown.
        raise StoreStartError(f"The store URL has no scheme; {USABLE_URLS}.")
    if scheme in SQLITE_SCHEMES:
        return _sqlite_url(url)
    if scheme in POSTGRESQL_SCHEMES:
        return _postgresql_url(url)
    if scheme.startswith(("postgres", "sqlite")) and "+" in scheme:
        base = scheme.partition("+")[0]
        raise StoreStartError(f"The store URL names the driver of {scheme}://; write {base}:// instead.")
    raise StoreStartError(f"The store URL has the scheme {scheme!r}; {USABLE_URLS}.")


def _sqlite_url(url: str) -> StoreUrl:
    rest = url.partition("://")[2]
    place, _, query = rest.partition("?")
    if query:
        raise StoreStartError(f"The store URL has parameters that SQLite does not take: ?{query}.")
    if place in {"", "/", "/:memory:"}:
        return StoreUrl("sqlite", shown="SQLite in memory")
    if not place.startswith("/"):
        raise StoreStartError(
            f"sqlite://{place} names a host; write sqlite:///{place} for a relative path, four slashes for an absolute."
        )
    path = Path(unquote(place[1:])).expanduser()
    return StoreUrl("sqlite", path=path, shown=str(path))


def _postgresql_url(url: str) -> StoreUrl:
    rest = url.partition("://")[2]
    try:
        parts = urlsplit(f"postgresql://{rest}")
    except ValueError:
        raise StoreStartError(
            "The PostgreSQL URL cannot be read; percent-encode special characters of the user and the password."
        ) from None
    try:
        given = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        raise StoreStartError(
            "The PostgreSQL URL has parameters that are not name=value; write a '?' of the password as %3F."
        ) from None
    if parts.fragment:
        raise StoreStartError("The PostgreSQL URL holds a '#'; write it as %23 if it belongs to the password.")
    hosts = parts.netloc.rpartition("@")[2]
    if not all(_has_port(host) for host in hosts.split(",")):
        raise StoreStartError(
            f"The port in the PostgreSQL URL is no number up to {MAX_PORT}; write a '/' of the password as %2F."
        )
    cache = _whole_number(given, "statement_cache_size", "prepared_statement_cache_size")
    timeout = _whole_number(given, "connect_timeout")
    if "ssl" in given:
        # SQLAlchemy's spelling for asyncpg.
        given.setdefault("sslmode", given.pop("ssl"))
    kept = {name: value for name, value in given.items() if name not in _CLIENT_ONLY}
    shown = f"{given.get('host') or hosts or 'localhost'}/{parts.path.lstrip('/') or given.get('dbname', '')}"
    dsn = f"postgresql://{parts.netloc}{parts.path}" + (f"?{urlencode(kept)}" if kept else "")
    return StoreUrl(
        "postgresql",
        dsn=dsn,
        statement_cache_size=cache,
        connect_timeout=float(timeout) if timeout else 5.0,
        shown=shown,
    )


def _has_port(host: str) -> bool:
    """Whether the port of a host is one, or there is none."""
    port = host.rpartition("]")[2].partition(":")[2]
    return not port or (port.isdecimal() and int(port) <= MAX_PORT)


def _whole_number(given: dict[str, str], *names: str) -> int | None:
    found: int | None = None
    for name in names:
        value = given.pop(name, None)
        if value is None:
            continue
        if not value.isdecimal():
            raise StoreStartError(f"The PostgreSQL URL has {name}={value}; it must be a whole number.")
        found = int(value)
    return found


class Database(Protocol):
    """One of the two databases, opened."""

    dialect: DialectName

    async def open(self) -> None:
        """Get ready.

        Raises:
            StoreStartError: it cannot be reached or used.
        """

    async def with_connection(self, work: Callable[[Connection], T]) -> T:
        """Do something with a SQLAlchemy connection, in one transaction; for the schema, not for tasks."""
        ...

    async def close(self) -> None:
        """Let go of everything; never fails."""

    async def read(self, script: Script[T]) -> T:
        """Run a script that only reads.

        Raises:
            UnavailableError: the database is out of reach.
            InvalidParamsError: it was given what it cannot take.
        """
        ...

    async def write(self, script: Script[T]) -> T:
        """Run a script in one transaction, durable on return; what it raises undoes it.

        Raises:
            LostCommitError: nobody knows whether it was committed.
            RacedError: the database chose it to give way to another.
            UnavailableError: the database is out of reach; nothing was done.
            InvalidParamsError: it holds what the database cannot keep.
        """
        ...
