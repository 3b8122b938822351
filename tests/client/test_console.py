"""`a2a send`, `watch` and `card`: what they print and how they exit."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.server import Server, free_port, run_console, running_server


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with running_server(tmp_path, agent="tests.sdk_agent", store_url="memory://") as started:
        yield started


async def test_the_console_sends_watches_and_shows_cards(tmp_path: Path, server: Server) -> None:
    at = ("--url", server.url)
    code, output = await run_console(tmp_path, "send", "one [two] three", *at)
    assert (code, output.splitlines()[0]) == (0, "answer  one [two] three ")
    assert "COMPLETED" in output

    code, output = await run_console(tmp_path, "send", "one two", "--stream", "--key", "k" * 16, *at)
    assert code == 0
    lines = [line.split() for line in output.splitlines()]
    assert [line[0] for line in lines] == ["1", "2", "3", "4", "5"]
    task_id = lines[0][-1]
    again = await run_console(tmp_path, "send", "one two", "--stream", "--key", "k" * 16, *at)
    assert again[0] == 2
    assert "another message" in again[1]

    code, output = await run_console(tmp_path, "watch", task_id, "--after", "3", *at)
    assert code == 0
    assert [line.split()[0] for line in output.splitlines()] == ["4", "5"]

    code, output = await run_console(tmp_path, "send", "ask", *at)
    assert code == 3
    assert "INPUT_REQUIRED What?" in output
    found = re.search(r"task (\S+)", output)
    assert found is not None
    code, output = await run_console(tmp_path, "send", "well", "--task", found[1], *at)
    assert code == 0

    code, output = await run_console(tmp_path, "card", server.url)
    assert code == 0
    assert '"name": "Words"' in output


@pytest.mark.parametrize(
    "arguments", [("send", "x", "--url"), ("watch", "t", "--url"), ("card",)], ids=["send", "watch", "card"]
)
async def test_nobody_there_is_said_in_one_line(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    code, output = await run_console(tmp_path, *arguments, f"http://127.0.0.1:{free_port()}")
    assert code == 2
    assert output.startswith("a2a: http://127.0.0.1:")
    assert output.count("\n") == 1
