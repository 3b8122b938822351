"""URLs as people have them: each works, or says why not in one line, for the server and for Alembic alike."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import asyncpg
import pytest
from alembic.config import Config

from alembic import command
from app.bootstrap import StartError, migrate
from app.settings import Settings
from app.store.base import StoreStartError
from app.store.sql import SqlTaskStore
from tests.postgres import database
from tests.server import ROOT, run_console

SECRET = "s3cret"


def with_the_server(url: str) -> None:
    """Bring the schema up to date as the server does at its start, and begin to serve tasks."""

    async def run() -> None:
        await migrate(Settings(_env_file=None, store_url=url, pool_size=2))
        async with SqlTaskStore(url, pool_size=2, auto_migrate=False) as store:
            await store.ping()

    asyncio.run(run())


def with_alembic(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `alembic upgrade head` and `alembic check` do on the database of A2A_STORE_URL."""
    monkeypatch.setenv("A2A_STORE_URL", url)
    command.upgrade(Config(ROOT / "alembic.ini"), "head")
    if url != "sqlite://":
        command.check(Config(ROOT / "alembic.ini"))


class Server:
    """The parts of a PostgreSQL URL of the test's own."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.user = quote(parts.username or "postgres")
        self.login = parts.netloc.rpartition("@")[0] or self.user
        self.host = parts.netloc.rpartition("@")[2]
        self.name = parts.path.lstrip("/")
        self.url = url

    async def setting(self, name: str) -> str:
        connection = await asyncpg.connect(self.url)
        try:
            value: str = await connection.fetchval("SELECT current_setting($1)", name)
        finally:
            await connection.close()
        return value


@pytest.fixture(scope="module")
def server(postgres_server_url: str, postgres_template: str) -> Iterator[Server]:
    with asyncio.Runner() as runner:
        own = database(postgres_server_url, postgres_template)
        yield Server(runner.run(own.__aenter__()))
        runner.run(own.__aexit__(None, None, None))


@pytest.mark.parametrize(
    "form",
    [
        "postgresql://{login}@{host}/{name}",
        "postgres://{login}@{host}/{name}",
        "postgresql+asyncpg://{login}@{host}/{name}",
        "POSTGRESQL://{login}@{host}/{name}?sslmode=prefer",
        "postgresql+asyncpg://{login}@{host}/{name}?ssl=disable",
        "postgresql://{login}@127.0.0.1:1,{host}/{name}",
        "postgresql://{login}@{host}/{name}?application_name=a2a&channel_binding=prefer&connect_timeout=3",
        "postgresql://{login}@{host}/{name}?statement_cache_size=0",
    ],
)
def test_a_postgresql_url_works_for_server_and_alembic(
    form: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = form.format(login=server.login, host=server.host, name=server.name)
    with_the_server(url)
    with_alembic(url, monkeypatch)


def test_a_password_with_any_character_works_for_server_and_alembic(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    password = "a%b@c:d/e?f#g h'&=+%20"

    async def execute(statement: str) -> None:
        connection = await asyncpg.connect(server.url)
        await connection.execute(statement)
        await connection.close()

    role = f"odd_{server.name}"
    quoted = password.replace("'", "''")
    asyncio.run(execute(f"CREATE ROLE {role} LOGIN SUPERUSER PASSWORD '{quoted}'"))
    try:
        url = f"postgresql://{role}:{quote(password, safe='')}@{server.host}/{server.name}"
        with_the_server(url)
        with_alembic(url, monkeypatch)
    finally:
        asyncio.run(execute(f"DROP ROLE {role}"))


@pytest.mark.parametrize(
    "form",
    [
        "postgresql://{user}@/{name}?host={folder}&port={port}",
        "postgresql:///{name}?host={folder}&port={port}&user={user}",
        "postgresql://{user}@{quoted}:{port}/{name}",
    ],
)
def test_a_unix_socket_works_for_server_and_alembic(form: str, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = asyncio.run(server.setting("unix_socket_directories")).partition(",")[0]
    port = asyncio.run(server.setting("port"))
    if not Path(folder, f".s.PGSQL.{port}").exists():
        pytest.skip("the server is on another machine, or has no socket")
    url = form.format(user=server.user, name=server.name, folder=folder, quoted=quote(folder, safe=""), port=port)
    with_the_server(url)
    with_alembic(url, monkeypatch)


@pytest.mark.parametrize(
    ("form", "file"),
    [
        ("sqlite:///tasks.db", "tasks.db"),
        ("sqlite:///./with%20space.db", "with space.db"),
        ("sqlite:///{folder}/absolute.db", "absolute.db"),
        ("sqlite+aiosqlite:///tasks.db", "tasks.db"),
        ("sqlite://", None),
    ],
)
def test_a_sqlite_url_works_for_server_and_alembic(
    form: str, file: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url = form.format(folder=tmp_path)
    with_the_server(url) if file else asyncio.run(_open(url))
    with_alembic(url, monkeypatch)
    assert {path.name for path in tmp_path.glob("*.db")} == ({file} if file else set())


async def _open(url: str) -> None:
    async with SqlTaskStore(url) as store:
        await store.ping()


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("mysql://u:s3cret@host/x", "The store URL has the scheme 'mysql'; "),
        ("postgresql+psycopg2://u:s3cret@host/x", "The store URL names the driver of postgresql+psycopg2://; "),
        ("postgresql:/u:s3cret@host/x", "The store URL has no scheme; "),
        ("tasks.db", "The store URL has no scheme; "),
        ("sqlite://tasks.db", "sqlite://tasks.db names a host; write sqlite:///tasks.db "),
        ("sqlite:///x.db?mode=ro", "The store URL has parameters that SQLite does not take: "),
        ("sqlite:////proc/nowhere/x.db", "The SQLite file /proc/nowhere/x.db cannot be opened: "),
        ("postgresql://u:a#s3cret@host/x", "The PostgreSQL URL holds a '#'; write it as %23 "),
        ("postgresql://u:a/s3cret@host/x", "The port in the PostgreSQL URL is no number up to 65535; "),
        ("postgresql://u:s3cret@host:99999/x", "The port in the PostgreSQL URL is no number up to 65535; "),
        ("postgresql://u:a?s3cret@host/x", "The PostgreSQL URL has parameters that are not name=value; "),
        ("postgresql://u:[s3cret@host/x", "The PostgreSQL URL cannot be read; "),
        ("postgresql://u:s3cret℀@host/x", "The PostgreSQL URL cannot be read; "),
        ("postgresql://u:s3cret@127.0.0.1:1/x", "PostgreSQL at 127.0.0.1:1/x cannot be used: "),
        ("postgresql://u:s3cret@/x?host=/nowhere", "PostgreSQL at /nowhere/x cannot be used: "),
        ("postgresql://u:s3cret@127.0.0.1:1/x?sslmode=some", "`sslmode` parameter must be one of"),
        ("postgresql://u:s3cret@127.0.0.1:1/x?connect_timeout=soon", "The PostgreSQL URL has connect_timeout=soon; "),
    ],
)
def test_a_url_that_does_not_work_gets_one_line_from_server_and_alembic(
    url: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises((StartError, StoreStartError)) as refused:
        with_the_server(url)
    with pytest.raises(SystemExit) as ended:
        with_alembic(url, monkeypatch)
    for said in (str(refused.value), str(ended.value)):
        assert sentence in said
        assert "\n" not in said
        assert SECRET not in said
        assert "sqlalchemy" not in said


def test_alembic_says_that_memory_has_no_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match=r"^a2a: memory:// has no schema$"):
        with_alembic("memory://", monkeypatch)


async def test_a_database_that_is_down_ends_the_start_with_one_line_and_an_exit_code(tmp_path: Path) -> None:
    url = f"postgresql://u:{SECRET}@127.0.0.1:1/x"
    code, output = await run_console(tmp_path, "serve", "--port", "0", settings={"store_url": url})
    assert code == 2
    assert output.startswith("a2a: PostgreSQL at 127.0.0.1:1/x cannot be used: ")
    assert output.count("\n") == 1
