"""What the validator found: every violation counted, the first ones shown, and how much was checked at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from domain.events import JsonValue

SHOWN_VIOLATIONS = 100


class Invariant(StrEnum):
    """Design §5, those that an event log can show; `log` is the log's own: that it can be read at all."""

    LOG = "log"
    I1 = "I1"
    I2 = "I2"
    I3 = "I3"
    I4 = "I4"
    I5 = "I5"
    I6 = "I6"
    I7 = "I7"
    I8 = "I8"
    I9 = "I9"
    I13 = "I13"
    I15 = "I15"


MEANINGS: MappingProxyType[Invariant, str] = MappingProxyType(
    {
        Invariant.LOG: "the log is well-formed",
        Invariant.I1: "no machine is over-committed",
        Invariant.I2: "gangs are whole, elastic jobs within their bounds",
        Invariant.I3: "one region at a time, which held all input tables",
        Invariant.I4: "within-quota use never exceeds the quota",
        Invariant.I5: "victims stand strictly worse than the attempts that they made room for, or use their cells",
        Invariant.I6: "owners never wait for machines of theirs that they do not use",
        Invariant.I7: "no job is slower than with its proportional share of CPUs and memory",
        Invariant.I8: "every workload ends exactly once, attempts never overlap",
        Invariant.I9: "progress is never invented",
        Invariant.I13: "nothing is begun in a lost cluster, and nothing left in one that is back",
        Invariant.I15: "evictions stay within their bounds, and none of them is needless",
    }
)


@dataclass(frozen=True, slots=True)
class LogViolation:
    """One breach: which invariant, by which line of the log (0: by its end), of which workload, and how."""

    invariant: Invariant
    line: int
    workload: str | None
    sentence: str

    def __str__(self) -> str:
        place = f"line {self.line}" if self.line else "end of log"
        workload = f", workload {self.workload}" if self.workload is not None else ""
        return f"{self.invariant}: {place}{workload}: {self.sentence}"

    def as_json(self) -> dict[str, JsonValue]:
        return {
            "invariant": self.invariant.value,
            "line": self.line,
            "workload": self.workload,
            "sentence": self.sentence,
        }


@dataclass(frozen=True, slots=True)
class ValidationReport:
    """The outcome. `checks` counts how often each invariant was put to the test: 0 means nothing was shown."""

    events: int
    events_by_kind: Mapping[str, int]
    workloads: int
    attempts: int
    complete: bool
    """Whether the log was taken to be a whole run, in which every workload must have ended."""
    checks: Mapping[Invariant, int]
    violations: int
    violations_by_invariant: Mapping[Invariant, int]
    shown: tuple[LogViolation, ...]
    """The first violations, in the order of the log."""

    @property
    def valid(self) -> bool:
        """No violation in a log that has events: an empty log shows nothing."""
        return self.violations == 0 and self.events > 0

    def as_json(self) -> dict[str, JsonValue]:
        return {
            "valid": self.valid,
            "events": self.events,
            "events_by_kind": dict(self.events_by_kind),
            "workloads": self.workloads,
            "attempts": self.attempts,
            "complete": self.complete,
            "checks": {invariant.value: count for invariant, count in self.checks.items()},
            "violations": self.violations,
            "violations_by_invariant": {
                invariant.value: count for invariant, count in self.violations_by_invariant.items()
            },
            "shown": [violation.as_json() for violation in self.shown],
        }

    def __str__(self) -> str:
        """For people: the verdict, a line per invariant, a line per shown violation."""
        what = f"{self.events} events, {self.workloads} workloads, {self.attempts} attempts"
        verdict = f"valid: {what}" if self.valid else f"{self.violations} violations: {what}"
        if self.events == 0:
            verdict = "nothing to validate: the log has no events"
        lines = [verdict]
        for invariant, meaning in MEANINGS.items():
            broken = self.violations_by_invariant.get(invariant, 0)
            state = f"BROKEN {broken} times" if broken else "holds"
            lines.append(f"  {invariant:<5}{meaning}: {state} ({self.checks.get(invariant, 0)} checks)")
        lines += [str(violation) for violation in self.shown]
        if self.violations > len(self.shown):
            lines.append(f"and {self.violations - len(self.shown)} more violations")
        return "\n".join(lines)


class Findings:
    """Collects violations while the log is read. `line` and `workload` say what is being looked at."""

    __slots__ = ("_counts", "_greatest_shown", "_shown", "line", "workload")

    def __init__(self, greatest_shown: int = SHOWN_VIOLATIONS) -> None:
        self.line = 0
        self.workload: str | None = None
        self._greatest_shown = greatest_shown
        self._shown: list[LogViolation] = []
        self._counts: Counter[Invariant] = Counter()

    def add(self, invariant: Invariant, sentence: str) -> None:
        """Records a breach at the current line."""
        self._counts[invariant] += 1
        if len(self._shown) < self._greatest_shown:
            self._shown.append(LogViolation(invariant, self.line, self.workload, sentence))

    @property
    def shown(self) -> tuple[LogViolation, ...]:
        return tuple(self._shown)

    @property
    def counts(self) -> dict[Invariant, int]:
        """Violations by invariant, in the order of the invariants, those without any left out."""
        return {invariant: self._counts[invariant] for invariant in Invariant if self._counts[invariant]}
