"""Moves of tables during a simulation: which, when, and how fast and how much regions can take them."""

from __future__ import annotations

import csv
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from data_placement.catalog import Catalog
from data_placement.links import Links
from data_placement.migrations.bandwidth import BACKGROUND_SHARE
from data_placement.move_kinds import COPY, HOME, HOME_KEEPING_COPY
from domain.fleet import Fleet
from domain.identifiers import RegionId, TableId
from domain.table_partitions import TablePartition, TablePartitions
from formats.problems import FieldProblem, FormatError

_REQUIRED = ("table", "target")
_MOST_PROBLEMS = 20


@dataclass(frozen=True, slots=True)
class TableMoveAt:
    """A table is to get a copy in another region, which may become its home."""

    t_s: float
    """After the beginning of the run."""
    table: TableId
    target: RegionId
    moves_home: bool = True
    """Whether the target becomes the home."""
    priority: int = 0
    deadline_s: float | None = None
    """After the beginning of the run; None: in the background."""
    newest_partitions: int | None = None
    """Of a copy: so many of the newest partitions alone; None: the whole table, or `newest_share` of it."""
    newest_share: float | None = None
    """Of a copy: the newest partitions alone that are this part of the table's bytes, as a plan has it; None: the whole table."""
    keeps_old_copy: bool = False
    """Whether the old home keeps its copy; else that is deleted."""


@dataclass(frozen=True, slots=True)
class TableMovesInput:
    """Everything about tables that move."""

    moves: Sequence[TableMoveAt] = ()
    links: Links = Links()
    capacity_bytes: Mapping[RegionId, float] = field(default_factory=dict)
    """Of regions whose storage is limited."""
    bytes_per_day: float = math.inf
    background_share: float = BACKGROUND_SHARE
    on_demand: bool = False
    """Whether tables are copied for workloads that wait for them."""
    partitions: Mapping[TableId, TablePartitions] = field(default_factory=dict)
    """Of tables that are read, or copied, in part."""

    def partitions_in(self, catalog: Catalog) -> dict[TableId, TablePartitions]:
        """Of tables that are read, or copied, in part. One of which nothing is known consists of the parts that are copied."""
        found = dict(self.partitions)
        shares: dict[TableId, set[float]] = {}
        for move in self.moves:
            if move.newest_share is not None and move.table not in found:
                shares.setdefault(move.table, set()).add(move.newest_share)
        for name, of_table in sorted(shares.items()):
            table = catalog.table(name)
            if table is not None:
                found[name] = _cut(table.size_bytes, of_table)
        return found


def read_table_moves(path: Path) -> tuple[TableMoveAt, ...]:
    """The moves of a CSV file, in its order: `table` and `target`; optional `t_s` (0), `kind` (home, home_keeping_copy or copy), `priority` (0),
    `deadline_s`, `newest_partitions` or `newest_share` (of a copy: so many of the newest alone, or so much of the table's
    bytes). What `topmast data plan -o` writes is such a file; other columns are not read.

    Raises FormatError that names row and column.
    """
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        missing = [name for name in _REQUIRED if name not in (reader.fieldnames or ())]
        if missing:
            raise FormatError(str(path), [FieldProblem(missing[0], "is missing; the header must name it")])
        moves: list[TableMoveAt] = []
        problems: list[FieldProblem] = []
        for number, row in enumerate(reader, 2):
            try:
                moves.append(_move(row))
            except ValueError as error:
                problems.append(FieldProblem(f"line {number}", str(error)))
    if problems:
        raise FormatError(str(path), problems[:_MOST_PROBLEMS])
    return tuple(moves)


def check_table_moves(given: TableMovesInput, catalog: Catalog, fleet: Fleet, source: str) -> None:
    """Raises FormatError for tables and regions that there are not, and for numbers of partitions that nobody knows."""
    regions = {region.region for region in fleet.regions}
    for number, move in enumerate(given.moves):
        place = f"moves[{number}]"
        if catalog.table(move.table) is None:
            description = f"{move.table} does not exist; add it to the tables of the fleet file, or leave the move out"
            raise FormatError(source, [FieldProblem(f"{place}.table", description)])
        if move.target not in regions:
            description = f"{move.target} is no region of the fleet; the regions are {', '.join(sorted(regions))}"
            raise FormatError(source, [FieldProblem(f"{place}.target", description)])
        if move.newest_partitions is not None and move.table not in given.partitions:
            description = f"nothing is known of the partitions of {move.table}; say newest_share, the part of its bytes"
            raise FormatError(source, [FieldProblem(f"{place}.newest_partitions", description)])


def _cut(size_bytes: int, shares: Collection[float]) -> TablePartitions:
    """A table cut where the newest partitions are these parts of its bytes."""
    ends = sorted({math.ceil(share * size_bytes) for share in shares} | {size_bytes})
    begins = [0, *ends[:-1]]
    return TablePartitions(
        tuple(
            TablePartition(f"newest-{number}", end - begin)
            for number, (begin, end) in enumerate(zip(begins, ends, strict=True), 1)
        )
    )


def _move(row: Mapping[str, str | None]) -> TableMoveAt:
    """Raises ValueError with a sentence that names the column."""
    table, target = (row.get("table") or "").strip(), (row.get("target") or "").strip()
    if not table or not target:
        raise ValueError(f"{'table' if not table else 'target'} must not be empty")
    kind = (row.get("kind") or HOME).strip()
    if kind not in (HOME, HOME_KEEPING_COPY, COPY):
        raise ValueError(f"kind is {kind!r}; it must be {HOME}, {HOME_KEEPING_COPY} or {COPY}")
    t_s, deadline_s = _number(row, "t_s"), _number(row, "deadline_s")
    priority, newest = _number(row, "priority") or 0.0, _number(row, "newest_partitions")
    if newest is not None and (kind != COPY or newest < 1 or newest != int(newest)):
        raise ValueError("newest_partitions must be a whole number from 1 on, of a copy; a home has all partitions")
    share = _number(row, "newest_share")
    if share is not None and (kind != COPY or not 0.0 < share <= 1.0):
        raise ValueError("newest_share must be more than 0 and at most 1, of a copy; a home has all partitions")
    if share is not None and newest is not None:
        raise ValueError("newest_share and newest_partitions say the same; leave one of them empty")
    return TableMoveAt(
        t_s or 0.0,
        TableId(table),
        RegionId(target),
        kind != COPY,
        int(priority),
        deadline_s,
        None if newest is None else int(newest),
        share,
        kind == HOME_KEEPING_COPY,
    )


def _number(row: Mapping[str, str | None], name: str) -> float | None:
    text = (row.get(name) or "").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{name} is {text!r}; it must be a number") from None
    if not 0 <= value < math.inf:
        raise ValueError(f"{name} is {text}; it must be 0 or more")
    return value
