"""The comparison of a run with the written list, and the list itself."""

import re
from pathlib import Path

import pytest

from tests.conformance.expected import Outcome, Profile, differences, expectations, read_report

PROFILE = Profile("X", "agent", {}, [], {"passed": 1, "skipped": 1}, ["kit.test_wrong"], [re.compile(r"grpc\]$")])
AS_WRITTEN = {"kit.test_a[rest]": "passed", "kit.test_a[grpc]": "skipped"}


def test_a_run_as_written_has_no_differences() -> None:
    assert differences(PROFILE, Outcome(AS_WRITTEN), 0, 1) == []


@pytest.mark.parametrize(
    ("changed", "exit_code", "deselected", "said"),
    [
        ({}, 1, 1, "exit code 1"),
        ({}, 0, 0, "0 tests were deselected, expected 1"),
        ({"kit.test_a[rest]": "failed"}, 1, 1, "failed: kit.test_a[rest]"),
        ({"kit.test_a[rest]": "error"}, 1, 1, "error: kit.test_a[rest]"),
        ({"kit.test_a[rest]": "skipped"}, 0, 1, "skipped, and not on the list: kit.test_a[rest]"),
        ({"kit.test_a[grpc]": "passed"}, 0, 1, "passed, and on the list of those to be skipped: kit.test_a[grpc]"),
        ({"kit.test_b[rest]": "passed"}, 0, 1, "the counts are"),
    ],
)
def test_what_is_not_as_written_is_said(changed: dict[str, str], exit_code: int, deselected: int, said: str) -> None:
    found = differences(PROFILE, Outcome({**AS_WRITTEN, **changed}), exit_code, deselected)
    assert any(said in line for line in found), found


def test_an_entry_that_finds_no_test_is_said() -> None:
    found = differences(PROFILE, Outcome({"kit.test_a[rest]": "passed"}), 0, 1)
    assert r"no test is found by 'grpc\\]$'" in found


def test_a_report_is_read(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    cases = (
        '<testcase classname="m" name="a"/>',
        '<testcase classname="m" name="b"><skipped type="pytest.skip"/></testcase>',
        '<testcase classname="m" name="c"><skipped type="pytest.xfail"/></testcase>',
        '<testcase classname="m" name="d"><failure/></testcase>',
        '<testcase classname="m" name="e"><error/></testcase>',
    )
    report.write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
    ways = {"m.a": "passed", "m.b": "skipped", "m.c": "xfailed", "m.d": "failed", "m.e": "error"}
    assert read_report(report).tests == ways


def test_the_written_list_says_why_and_the_guide_has_its_counts() -> None:
    kit = expectations()
    guide = (Path(__file__).parents[2] / "docs" / "conformance.md").read_text("utf-8")
    assert kit.commit in guide
    for profile in kit.profiles:
        row = next(line for line in guide.splitlines() if line.startswith(f"| {profile.name} |"))
        passed, skipped = profile.counts["passed"], profile.counts.get("skipped", 0)
        left_out = len(profile.deselected) or "–"
        assert row.endswith(f"| {passed} | {skipped} | {left_out} |"), row
