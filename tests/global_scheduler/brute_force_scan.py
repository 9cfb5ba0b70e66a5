"""The scan pass once more, as plainly as it can be said: objects, dicts and explicit sorts. The oracle of the tests."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace

from domain.identifiers import GpuModel
from domain.resources import capacity_millicpus, request_millicpus
from domain.tenant import LOWEST_PRIORITY, Tenant
from global_scheduler.credit import FairShare
from global_scheduler.levels.attained_service import AttainedService
from tests.global_scheduler.scan_worlds import LiveRow, Queued, ScanWorld


@dataclass
class BruteForcePlan:
    """Standings by workload, the queue from its head on, and which of the live are within quota."""

    tuples: dict[str, tuple[int, int, float, bool]]
    order: list[str]
    live_within_quota: dict[str, bool]
    live_priority: dict[str, int]
    live_level: dict[str, int]
    promoted: set[str]


def brute_force_scan(world: ScanWorld, now: float) -> BruteForcePlan:
    """MAST §4.2, one quota after the other."""
    tuples: dict[str, tuple[int, int, float, bool]] = {}
    live_within: dict[str, bool] = {}
    live_priority: dict[str, int] = {}
    live_level: dict[str, int] = {}
    promoted: set[str] = set()
    for tenant, own in quotas_of(world):
        live = sorted(
            (row for row in world.live if is_charged_to(row, tenant, own)),
            key=lambda row: (row.started_s, row.workload),
        )
        within = _within_after_reclassification(tenant, live)
        use = _use(tenant, [row for row in live if row.workload in within])
        for row in live:
            live_within[row.workload] = row.workload in within
            live_priority[row.workload] = tenant.priority if row.workload in within else LOWEST_PRIORITY
            level = _below(world, _live_level(world, row, live_priority[row.workload], now), row.workload in within)
            live_level[row.workload] = row.level if row.leaving else level
            if row.leaving and row.within_quota == (row.workload in within):
                live_priority[row.workload] = row.priority
        queue = [row for row in world.queued if is_charged_to(row, tenant, own)]
        credit = {row.workload: credit_of(world, row, now) for row in queue}
        for entry in sorted(queue, key=lambda row: (-credit[row.workload], row.submitted_s, row.workload)):
            charge = charge_of(tenant, entry)
            fits = all(use[bucket] + amount <= limit_of(tenant, bucket) for bucket, amount in charge.items())
            if fits:
                use.update(charge)
            priority = tenant.priority if fits else LOWEST_PRIORITY
            attained_gpu_s = entry.attained_gpu_s
            if _is_promoted(world, priority, entry, now):
                promoted.add(entry.workload)
                attained_gpu_s = 0.0
            ordering = _ordering_credit(world, priority, entry, credit[entry.workload], attained_gpu_s)
            tuples[entry.workload] = (
                priority,
                _below(world, _level(world, priority, attained_gpu_s), fits),
                ordering,
                fits,
            )
    submitted_s = {row.workload: row.submitted_s for row in world.queued}
    order = sorted(
        tuples, key=lambda name: (tuples[name][0], tuples[name][1], -tuples[name][2], submitted_s[name], name)
    )
    return BruteForcePlan(tuples, order, live_within, live_priority, live_level, promoted)


def quotas_of(world: ScanWorld) -> list[tuple[Tenant, int]]:
    """Each quota as if its tenant had no other one, and the priority of workloads of the tenant that ask for none."""
    return [
        (replace(tenant, priority=priority, quota=quota, further_quotas=()), tenant.priority)
        for tenant in world.tenants
        for priority, quota in tenant.quotas
    ]


def is_charged_to(row: Queued | LiveRow, quota_of: Tenant, own_priority: int) -> bool:
    """Whether the row takes from that quota, one of `quotas_of`."""
    asked = own_priority if row.asked is None else row.asked
    return row.tenant == quota_of.tenant and asked == quota_of.priority


def credit_of(world: ScanWorld, row: Queued, now: float) -> float:
    """Expressions 10 and 11."""
    settings = world.settings.credit
    use_of = dict(world.use)
    weighted = {
        tenant.tenant: (use_of[tenant.tenant].gpus + settings.gpus_per_cpu * use_of[tenant.tenant].cpus)
        / tenant.fair_share_weight
        if tenant.tenant in use_of
        else 0.0
        for tenant in world.tenants
    }
    counted = [
        weighted[tenant.tenant]
        for tenant in world.tenants
        if weighted[tenant.tenant] > 0
        or any(any(gpus for _, gpus in quota.gpus) or quota.cpus != 0.0 for _, quota in tenant.quotas)
    ]
    average = math.fsum(counted) / len(counted) if counted else 0.0
    ratio = next(use for name, use in weighted.items() if name == row.tenant) / average if average > 0 else 0.0
    ratio = round(ratio / settings.fair_share_resolution) * settings.fair_share_resolution
    if settings.fair_share is FairShare.SHARE_OF_ALL and counted:
        ratio /= len(counted)
    age_s = min(max(now - row.submitted_s, 0.0), settings.age_cap_s)
    if settings.age_resolution_s:
        age = math.floor(age_s / settings.age_resolution_s) * (settings.age_resolution_s * settings.age_weight_per_s)
    else:
        age = age_s * settings.age_weight_per_s
    return age + settings.fairness_weight * (1.0 - ratio)


def _is_promoted(world: ScanWorld, priority: int, row: Queued, now: float) -> bool:
    """Tiresias §3.2.3, for a knob and a limit; rows wait since they were submitted."""
    levels = world.settings.rules[priority].levels
    if not isinstance(levels, AttainedService) or levels.promote_knob is None or levels.starve_limit_s is None:
        return False
    wait_s = max(levels.promote_knob * row.attained_s, levels.starve_limit_s)
    return _level(world, priority, row.attained_gpu_s) > 0 and now >= row.submitted_s + wait_s


def _ordering_credit(world: ScanWorld, priority: int, row: Queued, credit: float, attained_gpu_s: float) -> float:
    name = world.settings.rules[priority].ordering.name
    by_start = max(-row.first_started_s, -1e18)
    if name != "gittins" or world.service is None:
        return {"credit": credit, "fifo": 0.0}.get(name, by_start)
    # The thresholds of the ordering are its default.
    quantum_gpu_s = math.inf if attained_gpu_s + 1e-5 >= 3200.0 else 3200.0
    samples = [s for s in (50.0, 100.0, 100.0, 1_500.0) if s > attained_gpu_s]
    within = [s for s in samples if s - attained_gpu_s <= quantum_gpu_s]
    service_gpu_s = math.fsum(min(s - attained_gpu_s, quantum_gpu_s) for s in samples)
    return len(within) / service_gpu_s if within else 0.0


def _below(world: ScanWorld, level: int, within: bool) -> int:
    """What is over quota stands 2 ** 14 levels below, where anybody has a quota at priority 6."""
    lowest = [quota for tenant in world.tenants for priority, quota in tenant.quotas if priority == LOWEST_PRIORITY]
    counts = any(any(gpus for _, gpus in quota.gpus) or (quota.cpus or 0.0) > 0.0 for quota in lowest)
    return level + 2**14 if counts and not within else level


def _level(world: ScanWorld, priority: int, attained_gpu_s: float) -> int:
    """How many of the thresholds have been reached; a hundred-thousandth of a second is no matter."""
    levels = world.settings.rules[priority].levels
    if levels is None:
        return 0
    assert isinstance(levels, AttainedService)
    return sum(attained_gpu_s + 1e-5 >= threshold for threshold in levels.thresholds_gpu_s)


def _live_level(world: ScanWorld, row: LiveRow, priority: int, now: float) -> int:
    ran_s = 0.0 if row.set_up else now - row.started_s + 1e-5
    return _level(world, priority, row.attained_gpu_s + ran_s * row.held_gpus)


def limit_of(tenant: Tenant, bucket: str) -> float:
    """The quota of a bucket."""
    if bucket == "cpus":
        return math.inf if tenant.quota.cpus is None else capacity_millicpus(tenant.quota.cpus)
    return tenant.quota.gpus_in(GpuModel(bucket))


def charge_of(tenant: Tenant, row: Queued | LiveRow) -> Counter[str]:
    """What the row is charged, by bucket; nothing for zeros."""
    charge: Counter[str] = Counter()
    for model, gpus in (row.gpus if isinstance(row, Queued) else row.charges).items():
        if gpus:
            charge["cpus" if model == "cpus" else tenant.quota.bucket(GpuModel(model))] += gpus
    if isinstance(row, Queued) and row.cpus:
        charge["cpus"] += request_millicpus(row.cpus)
    return charge


def _use(tenant: Tenant, rows: list[LiveRow]) -> Counter[str]:
    use: Counter[str] = Counter()
    for row in rows:
        use.update(charge_of(tenant, row))
    return use


def _within_after_reclassification(tenant: Tenant, live: list[LiveRow]) -> set[str]:
    """Names of the live workloads that are within quota; `live` is oldest first."""
    within = [row for row in live if row.within_quota]
    for row in [row for row in reversed(live) if row.leaving] + [row for row in reversed(live) if not row.leaving]:
        use = _use(tenant, within)
        over_full = {bucket for bucket in use if use[bucket] > limit_of(tenant, bucket)}
        if row in within and over_full & set(charge_of(tenant, row)):
            within.remove(row)
    for row in live:
        if row not in within and not row.leaving:
            use = _use(tenant, [*within, row])
            if all(use[bucket] <= limit_of(tenant, bucket) for bucket in charge_of(tenant, row)):
                within.append(row)
    return {row.workload for row in within}
