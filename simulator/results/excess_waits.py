"""How much longer workloads wait in a shared cluster than in private ones of their virtual clusters' shape (HiveD §5.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from domain.events import JsonValue
from simulator.results.distribution import Distribution, distribution_of
from simulator.results.figures import was_opportunistic
from simulator.results.run_record import Reals, RunRecord, WorkloadEnd
from simulator.results.waits import queueing_of_workloads, waits_of

_CLOCK_S = 1e-6
"""Differences below this are of the arithmetic."""


@dataclass(frozen=True, slots=True)
class TenantAgainstPrivate:
    """One tenant's workloads in both clusters, as far as they completed in both."""

    workloads: int
    queueing_s: Distribution
    private_queueing_s: Distribution
    guaranteed: int
    """Of these, the workloads that never used others' GPUs in the shared cluster."""
    later: int
    """Of the guaranteed ones, those that waited longer than in the private cluster."""
    excess_wait_s: Distribution
    """By how much the guaranteed ones did, 0 for those that did not."""
    completed_in_private_only: int

    def as_json(self) -> dict[str, JsonValue]:
        return {
            "workloads": self.workloads,
            "queueing_s": self.queueing_s.as_json(),
            "private_queueing_s": self.private_queueing_s.as_json(),
            "guaranteed": self.guaranteed,
            "later": self.later,
            "excess_wait_s": self.excess_wait_s.as_json(),
            "completed_in_private_only": self.completed_in_private_only,
        }


@dataclass(frozen=True, slots=True)
class AgainstPrivate:
    """A shared run against a private one for each tenant that owns cells."""

    excess_wait_s: Distribution
    """Of all guaranteed workloads."""
    by_tenant: dict[str, TenantAgainstPrivate]

    @property
    def guaranteed(self) -> int:
        return sum(tenant.guaranteed for tenant in self.by_tenant.values())

    @property
    def later(self) -> int:
        return sum(tenant.later for tenant in self.by_tenant.values())

    def as_json(self) -> dict[str, JsonValue]:
        """The object `against_private` of docs/results-format.md."""
        return {
            "guaranteed": self.guaranteed,
            "later": self.later,
            "by_tenant": {name: tenant.as_json() for name, tenant in self.by_tenant.items()},
        }


def against_private(shared: RunRecord, private: Mapping[str, RunRecord]) -> AgainstPrivate:
    """The comparison, job by job. `private` are the tenants' own runs, of workloads that the shared run has too."""
    rows = {name: row for row, name in enumerate(shared.workloads.ids)}
    queueing_s = _queueing_s(shared)
    guaranteed = ~was_opportunistic(shared)
    completed = shared.workloads.end == WorkloadEnd.COMPLETED
    every: list[Reals] = []
    by_tenant: dict[str, TenantAgainstPrivate] = {}
    for tenant, alone in sorted(private.items()):
        there = np.array([rows[name] for name in alone.workloads.ids], dtype=np.int64)
        completed_alone = alone.workloads.end == WorkloadEnd.COMPLETED
        both = completed_alone & completed[there]
        shared_s, private_s = queueing_s[there[both]], _queueing_s(alone)[both]
        sure = guaranteed[there[both]]
        excess_s = (shared_s - private_s)[sure]
        excess_s[excess_s <= _CLOCK_S] = 0.0
        every.append(excess_s)
        by_tenant[tenant] = TenantAgainstPrivate(
            workloads=int(both.sum()),
            queueing_s=distribution_of(shared_s),
            private_queueing_s=distribution_of(private_s),
            guaranteed=int(sure.sum()),
            later=int((excess_s > 0).sum()),
            excess_wait_s=distribution_of(excess_s),
            completed_in_private_only=int((completed_alone & ~completed[there]).sum()),
        )
    return AgainstPrivate(distribution_of(np.concatenate(every) if every else np.zeros(0)), by_tenant)


def _queueing_s(record: RunRecord) -> Reals:
    return queueing_of_workloads(waits_of(record), len(record.workloads))
