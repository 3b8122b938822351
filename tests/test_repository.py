"""What is in the repository: locks that pin, no trace of one machine, and a check that is the one the README names."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOCKS = ("requirements.lock", "requirements-dev.lock")
# Joined here, so that this file does not contain what it looks for.
REGISTRY_HOSTS = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("files", "pythonhosted", "org"),
        ("registry", "npmjs", "org"),
        ("index", "crates", "io"),
        ("proxy", "golang", "org"),
        ("deb", "debian", "org"),
    )
)
MACHINE_PATHS = tuple("/" + path + "/" for path in ("work", "root", "home/[a-z]", "Users/[A-Za-z]", "tmp/w"))


def git(*arguments: str) -> str:
    # A check may run as another user than the one who cloned.
    command = ["git", "-c", "safe.directory=*", *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=30).stdout


def tracked_files() -> list[Path]:
    return [path for name in git("ls-files", "-z").split("\0") if name and (path := ROOT / name).is_file()]


def locked(name: str) -> dict[str, list[str]]:
    """The requirements of a lock file, by name and version, with their hashes."""
    text = "\n".join(line for line in (ROOT / name).read_text("utf-8").splitlines() if not line.startswith("#"))
    requirements: dict[str, list[str]] = {}
    for entry in re.split(r"\n(?=\S)", text.replace("\\\n", " ").strip()):
        requirement, *hashes = re.split(r"\s+--hash=", entry.strip())
        requirements[requirement] = hashes
    return requirements


def lines_with(pattern: str) -> list[str]:
    found = re.compile(pattern)
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in tracked_files()
        for number, line in enumerate(path.read_text("utf-8", errors="replace").splitlines(), 1)
        if found.search(line)
    ]


@pytest.mark.parametrize("name", LOCKS)
def test_every_requirement_is_pinned_with_hashes(name: str) -> None:
    requirements = locked(name)
    assert len(requirements) > 20
    for requirement, hashes in requirements.items():
        assert re.match(r"[a-z0-9-]+==[^ ]+( ; .+)?$", requirement), requirement
        assert hashes, requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest) for digest in hashes), requirement


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_names_no_index_and_no_url(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    assert "://" not in text
    assert not re.search(r"--(extra-)?index-url|--find-links|--trusted-host", text)


def test_development_runs_on_the_very_versions_that_the_server_runs_on() -> None:
    development = locked("requirements-dev.lock")
    assert {
        requirement: hashes
        for requirement, hashes in locked("requirements.lock").items()
        if development.get(requirement) != hashes
    } == {}


def test_no_tracked_file_names_the_host_of_a_registry() -> None:
    assert lines_with("|".join(map(re.escape, REGISTRY_HOSTS))) == []


def test_no_tracked_file_names_a_path_of_one_machine() -> None:
    assert lines_with(rf"(?<![\w.}}/-])(?:{'|'.join(MACHINE_PATHS)})|{re.escape(str(ROOT))}(?![\w-])") == []


def test_secrets_and_what_tools_leave_behind_are_not_tracked() -> None:
    names = {str(path.relative_to(ROOT)) for path in tracked_files()}
    assert {
        name for name in names if re.search(r"(^|/)\.env$|\.db(-\w+)?$|(^|/)__pycache__/|^\.venv/|^uv\.lock$", name)
    } == set()


def test_what_ci_runs_is_what_the_readme_tells_to_run() -> None:
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    commands = re.findall(r"^make [a-z-]+", script, re.MULTILINE)
    readme = (ROOT / "README.md").read_text("utf-8")
    assert commands
    assert [command for command in commands if command not in readme] == []


def test_the_check_ends_with_the_tests() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    recipe = re.search(r"^check:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    test_recipe = re.search(r"^test:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert recipe
    assert test_recipe
    assert recipe[1].endswith(test_recipe[1])
