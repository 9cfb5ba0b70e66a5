"""What the definitions of all tables share."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Column, MetaData, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.sql.schema import SchemaItem
from sqlalchemy.types import TypeEngine

METADATA: Final = MetaData()

NAME: Final = Text(collation="C")
"""What identifies something. Compared by code points, as Python does: the order of the queue ends in a name."""

DOCUMENT: Final = JSONB(none_as_null=True)
"""JSON; None is written as NULL, not as JSON's null."""

REWRITTEN: Final = {"fillfactor": "80"}
"""Storage of rows that change while they live: room on their page keeps a change away from the indexes."""


def key(name: str, type_: type[TypeEngine[Any]] | TypeEngine[Any], *more: SchemaItem) -> Column[Any]:
    """A column of the primary key."""
    return Column(name, type_, *more, primary_key=True)


def required(
    name: str, type_: type[TypeEngine[Any]] | TypeEngine[Any], *more: SchemaItem, **options: Any
) -> Column[Any]:
    """A column that is never null."""
    return Column(name, type_, *more, nullable=False, **options)


def optional(name: str, type_: type[TypeEngine[Any]] | TypeEngine[Any]) -> Column[Any]:
    """A column that may be null; what null means stands beside it."""
    return Column(name, type_, nullable=True)
