"""Statements of SQLAlchemy Core on psycopg connections: compiled to text and parameters, then executed like any text.

There is no engine and no session: transactions, retries and wake-ups stay with `Database`, and rows come as psycopg
reads them. The names and types of columns are those of services.database.tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

from psycopg import AsyncCursor
from psycopg.rows import TupleRow
from sqlalchemy import ColumnElement, Dialect, Table, TableValuedAlias, any_, bindparam, column, func, select
from sqlalchemy.dialects.postgresql import ARRAY, Insert, insert
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.sql.dml import UpdateBase
from sqlalchemy.sql.selectable import SelectBase

from services.database.connection import AnyConnection

Statement: TypeAlias = SelectBase | UpdateBase

_DIALECT: Final[Dialect] = PGDialect_psycopg()  # type: ignore[no-untyped-call]  # SQLAlchemy gives it no types


async def execute(connection: AnyConnection, statement: Statement) -> AsyncCursor[TupleRow]:
    """Executes the statement inside the caller's transaction, as `connection.execute` does a text."""
    text, parameters = as_text(statement)
    return await connection.execute(text, parameters)


def as_text(statement: Statement) -> tuple[bytes, dict[str, object]]:
    """The statement and its parameters as psycopg takes them.

    Raises ValueError for `column.in_(values)`, whose text would depend on how many values there are: use `any_of`.
    """
    compiled = statement.compile(dialect=_DIALECT)
    values = compiled.params
    parameters: dict[str, object] = {}
    for parameter, name in compiled.bind_names.items():
        if parameter.expanding:
            raise ValueError(f"a list of values cannot be a parameter of {statement}: use any_of")
        convert = parameter.type.dialect_impl(_DIALECT).bind_processor(_DIALECT)
        parameters[name] = values[name] if convert is None else convert(values[name])
    return str(compiled).encode(), parameters


def any_of(wanted: ColumnElement[Any], values: Iterable[object]) -> ColumnElement[bool]:
    """True where the column has one of these values; for none of them, nowhere."""
    return wanted == any_(_array(wanted, list(values)))


def rows_of(table: Table, names: Sequence[str], rows: Sequence[Sequence[object]]) -> TableValuedAlias:
    """These rows as a table `u` to join with or to select from; its columns have the types of the table's."""
    arrays = [_array(table.c[name], [row[place] for row in rows]) for place, name in enumerate(names)]
    columns = [column(name, table.c[name].type) for name in names]
    return func.unnest(*arrays).table_valued(*columns, name="u").render_derived()


def insert_rows(table: Table, names: Sequence[str], rows: Sequence[Sequence[object]]) -> Insert:
    """Inserts these rows, which hold what the named columns get, in one statement, however many they are."""
    given = rows_of(table, names, rows)
    return insert(table).from_select(list(names), select(*given.c))


def upsert_rows(table: Table, names: Sequence[str], rows: Sequence[Sequence[object]]) -> Insert:
    """Inserts these rows; where one with the same primary key is there already, changes the named columns of that."""
    insertion = insert_rows(table, names, rows)
    keys = [key.name for key in table.primary_key]
    changes = {name: insertion.excluded[name] for name in names if name not in keys}
    return insertion.on_conflict_do_update(index_elements=keys, set_=changes)


def _array(like: ColumnElement[Any], values: list[object]) -> ColumnElement[Any]:
    return bindparam(None, values, type_=ARRAY(like.type), unique=True)
