"""A disk that is full and a file that cannot be written: refused in the protocol's shape, and nothing is lost."""

import asyncio
import os
import pwd
import shutil
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.bootstrap import StartError, build_app, run_services
from app.settings import Settings
from app.store.engine_sqlite import LOCK_SUFFIX
from app.store.sql import SqlTaskStore
from app.store.wakeups import LocalWakeups
from tests.agents import Script
from tests.asgi import TIMEOUT, serving
from tests.conftest import Api

FAULTS = {"full": "PRAGMA max_page_count = {pages}", "readonly": "PRAGMA query_only = 1"}
"""What brings SQLite to say so: SQLITE_FULL when the file may not grow, SQLITE_READONLY for any write."""
HEALED = ("PRAGMA max_page_count = 1000000", "PRAGMA query_only = 0")


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/tasks.db"


@pytest.fixture
def store(store_url: str) -> SqlTaskStore:
    return SqlTaskStore(store_url)


@pytest.fixture
async def api(script: Script, settings: Settings, store: SqlTaskStore) -> AsyncIterator[Api]:
    async with serving(build_app(settings, agent=script.agent(), store=store)) as http:
        yield Api(http, script)
        for gate in list(script.gates.values()):
            gate.set()


async def tell(store: SqlTaskStore, *pragmas: str) -> None:
    """Set up the connection that writes; outside of a transaction, where these are heard."""
    database = store._core.database

    def run() -> None:
        for pragma in pragmas:
            database._writing.execute(pragma)  # type: ignore[attr-defined]

    await database._on_writer(run)  # type: ignore[attr-defined]


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_file_that_takes_no_more_is_unavailable_and_loses_nothing(
    api: Api, store: SqlTaskStore, tmp_path: Path, fault: str
) -> None:
    kept = await api.send("hello")
    task_id = await api.held("g")
    stream = api.events(f"/tasks/{task_id}:subscribe")
    await anext(stream)
    with sqlite3.connect(tmp_path / "tasks.db") as peek:
        (pages,) = peek.execute("PRAGMA page_count").fetchone()
    peek.close()
    await tell(store, FAULTS[fault].format(pages=pages))
    text = "x" * 100_000
    message = api.message(text)
    for path in ("/message:send", "/message:stream"):
        refused = await api.post(path, {"message": message}, headers={"Idempotency-Key": "k" * 16})
        assert refused.status_code == 503, refused.text
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json()["error"]["details"][0]["reason"] == "UNAVAILABLE"
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    answer = (await api.post("/rpc", call)).json()
    assert answer["error"]["data"][0]["reason"] == "UNAVAILABLE"
    # What is there is served on, and the turn that runs waits for a place to write to.
    assert await api.task(kept["id"]) == kept
    assert (await api.get("/healthz")).status_code == 200
    api.script.gates["g"].set()
    assert (await api.post("/message:send", {"message": message})).status_code == 503
    if fault == "readonly":  # A full file still has room for little things.
        assert (await api.task(task_id))["status"]["state"] == "TASK_STATE_WORKING"
    await tell(store, *HEALED)
    async with asyncio.timeout(TIMEOUT):
        assert [event.id async for event in stream] == ["4", "5"]
    log = (await api.get(f"/tasks/{task_id}/events")).json()
    assert [entry["seq"] for entry in log["events"]] == [1, 2, 3, 4, 5]
    assert (await api.task(task_id))["status"]["state"] == "TASK_STATE_COMPLETED"
    # The refused sends ran nothing and left their key free.
    sent = await api.post("/message:send", {"message": message}, headers={"Idempotency-Key": "k" * 16})
    assert sent.json()["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert "idempotency-replayed" not in sent.headers
    assert (await api.get("/tasks")).json()["totalSize"] == 3


@contextmanager
def as_nobody() -> Iterator[None]:
    """Without root's right to write everywhere."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(pwd.getpwnam("nobody").pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that anybody may enter, unlike pytest's."""
    folder = Path(tempfile.mkdtemp(prefix="a2a-sqlite-"))
    folder.chmod(0o777)
    yield folder
    folder.chmod(0o777)
    shutil.rmtree(folder)


@pytest.mark.parametrize("place", ["file", "folder"])
async def test_a_file_that_cannot_be_written_stops_the_start_with_one_sentence(
    script: Script, settings: Settings, open_folder: Path, place: str
) -> None:
    path = open_folder / "tasks.db"

    async def start() -> None:
        url = settings.model_copy(update={"store_url": f"sqlite:///{path}"})
        wakeups = LocalWakeups()
        async with run_services(url, script.agent(), SqlTaskStore(url.store_url, wakeups=wakeups), wakeups):
            pass

    await start()
    path.with_name(path.name + LOCK_SUFFIX).chmod(0o666)
    (path if place == "file" else path.parent).chmod(0o555)
    with as_nobody(), pytest.raises(StartError, match=rf"^The SQLite file {path} cannot be \w+: .*\.$") as refusal:
        await start()
    assert "\n" not in str(refusal.value)
    path.chmod(0o666)
    path.parent.chmod(0o777)
    await start()
