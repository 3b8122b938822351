"""Runs the migrations: on the connection the server hands over, or on the database of `A2A_STORE_URL` or `-x url=…`."""

import asyncio

from sqlalchemy import Connection

from alembic import context
from app.settings import Settings
from app.store.databases import database_for
from app.store.migrations import comparison
from app.store.tables import Base
from app.store.values import StoreStartError


def run(connection: Connection) -> None:
    """Run what was asked for, in the transaction of the connection."""
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        **comparison(connection),
        render_as_batch=connection.dialect.name == "sqlite",
    )
    with context.begin_transaction():
        context.run_migrations()


async def run_on_store() -> None:
    """Open the database of the settings and run there."""
    url = context.get_x_argument(as_dictionary=True).get("url") or Settings().store_url
    if url.startswith("memory:"):
        raise SystemExit("a2a: memory:// has no schema")
    try:
        database = database_for(url)
        await database.open()
    except StoreStartError as error:
        raise SystemExit(f"a2a: {error}") from None
    try:
        await database.with_connection(run)
    finally:
        await database.close()


handed_over = context.config.attributes.get("connection")
if context.is_offline_mode():
    raise SystemExit("a2a: migrations run on a database; --sql is not supported")
if handed_over is not None:
    run(handed_over)
else:
    asyncio.run(run_on_store())
