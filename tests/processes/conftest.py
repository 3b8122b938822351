"""One server for all foreign clients: they see the same agent over both bindings."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.server import Server, running_server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def conformance_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """The conformance agent, really served."""
    folder = tmp_path_factory.mktemp("conformance")
    settings = {"store_url": "memory://", "push": "on", "push_allow": "127.0.0.1"}
    async with running_server(folder, agent="tests.conformance_agent", **settings) as server:
        yield server
