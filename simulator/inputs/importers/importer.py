"""The one shape of an importer: how it recognises a file, and how it makes rows of a trace from the file's lines."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from domain.identifiers import TenantId
from formats.row_report import RowReport
from formats.trace import NO_NAMES, TraceReader, TraceRow


@dataclass(frozen=True, slots=True)
class FileHead:
    """What is known of a file before it is read: its first lines, without line ends."""

    lines: tuple[str, ...]

    def cells(self, separator: str = ",", line: int = 0) -> tuple[str, ...]:
        """The cells of one of the first lines; none when there is no such line."""
        if line >= len(self.lines):
            return ()
        try:
            return tuple(cell.strip() for cell in next(csv.reader([self.lines[line]], delimiter=separator), ()))
        except csv.Error:
            return ()


@runtime_checkable
class Importer(Protocol):
    """A format that jobs come in."""

    @property
    def name(self) -> str:
        """What `--format` calls it."""
        ...

    @property
    def title(self) -> str:
        """What it is, in a line."""
        ...

    @property
    def epoch(self) -> bool:
        """Whether its times are seconds since the epoch: dates in the file. Otherwise the trace has its own clock."""
        ...

    def recognises(self, head: FileHead) -> bool:
        """Whether a file that begins like this is of this format."""
        ...

    def rows(self, lines: Iterable[str], row_report: RowReport) -> Iterator[TraceRow]:
        """The rows, in the order of the file; bad and left out ones are counted.

        Raises FormatError for a file that is not of this format at all, and with a strict row_report at the first
        bad row.
        """
        ...


@dataclass(frozen=True, slots=True)
class RenamedTrace:
    """A table with a header whose columns mean what the generic trace's do, under other names."""

    name: str
    title: str
    header: tuple[str, ...]
    """It is recognised by having all of these columns."""
    names: Mapping[str, str] = field(default_factory=lambda: NO_NAMES)
    """Our column -> the file's, where it is not a usual name."""
    default_tenant: str | None = None
    """Whose all rows are, where the file does not say."""
    adapt: Callable[[TraceRow], TraceRow] | None = None
    epoch: bool = False

    def recognises(self, head: FileHead) -> bool:
        return set(self.header) <= set(head.cells())

    def rows(self, lines: Iterable[str], row_report: RowReport) -> Iterator[TraceRow]:
        tenant = TenantId(self.default_tenant) if self.default_tenant is not None else None
        reader = TraceReader(lines, row_report.source, default_tenant=tenant, names=self.names, row_report=row_report)
        return iter(reader) if self.adapt is None else map(self.adapt, reader)
