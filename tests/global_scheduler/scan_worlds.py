"""Small queues for tests: rows as objects, the strategy that draws them, and the view that they make."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from domain.identifiers import ANY_GPU_MODEL, GpuModel, TenantId, WorkloadId
from domain.resources import Quota
from domain.tenant import Tenant, bucket_at
from global_scheduler.credit import CreditSettings, FairShare
from global_scheduler.levels.attained_service import AttainedService
from global_scheduler.ordering import ORDERINGS
from global_scheduler.scan_plan import ScanPlan
from global_scheduler.scan_settings import QueueRule, ScanSettings
from global_scheduler.scan_view import NONE_ASKED, ScanView
from global_scheduler.service_history import ServiceHistory
from global_scheduler.usage_window import WindowedUse
from global_scheduler.view_builder import PendingRows, RunningRows, build_scan_view

A100, H100, V100 = GpuModel("A100"), GpuModel("H100"), GpuModel("V100")


@dataclass(frozen=True)
class Queued:
    """One queued workload."""

    workload: str
    tenant: str
    submitted_s: float
    gpus: dict[str, int]
    cpus: float = 0.0
    attained_gpu_s: float = 0.0
    stored: tuple[int, int, float, bool] | None = None
    attained_s: float = 0.0
    first_started_s: float = math.inf
    asked: int | None = None
    """The priority that it asks for."""


@dataclass(frozen=True)
class LiveRow:
    """One live attempt."""

    workload: str
    tenant: str
    started_s: float
    charges: dict[str, int]
    within_quota: bool
    priority: int = 6
    level: int = 0
    leaving: bool = False
    attempt: int = 1
    attained_gpu_s: float = 0.0
    """In earlier attempts."""
    set_up: bool = False
    """It has not begun to work yet."""
    asked: int | None = None
    """The priority that its workload asks for."""

    @property
    def held_gpus(self) -> int:
        return sum(amount for bucket, amount in self.charges.items() if bucket != "cpus")


@dataclass(frozen=True)
class ScanWorld:
    """Everything that a scan pass looks at."""

    tenants: tuple[Tenant, ...]
    queued: tuple[Queued, ...] = ()
    live: tuple[LiveRow, ...] = ()
    use: tuple[tuple[str, WindowedUse], ...] = ()
    settings: ScanSettings = ScanSettings()
    service: ServiceHistory | None = None

    def view(self) -> ScanView:
        return build_scan_view(
            self.tenants,
            {TenantId(tenant): use for tenant, use in self.use},
            running_rows(self.live, self.tenants),
            pending_rows(self.queued),
            self.settings,
            self.service,
        )


def tenant(name: str, priority: int = 1, cpus: float | None = None, weight: float = 1.0, **gpus: int) -> Tenant:
    """A tenant with a quota of GPUs by model (`any` too)."""
    return Tenant(
        TenantId(name), priority, Quota.of({GpuModel(model): count for model, count in gpus.items()}, cpus), weight
    )


def pending_rows(queued: tuple[Queued, ...]) -> PendingRows:
    """The rows as columns; the first model named is the main one."""
    first = [next(iter(row.gpus.items()), ("", 0)) for row in queued]
    return PendingRows(
        workloads=[WorkloadId(row.workload) for row in queued],
        tenants=[TenantId(row.tenant) for row in queued],
        submitted_s=[row.submitted_s for row in queued],
        gpu_model=[model for model, _ in first],
        gpus=[gpus for _, gpus in first],
        cpus=[row.cpus for row in queued],
        more_gpus=[dict(list(row.gpus.items())[1:]) or None for row in queued],
        stored_priority=[row.stored[0] if row.stored else None for row in queued],
        stored_level=[row.stored[1] if row.stored else 0 for row in queued],
        stored_credit=[row.stored[2] if row.stored else 0.0 for row in queued],
        stored_within_quota=[row.stored[3] if row.stored else False for row in queued],
        queued_since_s=[row.submitted_s for row in queued],
        attained_gpu_s=[row.attained_gpu_s for row in queued],
        attained_s=[row.attained_s for row in queued],
        first_started_s=[row.first_started_s for row in queued],
        asked_priority=[NONE_ASKED if row.asked is None else row.asked for row in queued],
    )


def running_rows(live: tuple[LiveRow, ...], tenants: tuple[Tenant, ...] = ()) -> RunningRows:
    """The rows as columns. Those that ask for another priority than their tenant's are charged to the buckets of that one."""
    by_name = {str(tenant.tenant): tenant for tenant in tenants}
    return RunningRows(
        workloads=[WorkloadId(row.workload) for row in live],
        attempts=[row.attempt for row in live],
        tenants=[TenantId(row.tenant) for row in live],
        started_s=[row.started_s for row in live],
        priority=[row.priority for row in live],
        level=[row.level for row in live],
        within_quota=[row.within_quota for row in live],
        leaving=[row.leaving for row in live],
        charges=[_charged(row, by_name[row.tenant]) if row.asked is not None else row.charges for row in live],
        gpus=[row.held_gpus for row in live],
        submitted_s=[row.started_s for row in live],
        working_since_s=[math.nan if row.set_up else row.started_s for row in live],
        attained_gpu_s=[row.attained_gpu_s for row in live],
        asked_priority=[NONE_ASKED if row.asked is None else row.asked for row in live],
    )


def _charged(row: LiveRow, tenant: Tenant) -> dict[str, int]:
    priority = tenant.priority_of(row.asked)
    quota, charges = tenant.quota_at(priority), Counter[str]()
    for name, amount in row.charges.items():
        bucket = name if name == "cpus" else str(quota.bucket(GpuModel(name)))
        charges[bucket_at(bucket, None if priority == tenant.priority else priority)] += amount
    return dict(charges)


def after(world: ScanWorld, view: ScanView, plan: ScanPlan) -> ScanWorld:
    """The world once the plan is stored."""
    stored = {
        name: (
            int(plan.priority[entry]),
            int(plan.level[entry]),
            float(plan.credit[entry]),
            bool(plan.within_quota[entry]),
        )
        for entry, name in enumerate(view.pending.workloads)
    }
    promoted = {view.pending.workloads[entry] for entry in plan.promotions.tolist()}
    changes = {(change.key.workload, int(change.key.attempt)): change for change in plan.reclassifications}
    live = []
    for row in world.live:
        change = changes.get((WorkloadId(row.workload), row.attempt))
        live.append(
            replace(
                row, within_quota=change.within_quota, priority=change.standing.priority, level=change.standing.level
            )
            if change
            else row
        )
    return replace(
        world,
        queued=tuple(
            replace(
                row,
                stored=stored[WorkloadId(row.workload)],
                attained_gpu_s=0.0 if row.workload in promoted else row.attained_gpu_s,
                attained_s=0.0 if row.workload in promoted else row.attained_s,
            )
            for row in world.queued
        ),
        live=tuple(live),
    )


NOW_S = 10_000.0

TWO_THRESHOLDS = AttainedService((100.0, 1_000.0))
WITH_PROMOTION = AttainedService((100.0, 1_000.0), promote_knob=2.0, starve_limit_s=40.0)
SERVICE = ServiceHistory(samples_gpu_s=(50.0, 100.0, 100.0, 1_500.0))

_MODELS = ("A100", "H100", "V100", ANY_GPU_MODEL)
_NAMES = ("ash", "birch", "cedar")
_gpus = st.dictionaries(st.sampled_from(_MODELS), st.integers(0, 4), max_size=3)
_cpus = st.sampled_from((0.0, 0.5, 1.0, 2.25))
_attained = st.sampled_from((0.0, 99.0, 100.0, 101.5, 5_000.0))
_times = st.one_of(st.sampled_from((0.0, 9_000.0, 9_950.0, 9_999.5)), st.floats(-100.0, 10_100.0))


@st.composite
def worlds(draw: st.DrawFn) -> ScanWorld:
    """Up to three tenants, a queue of up to 14 and up to 8 live attempts, with many ties and tight quotas."""
    names = draw(st.lists(st.sampled_from(_NAMES), min_size=1, max_size=3, unique=True))
    tenants = tuple(draw(_tenants(name)) for name in names)
    may_ask = {str(tenant.tenant): (None, *tenant.priorities) for tenant in tenants}
    queued = tuple(
        Queued(
            f"w{number}",
            draw(st.sampled_from(names)),
            draw(_times),
            draw(_gpus),
            draw(_cpus),
            draw(_attained),
            draw(st.none() | st.tuples(st.integers(0, 6), st.integers(0, 2), st.just(6.0), st.booleans())),
            draw(st.sampled_from((0.0, 20.0, 25.0, 500.0))),
            draw(st.sampled_from((math.inf, 10.0, 9_000.0))),
        )
        for number in draw(st.permutations(range(draw(st.integers(0, 14)))))
    )
    live = tuple(
        LiveRow(
            f"r{number}",
            draw(st.sampled_from(names)),
            draw(_times),
            draw(_gpus) | {"cpus": draw(st.sampled_from((0, 500, 2_000)))},
            draw(st.booleans()),
            draw(st.integers(0, 6)),
            draw(st.integers(0, 2)),
            draw(st.integers(0, 4)) == 0,
            attained_gpu_s=draw(_attained),
            set_up=draw(st.booleans()),
        )
        for number in draw(st.permutations(range(draw(st.integers(0, 8)))))
    )
    use = tuple(
        (name, WindowedUse(draw(st.floats(0.0, 100.0)), draw(st.floats(0.0, 100.0))))
        for name in names
        if draw(st.booleans())
    )
    orderings = tuple(draw(st.sampled_from(("credit", "credit", "fifo", "first_started", "gittins"))) for _ in range(7))
    levels = draw(st.sampled_from((None, TWO_THRESHOLDS, WITH_PROMOTION)))
    rules = tuple(QueueRule(ORDERINGS[name], levels if draw(st.booleans()) else None) for name in orderings)
    resolution_s = draw(st.sampled_from((0.0, 60.0)))
    credit = CreditSettings(
        age_cap_s=5_000.0, age_resolution_s=resolution_s, fair_share=draw(st.sampled_from(list(FairShare)))
    )
    queued = tuple(replace(row, asked=draw(st.sampled_from(may_ask[row.tenant]))) for row in queued)
    live = tuple(replace(row, asked=draw(st.sampled_from(may_ask[row.tenant]))) for row in live)
    return ScanWorld(tenants, queued, live, use, ScanSettings(credit, rules), draw(st.sampled_from((None, SERVICE))))


@st.composite
def _tenants(draw: st.DrawFn, name: str) -> Tenant:
    """Most have one quota, some have up to three."""
    priority = draw(st.integers(0, 6))
    others = [other for other in range(7) if other != priority]
    further = draw(st.just([]) | st.lists(st.sampled_from(others), max_size=2, unique=True))
    return Tenant(
        TenantId(name),
        priority,
        draw(_quotas),
        draw(st.sampled_from((0.5, 1.0, 2.0))),
        further_quotas=tuple((other, draw(_quotas)) for other in sorted(further)),
    )


_quota_gpus = st.dictionaries(st.sampled_from(_MODELS), st.integers(0, 8), max_size=3)
_quotas = st.builds(
    lambda gpus, cpus: Quota.of({GpuModel(model): count for model, count in gpus.items()}, cpus),
    _quota_gpus,
    st.one_of(st.none(), st.sampled_from((0.0, 1.5, 4.0))),
)
