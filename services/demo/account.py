"""The account of a demo run: every figure recomputed from the event log alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from domain.events import JsonValue

Record = Mapping[str, JsonValue]
"""One line of the event log."""

_DECISIONS = ("dispatched", "waiting", "awaiting_data")
_ENDS = ("evicted", "completed", "failed", "cancelled")


@dataclass(slots=True)
class _Life:
    """What the log says of one workload."""

    submitted_s: float
    tenant: str
    first_decided_s: float | None = None
    """When it was dispatched, or an auction said first that there is no place for it."""
    first_dispatched_s: float | None = None
    first_started_s: float | None = None
    ended_s: float | None = None
    end: str | None = None
    held_since_s: float | None = None
    held_gpus: int = 0
    preemptions: int = 0

    @property
    def queueing_s(self) -> float | None:
        """From its submission to its first start; None: it has not started."""
        return None if self.first_started_s is None else self.first_started_s - self.submitted_s

    @property
    def scheduling_s(self) -> float | None:
        """What of its queueing it did not wait for room: until the first decision, and from the dispatch to the start."""
        if self.first_started_s is None or self.first_decided_s is None or self.first_dispatched_s is None:
            return None
        return self.first_decided_s - self.submitted_s + self.first_started_s - self.first_dispatched_s


@dataclass(slots=True)
class Account:
    """Figures of a run, from its events in order. Times are the service's, of which `clock_speed` pass in a real second."""

    total_gpus: int
    clock_speed: float = 1.0
    lives: dict[str, _Life] = field(default_factory=dict)
    wins: Counter[str] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    gpu_seconds: float = 0.0
    first_s: float | None = None
    last_s: float = 0.0

    def take(self, record: Record) -> None:
        """Adds one event."""
        t = float(str(record["t"]))
        self.first_s = t if self.first_s is None else min(self.first_s, t)
        self.last_s = max(self.last_s, t)
        workload = record.get("workload")
        if not isinstance(workload, str):
            return
        kind = record["event"]
        if kind == "submitted":
            self.lives[workload] = _Life(t, str(record.get("tenant")))
            return
        life = self.lives[workload]
        if kind in _DECISIONS and life.first_decided_s is None:
            life.first_decided_s = t
        if kind == "dispatched":
            self.wins[str(record["region"])] += 1
            life.first_dispatched_s = t if life.first_dispatched_s is None else life.first_dispatched_s
        elif kind == "started":
            life.first_started_s = t if life.first_started_s is None else life.first_started_s
            life.held_since_s, life.held_gpus = t, _gpus(record)
        elif kind in _ENDS:
            self._end(life, str(kind), t, record)

    def _end(self, life: _Life, kind: str, t: float, record: Record) -> None:
        if life.held_since_s is not None:
            self.gpu_seconds += (t - life.held_since_s) * life.held_gpus
            life.held_since_s = None
        if kind == "evicted":
            cause = str(record.get("cause"))
            self.causes[cause] += 1
            life.preemptions += cause == "preempted"
        elif kind != "failed" or record.get("final") is True:
            life.end, life.ended_s = kind, t

    @property
    def span_s(self) -> float:
        return self.last_s - (self.first_s if self.first_s is not None else self.last_s)

    def as_json(self) -> dict[str, JsonValue]:
        """The figures, with stable keys."""
        ends = Counter(life.end or "unfinished" for life in self.lives.values())
        waits = [life.queueing_s for life in self.lives.values() if life.queueing_s is not None]
        completions = [
            life.ended_s - life.submitted_s
            for life in self.lives.values()
            if life.end == "completed" and life.ended_s is not None
        ]
        capacity = self.total_gpus * self.span_s
        return {
            "submitted": len(self.lives),
            "completed": ends["completed"],
            "failed": ends["failed"],
            "cancelled": ends["cancelled"],
            "unfinished": ends["unfinished"],
            "preemptions": self.causes["preempted"],
            "evictions": dict(sorted(self.causes.items())),
            "regions": dict(sorted(self.wins.items())),
            "queueing_s": distribution(waits),
            "scheduling": self._scheduling(waits),
            "completion_s": distribution(completions),
            "queueing_s_by_tenant": {
                tenant: distribution(
                    [
                        life.queueing_s
                        for life in self.lives.values()
                        if life.tenant == tenant and life.queueing_s is not None
                    ]
                )
                for tenant in sorted({life.tenant for life in self.lives.values()})
            },
            "gpu_allocation_rate": self.gpu_seconds / capacity if capacity else 0.0,
            "span_s": self.span_s,
        }

    def _scheduling(self, waits: Sequence[float]) -> dict[str, JsonValue]:
        """What the scheduler itself takes, in real seconds, and its share of all queueing, which the clock multiplies."""
        taken = [life.scheduling_s for life in self.lives.values() if life.scheduling_s is not None]
        return {
            "real_s": distribution([one / self.clock_speed for one in taken]),
            "share_of_queueing": sum(taken) / sum(waits) if sum(waits) else 0.0,
        }


def _gpus(record: Record) -> int:
    placement = record["placement"]
    if not isinstance(placement, list):
        raise TypeError(f"the placement of a started event is {placement!r}, not a list")
    return sum(len(task["gpus"]) for task in placement if isinstance(task, dict) and isinstance(task["gpus"], list))


def account_of(records: Iterable[Record], total_gpus: int, clock_speed: float = 1.0) -> Account:
    """The account of a whole log."""
    account = Account(total_gpus, clock_speed)
    for record in records:
        account.take(record)
    return account


def distribution(values: Sequence[float]) -> dict[str, JsonValue]:
    """count, mean, p50, p95, p99 and max; only the count when there are no values."""
    if not values:
        return {"count": 0}
    array = np.asarray(values, dtype=np.float64)
    p50, p95, p99 = (float(value) for value in np.percentile(array, (50, 95, 99)))
    return {
        "count": len(values),
        "mean": float(array.mean()),
        "p50": p50,
        "p95": p95,
        "p99": p99,
        "max": float(array.max()),
    }


def shown_duration(seconds: object) -> str:
    """Seconds as people say them."""
    if not isinstance(seconds, (int, float)):
        return "-"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def mapping(value: JsonValue) -> Mapping[str, JsonValue]:
    """A part of the account that is an object."""
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is not an object")
    return value
