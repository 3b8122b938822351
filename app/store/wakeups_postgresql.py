"""Hints between all replicas on one PostgreSQL: LISTEN and NOTIFY, on a connection of their own.

Nothing is notified inside a transaction that stores anything: PostgreSQL takes a lock over the whole server for the
commit of one that does.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Iterator
from typing import Any, Final

import orjson

from app.protocol.errors import UnavailableError
from app.store.engine_postgresql import UNREACHABLE, connect, is_shared
from app.store.engines import StoreUrl, parse_store_url
from app.store.values import StoreStartError
from app.store.wakeups import Listener, LocalWakeups
from app.telemetry import get_logger

log = get_logger(__name__)

CHANNEL: Final = "a2a_wakeups"
GATHER: Final = 0.003
"""Seconds in which hints gather before they go out as one."""
MAX_PAYLOAD: Final = 7_500
"""Bytes of one notification; PostgreSQL takes just under 8,000."""
IDLE_CHECK: Final = 5.0
"""Seconds after which a quiet connection is asked whether it still is one."""
ECHO_TIMEOUT: Final = 2.0
"""Seconds that a notification to oneself may take."""
RECONNECT_DELAYS: Final = (0.05, 0.2, 0.5, 1.0)
"""Seconds before each try to connect again; the last goes on."""
POOLER_DELAY: Final = 60.0
"""Seconds before the next look whether a pooler is still in the way."""


class PostgresqlWakeups:
    """Carries hints within this process at once, and to the others within milliseconds.

    While `connected` is false nobody else hears of what happens here, nor this process of the others.
    """

    def __init__(self, url: str) -> None:
        """`url` names the database, and must not lead through a pooler that shares connections between transactions.

        Raises:
            StoreStartError: it names none.
        """
        self.connected = False
        self._url: StoreUrl = parse_store_url(url)
        if self._url.dialect != "postgresql":
            raise StoreStartError(f"{self._url.shown} is no PostgreSQL, and LISTEN is only there.")
        self._origin = secrets.token_hex(4)
        self._all = LocalWakeups()
        self._remote = LocalWakeups()
        self._pending: dict[str, None] = {}
        self._changed = asyncio.Event()
        self._echoed = asyncio.Event()

    def publish(self, task_id: str) -> None:
        """Tell everybody; those in other processes a little later."""
        self._all.publish(task_id)
        if self.connected:
            self._pending[task_id] = None
            self._changed.set()

    def listen(self, listener: Listener, *, remote_only: bool = False) -> Callable[[], None]:
        """Hear of every change from now on, or of those in other processes; returns the way to stop."""
        return (self._remote if remote_only else self._all).listen(listener)

    async def run(self) -> None:
        """Keep the connection, for ever."""
        failures = 0
        while True:
            try:
                if await is_shared(self._url):
                    # Notified over the connection of the pooler that has heard LISTEN, an echo would come all the same.
                    log.warning(
                        "other replicas cannot be heard: LISTEN does not work through a pooler, "
                        "and A2A_WAKEUP_URL must lead past it"
                    )
                    await asyncio.sleep(POOLER_DELAY)
                    continue
                connection = await connect(self._url)
            except UNREACHABLE as error:
                log.warning("other replicas cannot be heard now", error=str(error))
            else:
                try:
                    await self._serve(connection)
                except (*UNREACHABLE, UnavailableError) as error:
                    if self.connected:
                        failures = 0
                    log.warning("other replicas are no longer heard", error=str(error))
                finally:
                    self.connected = False
                    self._pending.clear()
                    connection.terminate()
            await asyncio.sleep(RECONNECT_DELAYS[min(failures, len(RECONNECT_DELAYS) - 1)])
            failures += 1

    async def _serve(self, connection: Any) -> None:
        lost = False

        def closed(_connection: object) -> None:
            nonlocal lost
            lost = True
            self._changed.set()

        connection.add_termination_listener(closed)
        await connection.add_listener(CHANNEL, self._hear)
        await self._check_echo(connection)
        self.connected = True
        # What was said meanwhile, here or elsewhere, is not said again: anything may have changed, for everybody.
        self._tell(None)
        await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, orjson.dumps([self._origin, None]).decode())
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(IDLE_CHECK):
                    await self._changed.wait()
            if lost:
                raise UnavailableError("The connection was closed.")
            if not self._changed.is_set():
                await connection.execute("SELECT 1")
                continue
            await asyncio.sleep(GATHER)
            self._changed.clear()
            pending, self._pending = self._pending, {}
            for payload in self._payloads(pending):
                await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, payload)

    async def _check_echo(self, connection: Any) -> None:
        """Find out whether notifications come through: a pooler takes LISTEN, and forgets it."""
        self._echoed.clear()
        await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, orjson.dumps([self._origin]).decode())
        try:
            async with asyncio.timeout(ECHO_TIMEOUT):
                await self._echoed.wait()
        except TimeoutError:
            raise UnavailableError(
                "LISTEN does not work on this connection; through a pooler, A2A_WAKEUP_URL must lead past it."
            ) from None

    def _payloads(self, pending: dict[str, None]) -> Iterator[str]:
        ids: list[str] = []
        size = 0
        for task_id in pending:
            cost = len(orjson.dumps(task_id)) + 1
            if ids and size + cost > MAX_PAYLOAD:
                yield orjson.dumps([self._origin, *ids]).decode()
                ids, size = [], 0
            if cost <= MAX_PAYLOAD:
                ids.append(task_id)
                size += cost
        if ids:
            yield orjson.dumps([self._origin, *ids]).decode()

    def _hear(self, _connection: object, _pid: int, _channel: str, payload: str) -> None:
        try:
            origin, *ids = orjson.loads(payload)
        except ValueError:
            log.warning("a notification of somebody else came on the channel", channel=CHANNEL)
            return
        if origin == self._origin:
            self._echoed.set()
            return
        for task_id in ids:
            self._tell(task_id)

    def _tell(self, task_id: str | None) -> None:
        self._all.publish(task_id)
        self._remote.publish(task_id)
