"""Every requirement has its test or states its gap, and no test names a requirement that there is not."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.requirements import REQUIREMENTS

TESTS = Path(__file__).parent


def named() -> Iterator[tuple[str, str]]:
    """What tests say they prove: requirement, and file with line."""
    for path in TESTS.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and isinstance(mark.func, ast.Name) and mark.func.id == "requirement":
                    assert node.name.startswith("test_"), f"{node.name} is no test"
                    for name in mark.args:
                        yield ast.literal_eval(name), f"{path.relative_to(TESTS)}:{node.lineno}"


def test_every_requirement_has_a_test_or_states_its_gap() -> None:
    shown = {name for name, _ in named()}
    assert [name for name, each in REQUIREMENTS.items() if name not in shown and each.gap is None] == []


def test_no_requirement_states_a_gap_that_a_test_closes() -> None:
    closed = [(name, where) for name, where in named() if name in REQUIREMENTS and REQUIREMENTS[name].gap is not None]
    assert closed == []


def test_no_test_names_a_requirement_that_there_is_not() -> None:
    assert [(name, where) for name, where in named() if name not in REQUIREMENTS] == []
