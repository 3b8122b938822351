"""Every command of the README is run, and says what the README shows."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server import CONSOLE, ROOT, running_server

README = (ROOT / "README.md").read_text()
CONSOLE_BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)


def sessions() -> Iterator[tuple[list[str], str]]:
    """Commands and the output shown after them."""
    for block in CONSOLE_BLOCK.findall(README):
        commands = re.findall(r"^\$ (.*)$", block, re.MULTILINE)
        yield commands, re.sub(r"^\$ .*\n", "", block, flags=re.MULTILINE)


def plain(text: str) -> str:
    """Without what differs from run to run."""
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<id>", text)
    return re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "<time>", text).strip()


async def run_all(folder: Path) -> list[tuple[str, str]]:
    """What the README shows beside what its commands said, one pair a session."""
    found = []
    async with running_server(folder) as server:
        kept = "\n"
        for commands, shown in sessions():
            script = "\n".join(commands).replace("http://127.0.0.1:8000", server.url)
            script = script.replace(".venv/bin/a2a send", f"{CONSOLE} send --url {server.url}")
            done = subprocess.run(  # noqa: ASYNC221 - the server is a process of its own
                ["bash", "-c", kept + script], cwd=folder, capture_output=True, text=True, timeout=30, check=True
            )
            kept += "".join(f"{command}\n" for command in commands if command.startswith("TASK="))
            kept = kept.replace("http://127.0.0.1:8000", server.url)
            found.append((shown, done.stdout))
    return found


@pytest.mark.skipif(shutil.which("curl") is None, reason="the README's commands need curl")
async def test_every_command_says_what_the_readme_shows(tmp_path: Path) -> None:
    pairs = await run_all(tmp_path)
    assert len(pairs) > 4
    for shown, said in pairs:
        assert plain(said) == plain(shown)


def test_the_readme_shows_the_agent_file_whole() -> None:
    assert (ROOT / "app" / "agent.py").read_text() in README


@pytest.mark.parametrize("target", [*re.findall(r"^make (\S+)", README, re.MULTILINE), "check", "help"])
def test_every_make_target_the_readme_names_exists(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
