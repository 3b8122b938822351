"""Builds statements with SQLAlchemy Core and compiles each once for the driver that will run it.

How the two databases differ is here: how many rows travel in one statement (`executemany` or arrays), how a list is
passed, and what the clock is called.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ClauseElement,
    ColumnElement,
    Delete,
    FromClause,
    Table,
    Text,
    Update,
    any_,
    bindparam,
    column,
    func,
    literal_column,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.types import TypeEngine

from app.store.scripts import Statement

DialectName = Literal["sqlite", "postgresql"]

_NOW_MS: Final = {
    "postgresql": "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)",
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000 AS integer)",
}

Types = Mapping[str, TypeEngine[Any]]


class Rows:
    """The values of rows to be written, as columns a statement can use; `source` is where they come from, if named."""

    def __init__(self, types: Types, *, as_arrays: bool) -> None:
        self.names = tuple(types)
        self.source: FromClause | None = None
        self._values: dict[str, ColumnElement[Any]]
        if as_arrays:
            arrays = [bindparam(f"v_{name}", type_=ARRAY(type_)) for name, type_ in types.items()]
            table = func.unnest(*arrays).table_valued(*(column(name, type_) for name, type_ in types.items()), name="v")
            self.source = table.render_derived()
            self._values = {name: self.source.c[name] for name in types}
        else:
            self._values = {name: bindparam(f"v_{name}", type_=type_) for name, type_ in types.items()}

    def __getitem__(self, name: str) -> ColumnElement[Any]:
        return self._values[name]


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
        compiled: Any = statement.compile(dialect=self._dialect)
        taken: list[str] = list(dict.fromkeys(compiled.positiontup) if self.has_arrays else compiled.positiontup)
        return Statement(str(compiled), given, taken)

    def rows(self, types: Types) -> Rows:
        """Rows to be written, with the types of their columns."""
        return Rows(types, as_arrays=self.has_arrays)

    def change(self, statement: Update | Delete, rows: Rows) -> Statement:
        """An update or delete to run for each of these rows."""
        return self.query(statement, *(f"v_{name}" for name in rows.names))

    def insert(
        self,
        table: Table,
        rows: Rows,
        values: Mapping[str, ColumnElement[Any]] | None = None,
        *,
        on_conflict: Literal["fail", "keep", "replace"] = "fail",
    ) -> Statement:
        """An insert to run for each of these rows; `values` are the columns' expressions where they are more than that.

        Where the primary key is taken: fail, keep what is there, or replace all other columns.
        """
        given = {name: rows[name] for name in rows.names} if values is None else values
        insert = postgresql.insert(table) if self.has_arrays else sqlite.insert(table)
        if rows.source is not None:
            insert = insert.from_select(list(given), select(*given.values()).select_from(rows.source))
        else:
            insert = insert.values(dict(given))
        if on_conflict == "keep":
            insert = insert.on_conflict_do_nothing()
        elif on_conflict == "replace":
            key = [key_column.name for key_column in table.primary_key]
            insert = insert.on_conflict_do_update(
                index_elements=key, set_={name: insert.excluded[name] for name in given if name not in key}
            )
        return self.query(insert, *(f"v_{name}" for name in rows.names))

    def pairs(self) -> Pairs:
        """Strings with an integer each: two lists of arguments where there are arrays, else one list of pairs."""
        if self.has_arrays:
            rows = self.rows({"text": Text(), "number": BigInteger()})
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
