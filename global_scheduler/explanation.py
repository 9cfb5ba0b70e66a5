"""Why a workload is within or over its tenant's quota: one sentence with the numbers of the pass that decided it."""

from __future__ import annotations

from domain.identifiers import ANY_GPU_MODEL
from domain.tenant import CPU_BUCKET, UNLIMITED, in_words
from global_scheduler.quota_pass import NOTHING_EXCEEDED, charged
from global_scheduler.scan_plan import ScanPlan
from global_scheduler.scan_view import ScanView


def explain_entry(view: ScanView, plan: ScanPlan, entry: int) -> str:
    """Why the pending entry at that position of the view has its priority."""
    workload = view.pending.workloads[entry]
    tenant = int(view.pending.tenant[entry])
    name = view.tenants.ids[tenant]
    demand = dict(view.pending.demand.of_row(entry))
    if not demand:
        return f"{workload} is within quota: it asks for nothing that is charged to a quota."
    ahead = plan.within_quota & (view.pending.tenant == tenant)
    ahead[entry:] = False
    queued = charged(view.tenants, view.pending.tenant, view.pending.demand, ahead)[tenant]
    running, quota = plan.running_use[tenant], view.tenants.quota[tenant]
    exceeded = int(plan.exceeded_bucket[entry])
    if exceeded == NOTHING_EXCEEDED:
        uses = " and ".join(
            f"{_number(view, bucket, int(running[bucket] + queued[bucket]) + amount)} of "
            f"{_quota(view, bucket, int(quota[bucket]))}"
            for bucket, amount in demand.items()
        )
        return f"{workload} is within quota: with it tenant {name} uses {uses}."
    asked = f"{workload} is over-quota: it asks for {_amount(view, exceeded, demand[exceeded])}, but"
    if not quota[exceeded]:
        return f"{asked} tenant {name} has no quota of them."
    left = max(0, int(quota[exceeded] - running[exceeded] - queued[exceeded]))
    return (
        f"{asked} of tenant {name}'s {_number(view, exceeded, int(quota[exceeded]))}, "
        f"{_number(view, exceeded, int(running[exceeded]))} are used by running workloads and "
        f"{_number(view, exceeded, int(queued[exceeded]))} by those ahead of it in the queue, which leaves "
        f"{_number(view, exceeded, left)}."
    )


def _number(view: ScanView, bucket: int, amount: int) -> str:
    """GPUs as they are, thousandths of a CPU as CPUs."""
    return f"{amount / 1000:g}" if in_words(view.buckets[bucket])[0] == CPU_BUCKET else str(amount)


def _amount(view: ScanView, bucket: int, amount: int) -> str:
    name, at_priority = in_words(view.buckets[bucket])
    if name == CPU_BUCKET:
        return f"{_number(view, bucket, amount)} CPUs{at_priority}"
    return f"{amount} GPUs{at_priority}" if name == ANY_GPU_MODEL else f"{amount} {name} GPUs{at_priority}"


def _quota(view: ScanView, bucket: int, amount: int) -> str:
    return "unlimited CPUs" if amount == UNLIMITED else _amount(view, bucket, amount)
