"""When each workload was within quota, as the event log has it: what of a wait falls under its tenant's priority."""

from __future__ import annotations

import numpy as np

from domain.events import Event, EventKind
from simulator.results.run_record import Flags, Reals, RunRecord
from simulator.results.waits import Waits

_TELLING = frozenset({EventKind.RANKED, EventKind.RECLASSIFIED, EventKind.DISPATCHED})


class QuotaHistory:
    """A sink for the events of a run: remembers on which side of its tenant's quota each workload was, and since when.

    Before its first scan pass a workload counts as within quota: no pass has decided otherwise yet.
    """

    def __init__(self) -> None:
        self._changes: dict[str, list[tuple[float, bool]]] = {}
        self.reservations = 0
        """How often machines were kept for a gang."""

    def __call__(self, event: Event) -> None:
        self.reservations += event.event is EventKind.RESERVED
        if event.event in _TELLING and event.workload is not None:
            changes = self._changes.setdefault(str(event.workload), [])
            within = bool(event.details["within_quota"])
            if not changes or changes[-1][1] != within:
                changes.append((event.t, within))

    def within_s(self, workload: str, from_s: float, until_s: float) -> float:
        """Seconds within quota between the two times."""
        total, since, within = 0.0, from_s, True
        for at_s, side in self._changes.get(workload, ()):
            if at_s >= until_s:
                break
            if at_s > since:
                total += (at_s - since) * within
                since = at_s
            within = side
        return total + (until_s - since) * within

    def within_at(self, workload: str, at_s: float) -> bool:
        """On which side it was."""
        side = True
        for changed_s, within in self._changes.get(workload, ()):
            if changed_s > at_s:
                break
            side = within
        return side

    def of_waits(self, record: RunRecord, waits: Waits) -> tuple[Reals, Flags]:
        """Of each wait: seconds within quota, and whether it ended within quota."""
        ids = record.workloads.ids
        rows = list(zip(waits.workload.tolist(), waits.from_s.tolist(), waits.until_s.tolist(), strict=True))
        seconds = [self.within_s(ids[workload], from_s, until_s) for workload, from_s, until_s in rows]
        sides = [self.within_at(ids[workload], until_s) for workload, _, until_s in rows]
        return np.array(seconds), np.array(sides, dtype=np.bool_)
