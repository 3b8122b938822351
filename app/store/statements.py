"""Builds statements with SQLAlchemy Core and compiles each once for the driver that will run it.

How the two databases differ is here: how many rows travel in one statement (`executemany` or arrays), how a list is
passed, and what the clock is called.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ClauseElement,
    ColumnElement,
    Delete,
    FromClause,
    LargeBinary,
    Select,
    Table,
    Text,
    Update,
    any_,
    bindparam,
    cast,
    column,
    func,
    literal_column,
    select,
    table,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.types import TypeEngine

from app.store.scripts import Spelled, Statement

DialectName = Literal["sqlite", "postgresql"]

_NOW_MS: Final = {
    "postgresql": "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)",
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000 AS integer)",
}

Types = Mapping[str, TypeEngine[Any]]


_VALUES_HERE: Final = "values_here AS v"
_ON_CONFLICT: Final = {"fail": "OR FAIL", "keep": "OR IGNORE", "replace": "OR REPLACE"}
"""To undo a statement by itself, SQLite keeps a copy of every page it changes. These leave that to the transaction."""


class Rows:
    """The values of a row to be written, as columns a statement can use; `source` is where they come from, if named."""

    def __init__(self, names: Sequence[str], values: Sequence[ColumnElement[Any]], source: FromClause | None) -> None:
        self.names = names
        self.source = source
        self._values = dict(zip(names, values, strict=True))

    def __getitem__(self, name: str) -> ColumnElement[Any]:
        return self._values[name]

    @classmethod
    def parameters(cls, types: Types) -> "Rows":
        """A parameter each, for a statement that runs once a row."""
        return cls(list(types), [bindparam(f"v_{name}", type_=type_) for name, type_ in types.items()], None)

    @classmethod
    def arrays(cls, types: Types) -> "Rows":
        """An array each: PostgreSQL writes all rows in one statement."""
        given = [bindparam(f"v_{name}", type_=ARRAY(type_)) for name, type_ in types.items()]
        named = func.unnest(*given).table_valued(*(column(name, type_) for name, type_ in types.items()), name="v")
        source = named.render_derived()
        return cls(list(types), [source.c[name] for name in types], source)

    @classmethod
    def spelled(cls, types: Types) -> "Rows":
        """A column each of values spelled out where the SQL says `_VALUES_HERE`; SQLite numbers them."""
        columns = [column(f"column{number}", type_) for number, type_ in enumerate(types.values(), start=1)]
        source = table("values_here", *columns).alias("v")
        return cls(list(types), list(source.c), source)


class Pairs(NamedTuple):
    """A list of strings with an integer each, as something to select from."""

    source: FromClause
    text: ColumnElement[str]
    number: ColumnElement[int]
    names: Sequence[str]
    """Names of the parameters it takes."""


class Builder:
    """Builds statements for one of the two databases."""

    def __init__(self, name: DialectName) -> None:
        self.name: DialectName = name
        self.has_arrays = name == "postgresql"
        self._dialect = make_url("postgresql+asyncpg://" if self.has_arrays else "sqlite://").get_dialect()()
        self.now_ms: ColumnElement[int] = literal_column(_NOW_MS[name], BigInteger)
        """The database's clock, at the moment it is read."""

    def query(self, statement: ClauseElement, *given: str) -> Statement:
        """A statement to run once, with arguments in the order of these parameter names."""
        return self._compiled(statement, given)

    def select(self, statement: Select[Any], *given: str) -> Statement:
        """A query that finds many rows. Its columns of bytes hold text.

        SQLite lets the interpreter go for every row it steps to, and a busy event loop gives it back late: all rows
        come in one.
        """
        if self.has_arrays:
            return self._compiled(statement, given)
        rows = statement.subquery("r")
        packed = [number for number, found in enumerate(rows.c) if isinstance(found.type, LargeBinary)]
        cells = [cast(found, Text) if isinstance(found.type, LargeBinary) else found for found in rows.c]
        return self._compiled(select(func.json_group_array(func.json_array(*cells))), given, packed=packed)

    def change(self, types: Types, made: Callable[[Rows], Update | Delete]) -> Statement:
        """An update or delete to run for each of some rows, which have columns of these types."""
        given = [f"v_{name}" for name in types]
        if self.has_arrays:
            return self._compiled(made(Rows.arrays(types)), given)
        spelled = None
        if isinstance(many := made(Rows.spelled(types)), Update):
            sql = str(many.prefix_with(_ON_CONFLICT["fail"]).compile(dialect=self._dialect))
            before, _, after = sql.partition(_VALUES_HERE)
            row = f"({', '.join('?' * len(types))})"
            spelled = Spelled(f"{before}(VALUES ", row, f") AS v{after}", len(types), arranged=False)
        return self._compiled(made(Rows.parameters(types)), given, spelled=spelled)

    def insert(
        self,
        into: Table,
        changed: Callable[[Rows], Mapping[str, ColumnElement[Any]]] | None = None,
        *,
        on_conflict: Literal["fail", "keep", "replace"] = "fail",
    ) -> Statement:
        """An insert to run for each of some rows, in the order of the table's columns.

        `changed` are columns that do not get what they are given. Where the primary key is taken: fail, keep what is
        there, or replace all other columns.
        """
        types = {found.name: found.type for found in into.columns}
        given = [f"v_{name}" for name in types]
        rows = Rows.arrays(types) if self.has_arrays else Rows.parameters(types)
        values = {name: rows[name] for name in types} | dict(changed(rows) if changed is not None else {})
        if not self.has_arrays:
            insert = sqlite.insert(into).values(values).prefix_with(_ON_CONFLICT[on_conflict])
            before, marked, row = str(insert.compile(dialect=self._dialect)).partition(" VALUES ")
            spelled = Spelled(before + marked, row, "", row.count("?"), arranged=True)
            return self._compiled(insert, given, spelled=spelled)
        made = postgresql.insert(into).from_select(list(values), select(*values.values()))
        if on_conflict == "keep":
            made = made.on_conflict_do_nothing()
        elif on_conflict == "replace":
            key = [key_column.name for key_column in into.primary_key]
            made = made.on_conflict_do_update(
                index_elements=key, set_={name: made.excluded[name] for name in values if name not in key}
            )
        return self._compiled(made, given)

    def _compiled(
        self,
        statement: ClauseElement,
        given: Sequence[str],
        *,
        packed: Sequence[int] | None = None,
        spelled: Spelled | None = None,
    ) -> Statement:
        compiled: Any = statement.compile(dialect=self._dialect)
        taken: list[str] = list(dict.fromkeys(compiled.positiontup) if self.has_arrays else compiled.positiontup)
        return Statement(str(compiled), given, taken, packed=packed, spelled=spelled)

    def pairs(self) -> Pairs:
        """Strings with an integer each: two lists of arguments where there are arrays, else one list of pairs."""
        if self.has_arrays:
            rows = Rows.arrays({"text": Text(), "number": BigInteger()})
            assert rows.source is not None  # noqa: S101 - arrays have one
            return Pairs(rows.source, rows["text"], rows["number"], ("v_text", "v_number"))
        listed = func.json_each(bindparam("pairs", type_=Text)).table_valued("value", name="v")
        text = func.json_extract(listed.c.value, literal_column("'$[0]'"), type_=Text)
        integer = func.json_extract(listed.c.value, literal_column("'$[1]'"), type_=BigInteger)
        return Pairs(listed, text, integer, ("pairs",))

    def greatest(self, one: ColumnElement[int], other: ColumnElement[int]) -> ColumnElement[int]:
        """The greater of two."""
        return func.greatest(one, other) if self.has_arrays else func.max(one, other)

    def among(self, tested: ColumnElement[str], parameter: str) -> ColumnElement[bool]:
        """Whether a column is one of the strings of a list parameter."""
        if self.has_arrays:
            return tested == any_(bindparam(parameter, type_=ARRAY(Text)))
        listed = func.json_each(bindparam(parameter, type_=Text)).table_valued("value", name=parameter)
        return tested.in_(select(listed.c.value))


def number(value: int) -> ColumnElement[int]:
    """An integer written into the statement."""
    return literal_column(str(value), BigInteger)
