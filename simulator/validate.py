"""Recomputes the invariants of a run from its event log and the files of its fleet and tenants (design §5, §6).

Independent by construction: it shares no line with what decides (see `simulator/validation`). It checks I1, I2,
I3, I4, I5, I6, I7, I8, I9 and I15, names every violation, and says how often each was put to the test. The log is read as a
stream: memory grows with the workloads that have not ended, and with the names of those that have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from domain.eviction import DEFAULT_RULE, EvictionRule
from domain.fleet import Fleet
from domain.sensitivity import SensitivityProfile
from domain.table import Table
from domain.tenant import Tenant
from formats.event_log import BadRecord, parse_record
from formats.text_stream import read_lines
from simulator.validation.log_checker import LogChecker
from simulator.validation.record_fields import Record
from simulator.validation.report import SHOWN_VIOLATIONS, ValidationReport


def validate(
    records: Iterable[Record],
    fleet: Fleet,
    tenants: Sequence[Tenant],
    *,
    tables: Iterable[Table] = (),
    complete: bool,
    rule: EvictionRule = DEFAULT_RULE,
    profiles: Mapping[str, SensitivityProfile] = MappingProxyType({}),
    greatest_shown: int = SHOWN_VIOLATIONS,
) -> ValidationReport:
    """Checks records in the order of the log (`Event.as_json`, or `formats.event_log.read_records`).

    With `complete` the log is a whole run: every workload must have ended, and there must be one. Without, it
    is a run from its beginning up to some moment. `rule` bounded evictions in that run; `profiles`, by model, are
    those that it was tuned by. Never raises for what stands in a record.
    """
    checker = LogChecker(fleet, tenants, tables, greatest_shown, rule, profiles)
    for line, record in enumerate(records, 1):
        checker.feed(line, record)
    return checker.report(complete=complete)


def validate_log(
    path: Path,
    fleet: Fleet,
    tenants: Sequence[Tenant],
    *,
    tables: Iterable[Table] = (),
    complete: bool,
    rule: EvictionRule = DEFAULT_RULE,
    profiles: Mapping[str, SensitivityProfile] = MappingProxyType({}),
    greatest_shown: int = SHOWN_VIOLATIONS,
) -> ValidationReport:
    """Checks a log file, packed or not, as `validate` does; lines that are no JSON object are violations too.

    Raises FormatError when the file cannot be read at all.
    """
    checker = LogChecker(fleet, tenants, tables, greatest_shown, rule, profiles)
    for line, text in read_lines(path):
        try:
            record = parse_record(text)
        except BadRecord as error:
            checker.feed_bad_line(line, str(error))
        else:
            checker.feed(line, record)
    return checker.report(complete=complete)
