"""`python -m tests.conformance CHECKOUT`: run the kit against every profile; exit 0 only where all is as written."""

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import httpx

from tests.conformance.expected import ROOT, Kit, Profile, differences, expectations, read_report
from tests.server import running_server

KIT_LIMIT = 900.0
"""Seconds that one run of the kit may take; it takes about one minute."""
BINDINGS = ("JSONRPC", "HTTP+JSON")
TRANSPORTS = "jsonrpc,http_json"


class RunError(Exception):
    """The kit cannot be run; the message says why."""


def checked_checkout(folder: Path, kit: Kit) -> Path:
    """The kit's checkout, at the commit that the expectations are for, and not in this repository."""
    folder = folder.resolve()
    if folder.is_relative_to(ROOT):
        raise RunError("The kit belongs beside this repository, not into it.")
    command = ["git", "-c", "safe.directory=*", "-C", str(folder), "rev-parse", "HEAD"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode:
        raise RunError(f"{folder} is no checkout of the kit: {found.stderr.strip()}")
    if not found.stdout.startswith(kit.commit):
        raise RunError(f"The kit is at {found.stdout[:7]}; docs/conformance.toml is written for {kit.commit}.")
    return folder


def kit_python(checkout: Path, given: Path | None) -> Path:
    """The interpreter that has the kit installed: the given one, or that of an environment in the kit's checkout."""
    if given is not None:
        return given.absolute()
    folder = checkout / ".venv"
    python = folder / "bin" / "python"
    if not (folder / "installed").exists():
        print(f"Installing the kit into {folder}", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--quiet"]
        subprocess.run([*pip, "--editable", str(checkout)], check=True)
        (folder / "installed").touch()
    return python


async def check_card(url: str, profile: Profile) -> None:
    """An occupied port would have a stranger tested: the card must be that of the server just started."""
    async with httpx.AsyncClient() as client:
        card = (await client.get(f"{url}/.well-known/agent-card.json")).json()
    urls = [interface["url"] for interface in card["supportedInterfaces"]]
    bindings = {interface["protocolBinding"] for interface in card["supportedInterfaces"]}
    if card["name"] != "Conformance agent" or not all(each.startswith(url) for each in urls):
        raise RunError(f"Another server answers at {url}: {card['name']!r}.")
    if bindings != set(BINDINGS):
        raise RunError(f"The card of profile {profile.name} declares {sorted(bindings)}.")


async def run_profile(profile: Profile, checkout: Path, python: Path) -> list[str]:
    """Serve a profile, run the kit on both bindings, say what is not as expected."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = {"agent": profile.agent, "store_url": "memory://", **profile.settings}
        async with running_server(folder, **settings) as server:
            await check_card(server.url, profile)
            command = [str(python), "-m", "pytest", "tests/compatibility", "-q", "--tb=short", "-p", "no:cacheprovider"]
            command += [f"--sut-host={server.url}", f"--transport={TRANSPORTS}", "--webhook-host=127.0.0.1"]
            command += [f"--junitxml={folder / 'report.xml'}", *profile.arguments]
            for test in profile.deselected:
                command += ["--deselect", test]
            kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHONPATH"))}
            kit = await asyncio.create_subprocess_exec(
                *command, cwd=checkout, env=kept, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            try:
                async with asyncio.timeout(KIT_LIMIT):
                    output, _ = await kit.communicate()
            finally:
                if kit.returncode is None:
                    kit.kill()
                    await kit.wait()
            if server.process.returncode is not None:
                return [f"the server ended: {server.log.read_text()}"]
        assert kit.returncode is not None
        text = output.decode()
        report = folder / "report.xml"
        if not report.exists():
            return [f"the kit wrote no report:\n{text}"]
        outcome = read_report(report)
        said = re.findall(r"(\d+) deselected", text)
        found = differences(profile, outcome, kit.returncode, int(said[-1]) if said else 0)
        print(f"profile {profile.name}: {outcome.counts}, {len(profile.deselected)} deselected by name", flush=True)
        if found and kit.returncode:
            print(text)
        return [f"profile {profile.name}: {difference}" for difference in found]


async def run(checkout: Path, python: Path | None, names: str) -> int:
    """All named profiles, one after another."""
    kit = expectations()
    checkout = checked_checkout(checkout, kit)
    python = kit_python(checkout, python)
    found = []
    for profile in kit.profiles:
        if profile.name in names:
            found += await run_profile(profile, checkout, python)
    print("\n".join(found) if found else "All as written in docs/conformance.toml.")
    return 1 if found else 0


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("checkout", type=Path, help="the kit's checkout, outside of this repository")
    parser.add_argument("--python", type=Path, help="interpreter that has the kit installed; made if not given")
    parser.add_argument("--profiles", default="ABC", help="which to run; default ABC")
    arguments = parser.parse_args()
    try:
        return asyncio.run(run(arguments.checkout, arguments.python, arguments.profiles))
    except RunError as error:
        print(error, file=sys.stderr)
        return 2


sys.exit(main())
