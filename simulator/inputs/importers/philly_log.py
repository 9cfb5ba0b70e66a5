"""Microsoft's `cluster_job_log` (Jeon et al., ATC 2019), as in msr-fiddle/philly-traces: a JSON array of jobs.

A job's duration is the sum of its attempts; waiting between them does not count. Its GPUs are those of the first
attempt that lists any, and a virtual cluster is a tenant. Jobs that never ran, or still ran at the end, are left out,
as are single attempts without a start or an end. Times have no zone and are taken as UTC.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from domain.identifiers import TenantId, WorkloadId
from formats.problems import FieldProblem, FormatError, in_quotes
from formats.row_report import RowReport
from formats.trace import TraceRow
from formats.trace_cells import BadCell, name_cell
from simulator.inputs.importers.accepting import LeftOut, accepted_rows
from simulator.inputs.importers.cells import NEVER, date_cell, positive_duration
from simulator.inputs.importers.importer import FileHead

_KEYS = ('"jobid"', '"attempts"', '"submitted_time"', '"vc"')
_FIRST_BYTES = 1 << 16
_PIECES = "have attempts without a start or an end, which are not counted"


@dataclass(frozen=True, slots=True)
class PhillyLog:
    name: str = "philly"
    title: str = "Philly's cluster_job_log (JSON)"
    epoch: bool = True

    def recognises(self, head: FileHead) -> bool:
        text = " ".join(head.lines)
        return text.lstrip().startswith("[") and any(key in text for key in _KEYS)

    def rows(self, lines: Iterable[str], row_report: RowReport) -> Iterator[TraceRow]:
        return accepted_rows(_objects(lines, row_report.source), _row, "jobid", row_report)


def _row(job: object, row_report: RowReport) -> TraceRow:
    if not isinstance(job, dict):
        raise BadCell("the job", f"must be an object, not {in_quotes(job)}")
    attempts = job.get("attempts")
    if not isinstance(attempts, list) or not all(isinstance(attempt, dict) for attempt in attempts):
        raise BadCell("attempts", f"must be a list of objects, not {in_quotes(attempts)}")
    identifier = name_cell("jobid", _text(job, "jobid", "jobid"))
    tenant = name_cell("vc", _text(job, "vc", "vc"))
    submit_s = date_cell("submitted_time", _text(job, "submitted_time", "submitted_time"))
    if attempts and _moment(attempts[-1], "end_time", len(attempts) - 1) is None:
        raise LeftOut("had not ended when the log was written")
    duration_s = 0.0
    for number, attempt in enumerate(attempts):
        start_s, end_s = _moment(attempt, "start_time", number), _moment(attempt, "end_time", number)
        if start_s is None or end_s is None:
            row_report.adjust(_PIECES)
            continue
        if end_s < start_s:
            raise BadCell(f"attempts[{number}].end_time", "is before start_time")
        duration_s += end_s - start_s
    gpus = next((count for number, attempt in enumerate(attempts) if (count := _gpus(attempt, number))), 0)
    if not gpus:
        raise LeftOut("never started" if not attempts else "use no GPU")
    return TraceRow(
        workload_id=WorkloadId(identifier),
        tenant=TenantId(tenant),
        submit_s=submit_s,
        duration_s=positive_duration(duration_s, "attempts", "are negative"),
        gpus=gpus,
    )


def _gpus(attempt: dict[str, object], number: int) -> int:
    """The GPUs of all machines of an attempt."""
    field = f"attempts[{number}].detail"
    machines = attempt.get("detail")
    if not isinstance(machines, list):
        raise BadCell(field, f"must be a list of machines, not {in_quotes(machines)}")
    gpus = 0
    for machine in machines:
        listed = machine.get("gpus") if isinstance(machine, dict) else None
        if not isinstance(listed, list):
            raise BadCell(field, "must list the gpus of each machine")
        gpus += len(listed)
    return gpus


def _moment(attempt: dict[str, object], key: str, number: int) -> float | None:
    """Seconds since the epoch; None where the log has no such time."""
    value = attempt.get(key)
    if value is None or value in NEVER:
        return None
    field = f"attempts[{number}].{key}"
    return date_cell(field, _text(attempt, key, field))


def _text(values: dict[str, object], key: str, field: str) -> str:
    value = values.get(key)
    if not isinstance(value, str):
        raise BadCell(field, f"must be a text, not {in_quotes(value)}")
    return value


def _objects(lines: Iterable[str], source: str) -> Iterator[tuple[int, object]]:
    """The elements of a JSON array, with the line on which each begins, holding little more than one at a time."""
    text = _Text(lines)
    if not text.take("["):
        raise FormatError(source, [FieldProblem("line 1", "must begin with [: the log is an array of jobs")])
    if text.take("]"):
        return
    decoder = json.JSONDecoder()
    while True:
        text.skip_blanks()
        yield text.line, text.decode(decoder, source)
        if text.take("]"):
            return
        if not text.take(","):
            problem = FieldProblem(f"line {text.line}, column {text.column}", "must be , or ] after a job")
            raise FormatError(source, [problem])


class _Text:
    """The part of a file that is not read yet, and where it begins."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.line = 1
        self.column = 1
        self._lines = iter(lines)
        self._buffer = ""
        self._place = 0

    def take(self, character: str) -> bool:
        """Steps over blanks, and over this character if it is next; whether it was."""
        self.skip_blanks()
        if not self._buffer.startswith(character, self._place):
            return False
        self._advance(self._place + 1)
        return True

    def skip_blanks(self) -> None:
        while True:
            place = self._place
            while place < len(self._buffer) and self._buffer[place] in " \t\r\n":
                place += 1
            self._advance(place)
            if place < len(self._buffer) or not self._read_more(1):
                return

    def decode(self, decoder: json.JSONDecoder, source: str) -> object:
        """The value that begins here; reads as much as it needs, twice as much each time."""
        while True:
            try:
                value, end = decoder.raw_decode(self._buffer, self._place)
            except ValueError as error:
                if self._read_more(max(_FIRST_BYTES, len(self._buffer))):
                    continue
                reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
                place = FieldProblem(f"line {self.line}, column {self.column}", f"no JSON value begins here: {reason}")
                raise FormatError(source, [place]) from error
            self._advance(end)
            return value

    def _advance(self, place: int) -> None:
        breaks = self._buffer.count("\n", self._place, place)
        if breaks:
            self.line += breaks
            self.column = place - self._buffer.rindex("\n", self._place, place)
        else:
            self.column += place - self._place
        self._place = place

    def _read_more(self, least: int) -> bool:
        """Whether there was more."""
        pieces = [self._buffer[self._place :]]
        size = 0
        for line in self._lines:
            pieces.append(line)
            size += len(line)
            if size >= least:
                break
        self._buffer, self._place = "".join(pieces), 0
        return size > 0


PHILLY_LOG = PhillyLog()
