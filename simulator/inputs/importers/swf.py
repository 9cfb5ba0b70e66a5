"""The Standard Workload Format 2.2 of the Parallel Workloads Archive: 18 numbers a line, comments behind `;`.

A processor counts as a GPU: the requested ones, or where the log does not say (-1) the allocated ones. The user is the
tenant. Lines of status 2, 3 and 4 are pieces of jobs whose whole stands in a line of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from domain.identifiers import TenantId, WorkloadId
from formats.problems import in_quotes
from formats.row_report import RowReport
from formats.trace import GREATEST_GPUS, TraceRow
from formats.trace_cells import GREATEST_TIME_S, BadCell, number_cell, whole_cell
from simulator.inputs.importers.accepting import LeftOut, accepted_rows
from simulator.inputs.importers.cells import positive_duration
from simulator.inputs.importers.importer import FileHead

FIELDS = (
    "job number",
    "submit time",
    "wait time",
    "run time",
    "allocated processors",
    "average CPU time",
    "used memory",
    "requested processors",
    "requested time",
    "requested memory",
    "status",
    "user",
    "group",
    "executable",
    "queue",
    "partition",
    "preceding job",
    "think time",
)
_JOB, _SUBMIT, _RUN, _ALLOCATED, _REQUESTED, _STATUS, _USER = 0, 1, 3, 4, 7, 10, 11
_PIECES = frozenset({2, 3, 4})
_is_number = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]*)?", re.ASCII).fullmatch


@dataclass(frozen=True, slots=True)
class Swf:
    name: str = "swf"
    title: str = "the Standard Workload Format"
    epoch: bool = False

    def recognises(self, head: FileHead) -> bool:
        lines = [line for line in head.lines if line.strip()]
        if not lines:
            return False
        numbers = [line.split() for line in lines if not line.lstrip().startswith(";")]
        if not numbers:
            return all(line.lstrip().startswith(";") for line in lines)
        return len(numbers[0]) == len(FIELDS) and all(_is_number(word) is not None for word in numbers[0])

    def rows(self, lines: Iterable[str], row_report: RowReport) -> Iterator[TraceRow]:
        return accepted_rows(_records(lines), _row, FIELDS[_JOB], row_report)


def _records(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """The words of each line that is not blank, without comments."""
    for number, line in enumerate(lines, 1):
        words = line.partition(";")[0].split()
        if words:
            yield number, words


def _row(words: list[str], _row_report: RowReport) -> TraceRow:
    if len(words) != len(FIELDS):
        raise BadCell("the row", f"has {len(words)} fields; there are {len(FIELDS)} in this format")
    if _signed(words, _STATUS) in _PIECES:
        raise LeftOut("are pieces of a job that has a line of its own")
    run_s = _signed(words, _RUN)
    requested, allocated = _signed(words, _REQUESTED), _signed(words, _ALLOCATED)
    processors = requested if requested > 0 else allocated
    if run_s < 0 or processors <= 0:
        raise LeftOut("never started")
    if processors > GREATEST_GPUS or processors != int(processors):
        raise BadCell(FIELDS[_REQUESTED], f"must be a whole number up to {GREATEST_GPUS}, not {processors:g}")
    user = _signed(words, _USER)
    return TraceRow(
        workload_id=WorkloadId(str(whole_cell(FIELDS[_JOB], words[_JOB], 0, 10**15))),
        tenant=TenantId(f"user-{user:.0f}" if user >= 0 else "unknown"),
        submit_s=number_cell(FIELDS[_SUBMIT], words[_SUBMIT]),
        duration_s=positive_duration(run_s, FIELDS[_RUN], "is negative"),
        gpus=int(processors),
    )


def _signed(words: list[str], place: int) -> float:
    """A field in which -1 stands for unknown."""
    word = words[place]
    if not _is_number(word) or abs(float(word)) > GREATEST_TIME_S:
        raise BadCell(FIELDS[place], f"must be a number, or -1 where it is not known, not {in_quotes(word)}")
    return float(word)


SWF = Swf()
