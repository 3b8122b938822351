"""Database work written once for both databases, as scripts.

A script is a generator: it yields statements, is sent what they found, and returns its result. SQLite runs it on a
thread, PostgreSQL on the event loop; what is decided between the statements is the same code.
"""

from collections.abc import Callable, Generator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

Row = Sequence[Any]


class Statement:
    """Compiled SQL, with the way from the order its arguments are given in to the order the driver takes them."""

    __slots__ = ("arrange", "sql")

    def __init__(self, sql: str, given: Sequence[str], taken: Sequence[str]) -> None:
        """`given` and `taken` are names of parameters; a driver may take one more than once."""
        self.sql = sql
        order = [given.index(name) for name in taken]
        self.arrange: Callable[[Sequence[Any]], Sequence[Any]] | None = None
        if order != list(range(len(given))):
            pick = itemgetter(*order)
            self.arrange = pick if len(order) > 1 else lambda values: (pick(values),)


class Query(NamedTuple):
    """Run a statement once; answered with its rows. A list among the arguments is an array."""

    statement: Statement
    args: Sequence[Any]


class Write(NamedTuple):
    """Run a statement for each row, in order; answered with the number of rows it changed."""

    statement: Statement
    rows: Sequence[Sequence[Any]]


Script = Generator[Query | Write, Any, T]


def fetch(statement: Statement, *args: Any) -> Script[Sequence[Row]]:
    """The rows of a query."""
    rows: Sequence[Row] = yield Query(statement, args)
    return rows


def write(statement: Statement, rows: Sequence[Sequence[Any]]) -> Script[int]:
    """How many rows were changed; asks nothing of the database where there is nothing to write."""
    if not rows:
        return 0
    count: int = yield Write(statement, rows)
    return count
