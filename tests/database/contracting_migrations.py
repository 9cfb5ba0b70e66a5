"""What a migration takes away from the program before it: read from its source, never run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

_CONTRACTING = (
    ("drops a table", re.compile(r"\bDROP\s+(TABLE|VIEW|TYPE|SEQUENCE|FUNCTION|SCHEMA)\b", re.IGNORECASE)),
    (
        "drops a column",
        re.compile(
            r"\bDROP\s+(COLUMN\b|(?!CONSTRAINT|INDEX|NOT\b|DEFAULT|IDENTITY|EXPRESSION|\w*\s*TABLE)\w+\s*(,|$))",
            re.IGNORECASE,
        ),
    ),
    ("renames", re.compile(r"\bRENAME\b", re.IGNORECASE)),
    ("changes a type", re.compile(r"\bALTER\s+(COLUMN\s+)?\w+\s+(SET\s+DATA\s+)?TYPE\b", re.IGNORECASE)),
    ("forbids null", re.compile(r"\bSET\s+NOT\s+NULL\b", re.IGNORECASE)),
    ("takes a default away", re.compile(r"\bDROP\s+DEFAULT\b", re.IGNORECASE)),
    ("adds a constraint", re.compile(r"\bADD\s+(CONSTRAINT|CHECK|UNIQUE|FOREIGN|PRIMARY)\b", re.IGNORECASE)),
)
_ADDED_COLUMN = re.compile(
    r"\bADD\s+(?:COLUMN\s+)?(?!CONSTRAINT|CHECK|UNIQUE|FOREIGN|PRIMARY)(?P<rest>[^,;]*)", re.IGNORECASE
)
_OPERATIONS = frozenset({"drop_table", "drop_column", "rename_table", "alter_column", "create_check_constraint"})
"""Of Alembic: what they do to the tables cannot be read as SQL."""


def contracting_operations(source: str) -> list[str]:
    """What `upgrade` does that a program of before may stumble over, in the order in which it is done."""
    return [
        finding
        for function in ast.parse(source).body
        if isinstance(function, ast.FunctionDef) and function.name == "upgrade"
        for node in ast.walk(function)
        for finding in _of(node)
    ]


def _of(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Attribute) and node.attr in _OPERATIONS:
        yield f"op.{node.attr}"
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return
    for what, pattern in _CONTRACTING:
        if pattern.search(node.value):
            yield what
    if re.search(r"\bALTER\s+TABLE\b", node.value, re.IGNORECASE):
        for added in _ADDED_COLUMN.finditer(node.value):
            rest = added.group("rest").upper()
            if "NOT NULL" in rest and "DEFAULT" not in rest and "GENERATED" not in rest:
                yield "adds a column that must be given"


def oldest_program(source: str) -> str | None:
    """The revision of the oldest program that can go on, where a migration says so: `CONTRACTS_FOR = "0123"`."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and [getattr(target, "id", None) for target in node.targets] == [
            "CONTRACTS_FOR"
        ]:
            value = node.value
            return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None
    return None


def problems_of(path: Path) -> list[str]:
    """What is wrong with a migration: it contracts and does not say so, or does not write down for whom it still fits."""
    source = path.read_text(encoding="utf-8")
    found, oldest = contracting_operations(source), oldest_program(source)
    if oldest is None:
        return [f"{path.name} {finding}, and a program of the version before may be at work" for finding in found]
    revision = path.name.partition("_")[0]
    problems = []
    if not oldest < revision:
        problems.append(
            f"{path.name}: CONTRACTS_FOR is {oldest}; it must be an earlier migration, of a version that was released"
        )
    if not re.search(r"UPDATE\s+fitting_programs\s+SET\s+oldest_revision", source):
        problems.append(f"{path.name} does not write CONTRACTS_FOR into fitting_programs")
    return problems
