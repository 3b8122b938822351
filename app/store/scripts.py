"""Database work written once for both databases, as scripts.

A script is a generator: it yields statements, is sent what they found, and returns its result. SQLite runs it on a
thread, PostgreSQL on the event loop; what is decided between the statements is the same code.
"""

from collections.abc import Callable, Generator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

Row = Sequence[Any]

Arrange = Callable[[Sequence[Any]], Sequence[Any]]


class Spelled(NamedTuple):
    """SQL that writes many rows at once, with a group of parameters for each between its two ends."""

    before: str
    row: str
    after: str
    width: int
    """Parameters of a row."""
    arranged: bool
    """Whether they are in the order of the statement for a single row, and not in that of the arguments."""


class Statement:
    """Compiled SQL, with the way from the order its arguments are given in to the order the driver takes them."""

    __slots__ = ("_by_count", "arrange", "packed", "spelled", "sql")

    def __init__(
        self,
        sql: str,
        given: Sequence[str],
        taken: Sequence[str],
        *,
        packed: Sequence[int] | None = None,
        spelled: Spelled | None = None,
    ) -> None:
        """`given` and `taken` are names of parameters; a driver may take one more than once.

        `packed`: all rows come as one JSON array in one row, with bytes as text in these columns. `spelled`: how to
        write many rows at once, where that is not by arrays; it takes the values of a row as this does.
        """
        self.sql = sql
        self.packed = packed
        self.spelled = spelled
        self.arrange: Arrange | None = None
        self._by_count: dict[int, str] = {}
        order = [given.index(name) for name in taken]
        if order != list(range(len(given))):
            pick = itemgetter(*order)
            self.arrange = pick if len(order) > 1 else lambda values: (pick(values),)

    def for_rows(self, spelled: Spelled, count: int) -> str:
        """The SQL that writes so many rows at once."""
        sql = self._by_count.get(count)
        if sql is None:
            sql = self._by_count[count] = spelled.before + ", ".join([spelled.row] * count) + spelled.after
        return sql


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
