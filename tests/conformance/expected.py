"""What a run of the kit must give: `docs/conformance.toml`, and how a run is compared with it."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

ROOT: Final = Path(__file__).parents[2]
DATA: Final = ROOT / "docs" / "conformance.toml"


@dataclass(frozen=True)
class Profile:
    """One server to run the kit against, and what it must answer."""

    name: str
    agent: str
    settings: Mapping[str, str]
    arguments: Sequence[str]
    """Further arguments for the kit."""
    counts: Mapping[str, int]
    """How many tests end in which way; ways that are not named end none."""
    deselected: Sequence[str]
    """Tests that are left out."""
    skipped: Sequence[re.Pattern[str]]
    """Tests that must be skipped: each of these finds at least one, and every test it finds is skipped."""


@dataclass(frozen=True)
class Kit:
    """The checkout that the expectations are for."""

    commit: str
    profiles: Sequence[Profile]


@dataclass
class Outcome:
    """How the tests of a run ended: passed, failed, error, xfailed, skipped."""

    tests: dict[str, str] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """How many ended in which way."""
        return {way: list(self.tests.values()).count(way) for way in sorted(set(self.tests.values()))}


def expectations(data: Path = DATA) -> Kit:
    """The written list."""
    content = tomllib.loads(data.read_text("utf-8"))

    def of(name: str, member: str) -> list[str]:
        return [test for entry in content[member] if name in entry["profiles"] for test in entry["tests"]]

    profiles = [
        Profile(
            name=name,
            agent=profile["agent"],
            settings=profile.get("settings", {}),
            arguments=profile.get("arguments", []),
            counts=profile["counts"],
            deselected=of(name, "deselected"),
            skipped=[re.compile(pattern) for pattern in of(name, "skipped")],
        )
        for name, profile in content["profile"].items()
    ]
    return Kit(content["kit"]["commit"], profiles)


def read_report(report: Path) -> Outcome:
    """The outcome that a JUnit report tells; tests are named by module, class and function."""
    outcome = Outcome()
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        way = "passed"
        for child in case:
            if child.tag == "skipped":
                way = "xfailed" if child.get("type") == "pytest.xfail" else "skipped"
            elif child.tag in ("failure", "error"):
                way = "failed" if child.tag == "failure" else "error"
        outcome.tests[name] = way
    return outcome


def differences(profile: Profile, outcome: Outcome, exit_code: int, deselected: int) -> list[str]:
    """Where a run is not what was written down; empty when it is."""
    found = []
    if exit_code:
        found.append(f"the kit ended with exit code {exit_code}")
    if not profile.arguments and deselected != len(profile.deselected):
        found.append(f"{deselected} tests were deselected, expected {len(profile.deselected)}")
    for test, way in outcome.tests.items():
        expected = any(pattern.search(test) for pattern in profile.skipped)
        if way in ("failed", "error"):
            found.append(f"{way}: {test}")
        elif way == "skipped" and not expected:
            found.append(f"skipped, and not on the list: {test}")
        elif way != "skipped" and expected:
            found.append(f"{way}, and on the list of those to be skipped: {test}")
    found += [
        f"no test is found by {pattern.pattern!r}"
        for pattern in profile.skipped
        if not any(pattern.search(test) for test in outcome.tests)
    ]
    if outcome.counts != dict(profile.counts):
        found.append(f"the counts are {outcome.counts}, expected {dict(profile.counts)}")
    return found
