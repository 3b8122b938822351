"""`a2a send`, `watch` and `card`: what they print and how they exit."""

import asyncio
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.asgi import TIMEOUT
from tests.server import CONSOLE, Server, environment, free_port, run_console, running_server
from tests.tcp_proxy import cutting_proxy


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with running_server(tmp_path, agent="tests.sdk_agent", store_url="memory://") as started:
        yield started


@pytest.mark.timeout(180)
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
    assert await run_console(tmp_path, "send", "one two", "--stream", "--key", "k" * 16, *at) == (0, output)
    code, output = await run_console(tmp_path, "send", "three", "--key", "k" * 16, *at)
    assert code == 2
    assert "another message" in output

    code, output = await run_console(tmp_path, "watch", task_id, "--after", "3", *at)
    assert code == 0
    assert [line.split()[0] for line in output.splitlines()] == ["4", "5"]
    code, output = await run_console(tmp_path, "watch", task_id, *at)
    assert (code, output.splitlines()) == (0, ["answer  one two ", f"COMPLETED  task {task_id}"])

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


async def test_a_stream_that_is_cut_is_shown_to_go_on(tmp_path: Path) -> None:
    async with cutting_proxy("127.0.0.1", 0) as proxy:
        at = f"http://127.0.0.1:{proxy.port}"
        settings = {"agent": "tests.sdk_agent", "store_url": "memory://", "public_url": at}
        async with running_server(tmp_path, **settings) as server:
            proxy.target = ("127.0.0.1", int(server.url.rpartition(":")[2]))
            # The card comes whole, the stream on the same connection does not, and the next connection shows nothing.
            proxy.cut_answers_after = [3000, 0]
            code, output = await run_console(tmp_path, "send", "a b c d e f g \x1b[31mh", "--stream", "--url", at)
            assert proxy.connections == 3
    assert code == 0
    lines = output.splitlines()
    (notice,) = [line for line in lines if line.startswith("the connection was cut; resumed after event ")]
    assert [line.split()[0] for line in lines if line != notice] == [str(number) for number in range(1, 12)]
    assert "\x1b" not in output


async def test_an_interrupted_command_says_so_and_leaves_the_task(tmp_path: Path, server: Server) -> None:
    async with server.client() as client:
        body = {
            "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "wait"}]},
            "configuration": {"returnImmediately": True},
        }
        task_id = (await client.post("/message:send", json=body)).json()["task"]["id"]
        process = await asyncio.create_subprocess_exec(
            str(CONSOLE),
            *("watch", task_id, "--url", server.url),
            cwd=tmp_path,
            env=environment(),
            stdout=-1,
            stderr=-1,
            # Whoever runs the tests in the background has it ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        assert process.stdout is not None
        assert process.stderr is not None
        async with asyncio.timeout(6 * TIMEOUT):
            assert task_id in (await process.stdout.readline()).decode()
            process.send_signal(signal.SIGINT)
            _, said = await process.communicate()
        assert (process.returncode, said) == (130, b"a2a: interrupted; a task that has begun goes on.\n")
        assert (await client.get(f"/tasks/{task_id}")).json()["status"]["state"] == "TASK_STATE_WORKING"
