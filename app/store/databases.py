"""Which database a store URL asks for."""

from app.store.engine_postgresql import PostgresqlDatabase
from app.store.engine_sqlite import SqliteDatabase, Synchronous
from app.store.engines import Database, parse_store_url


def database_for(url: str, *, pool_size: int = 5, synchronous: Synchronous = "FULL") -> Database:
    """The database of a store URL, not yet opened.

    Raises:
        StoreStartError: there is none for that URL.
    """
    read = parse_store_url(url)
    if read.dialect == "sqlite":
        return SqliteDatabase(read, synchronous=synchronous)
    return PostgresqlDatabase(read, pool_size=pool_size)
