"""The schema, by the migrations in `alembic/`: the same for the server, the command line and `alembic` itself."""

from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Column, Connection, text

from alembic import command
from app.store.engines import Database
from app.store.tables import Base
from app.store.values import StoreStartError

FOLDER: Final = Path(__file__).resolve().parents[2] / "alembic"
LOCK_ID: Final = 4_161_210_911
"""Of the advisory lock that keeps replicas from migrating at the same time."""


async def prepare(database: Database, *, auto_migrate: bool) -> None:
    """Leave the schema as this version of the server needs it.

    Raises:
        StoreStartError: it is not, and may not be migrated here; or it is newer than this server.
    """
    found = await database.with_connection(current_revision)
    if found == head_revision():
        return
    if found is not None and not _is_known(found):
        raise StoreStartError(f"The database schema ({found}) is newer than this server; install the version it is of.")
    if not auto_migrate:
        raise StoreStartError(
            f"The database schema is {found or 'missing'}, this server needs {head_revision()}; run `a2a migrate`."
        )
    await database.with_connection(upgrade)


def upgrade(connection: Connection, revision: str = "head") -> None:
    """Bring the schema up to a revision, in the transaction of the connection; alone, where replicas share it."""
    _lock(connection)
    command.upgrade(_config(connection), revision)


def downgrade(connection: Connection, revision: str = "base") -> None:
    """Take the schema back to a revision, with all data it has no place for."""
    _lock(connection)
    command.downgrade(_config(connection), revision)


def current_revision(connection: Connection) -> str | None:
    """The revision the schema is of; `None` for an empty database."""
    return MigrationContext.configure(connection).get_current_revision()


def differences(connection: Connection) -> list[Any]:
    """How the schema differs from the tables in `app.store.tables`; empty when it does not."""
    context = MigrationContext.configure(connection, opts=comparison(connection))
    return list(compare_metadata(context, Base.metadata))


def comparison(connection: Connection) -> dict[str, Any]:
    """How a database's schema is compared with the tables.

    SQLite cannot tell of what an index with an expression is made, so there those are left to a comparison of the SQL.
    """
    options: dict[str, Any] = {"compare_type": True, "compare_server_default": True}
    if connection.dialect.name == "sqlite":
        expressions = {
            str(index.name)
            for table in Base.metadata.tables.values()
            for index in table.indexes
            if any(not isinstance(expression, Column) for expression in index.expressions)
        }
        options["include_object"] = lambda _item, name, kind, *_: kind != "index" or name not in expressions
    return options


@lru_cache(maxsize=1)
def _scripts() -> ScriptDirectory:
    return ScriptDirectory(str(FOLDER))


@lru_cache(maxsize=1)
def head_revision() -> str:
    """The revision this server needs."""
    head = _scripts().get_current_head()
    assert head is not None  # noqa: S101 - there is a first migration
    return head


def _is_known(revision: str) -> bool:
    return any(script.revision == revision for script in _scripts().walk_revisions())


def _lock(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:id)"), {"id": LOCK_ID})


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
