"""The rules of DESIGN that no type checker sees; the import contracts themselves are in pyproject.toml."""

import io
import re
import tokenize
from contextlib import redirect_stdout
from pathlib import Path

from importlinter import cli as import_linter

ROOT = Path(__file__).parents[1]
MAX_LINES = 400
FORBIDDEN_NAMES = {"common", "helpers", "manager", "misc", "util", "utils"}


def modules_of_app() -> list[Path]:
    return sorted((ROOT / "app").rglob("*.py"))


def comments(module: Path) -> list[tuple[int, str]]:
    with module.open("rb") as source:
        return [
            (token.start[0], token.string)
            for token in tokenize.tokenize(source.readline)
            if token.type == tokenize.COMMENT
        ]


def test_imports_keep_to_the_contracts() -> None:
    said = io.StringIO()
    with redirect_stdout(said):
        status = import_linter.lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True, no_logo=True)
    assert status == import_linter.EXIT_STATUS_SUCCESS, said.getvalue()


def test_no_module_is_too_long_to_read() -> None:
    lengths = {module.relative_to(ROOT): len(module.read_text("utf-8").splitlines()) for module in modules_of_app()}
    assert {str(module): lines for module, lines in lengths.items() if lines > MAX_LINES} == {}


def test_no_module_is_named_for_nothing() -> None:
    assert [str(module) for module in modules_of_app() if FORBIDDEN_NAMES & {module.stem, module.parent.name}] == []


def test_app_silences_no_type_error() -> None:
    silenced = [
        f"{module.relative_to(ROOT)}:{line}"
        for module in modules_of_app()
        for line, comment in comments(module)
        if re.match(r"#\s*(type:\s*ignore|mypy:|pyright:)", comment)
    ]
    assert silenced == []


def test_every_lint_that_app_silences_is_named_and_explained() -> None:
    unexplained = [
        f"{module.relative_to(ROOT)}:{line}"
        for module in modules_of_app()
        for line, comment in comments(module)
        if "noqa" in comment and not re.match(r"# noqa: [A-Z]+[0-9]+(, [A-Z]+[0-9]+)* - \w", comment)
    ]
    assert unexplained == []


def test_packages_of_alembic_do_not_hide_alembic() -> None:
    # The project's folder is on sys.path; a regular package of that name would shadow the library.
    assert not (ROOT / "alembic" / "__init__.py").exists()
