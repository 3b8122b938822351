"""`.env.example` and the table of limits are the settings, and every setting makes a difference."""

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from app.bootstrap import message_limits, turn_limits
from app.protocol.limits import MessageLimits, TurnLimits
from app.settings import Beyond, Settings

ROOT = Path(__file__).parent.parent


def env_example() -> str:
    """What `.env.example` must be, from the settings themselves."""
    blocks = []
    for name, field in Settings.model_fields.items():
        default = "" if field.default is None else str(field.default)
        if isinstance(field.default, bool):
            default = default.lower()
        elif isinstance(field.default, float):
            default = f"{field.default:g}s"
        blocks.append(f"# {field.description}\n# A2A_{name.upper()}={default}\n")
    return "# Every setting with its default. Copy to .env and uncomment what you change.\n\n" + "\n".join(blocks)


def test_the_env_example_lists_every_setting_with_its_default() -> None:
    assert (ROOT / ".env.example").read_text() == env_example()


def table_of_limits() -> str:
    """What the table of `docs/operations.md` must be, from the settings themselves."""
    rows = ["| setting | default | what it bounds | beyond it |", "| --- | --- | --- | --- |"]
    for name, field in Settings.model_fields.items():
        for mark in field.metadata:
            if isinstance(mark, Beyond):
                default = f"{field.default:g}s" if isinstance(field.default, float) else f"{field.default:,}"
                rows.append(f"| `A2A_{name.upper()}` | {default} | {field.description} | {mark.answer} |")
    return "\n".join(rows) + "\n"


def test_the_table_of_limits_is_the_settings() -> None:
    document = (ROOT / "docs" / "operations.md").read_text()
    assert table_of_limits().count("\n") > 12
    assert table_of_limits() in document


def test_the_limits_of_the_settings_are_those_of_a_rehearsal() -> None:
    settings = Settings(_env_file=None)
    assert turn_limits(settings) == TurnLimits()
    assert message_limits(settings) == MessageLimits()


def settings_that_are_tested() -> set[str]:
    """Names in `@pytest.mark.setting(…)`: such a test sets them away from their default and sees the difference."""
    marks = [
        match[1]
        for module in (ROOT / "tests").rglob("test_*.py")
        for match in re.finditer(r"^\s*@pytest\.mark\.setting\(([^)]*)\)", module.read_text(), re.MULTILINE)
    ]
    return {name for mark in marks for name in re.findall(r'"(\w+)"', mark)}


def test_every_setting_has_a_test_that_sees_its_difference() -> None:
    assert settings_that_are_tested() == set(Settings.model_fields)


@pytest.mark.parametrize(
    ("written", "seconds"), [("500ms", 0.5), ("30s", 30.0), ("15m", 900.0), ("24h", 86_400.0), ("7d", 604_800.0)]
)
def test_durations_are_written_with_their_unit(written: str, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A2A_LEASE_TTL", written)
    assert Settings(_env_file=None).lease_ttl == seconds


@pytest.mark.parametrize("written", ["soon", "PT30S", "-1s", "0s", "30"])
def test_a_duration_that_is_none_is_refused(written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A2A_LEASE_TTL", written)
    with pytest.raises(ValidationError, match="lease_ttl"):
        Settings(_env_file=None)


def test_an_empty_variable_is_as_if_it_were_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A2A_PUBLIC_URL", "")
    assert Settings(_env_file=None).public_url is None
