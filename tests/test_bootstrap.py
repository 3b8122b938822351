"""What the agent file and the settings must be for a start, each fault said in one sentence."""

import sys
from pathlib import Path

import pytest

from app.bootstrap import StartError, build_app, load_agent
from app.cli import read_settings
from app.settings import Settings

CARD = """
from app.protocol import AgentCard
card = AgentCard(name="Mine", description="Mine.", version="1.0.0", skills=[])
"""


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (None, "A2A_AGENT names the module 'mine', which does not exist."),
        ("import nothing_such", "The agent module 'mine' imports 'nothing_such', which is not installed."),
        ("1 / 0", "The agent module 'mine' failed to import: ZeroDivisionError: division by zero"),
        ("async def handle(turn): ...", "The agent module 'mine' needs `card = AgentCard(…)`."),
        (CARD, "The agent module 'mine' needs `async def handle(turn: Turn) -> None`."),
        (
            CARD + "def handle(turn): ...",
            "`handle` of the agent module 'mine' must be `async def`; run blocking work in a thread.",
        ),
        (
            CARD + "async def handle(turn): ...\nrecovery = 'hope'",
            "`recovery` of the agent module 'mine' must be \"fail\" or \"restart\", not 'hope'.",
        ),
        (
            CARD + "async def handle(turn): ...\nmay_reply = 'yes'",
            "`may_reply` of the agent module 'mine' must be True or False, not 'yes'.",
        ),
        (
            CARD + "async def handle(turn): ...\nturn_timeout = 0",
            "`turn_timeout` of the agent module 'mine' must be seconds above 0, not 0.",
        ),
    ],
)
def test_an_agent_file_that_cannot_serve_is_refused_with_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str | None, sentence: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    if source is not None:
        (tmp_path / "mine.py").write_text(source)
    with pytest.raises(StartError) as refusal:
        load_agent("mine")
    assert str(refusal.value) == sentence
    sys.modules.pop("mine", None)


def test_a_store_url_of_no_known_scheme_is_refused() -> None:
    with pytest.raises(StartError, match="A2A_STORE_URL"):
        build_app(Settings(_env_file=None, store_url="carrier-pigeon://loft"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "high"),
        ("PORT", "70000"),
        ("LEASE_TTL", "soon"),
        ("LOG_LEVEL", "loud"),
        ("PUBLIC_URL", "nowhere"),
        ("MAX_BODY_BYTES", "0"),
        ("MAX_EVENTS_PER_TASK", "-1"),
        ("DOCS", "perhaps"),
    ],
)
def test_a_wrong_setting_ends_the_process_with_one_line_that_names_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str
) -> None:
    monkeypatch.setenv(f"A2A_{name}", value)
    with pytest.raises(SystemExit) as ended:
        read_settings(_env_file=None)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"a2a: A2A_{name}: ")
    assert said.count("\n") == 1
