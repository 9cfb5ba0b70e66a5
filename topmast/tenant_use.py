"""What tenants may use, use and borrow, and the GPU-hours that were used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict, Unpack

from topmast.keywords import refuse_unknown_keywords
from topmast.messages import message_of, strings
from topmast.v1 import tenant_use_pb2


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """One quota of a tenant at a priority. `resource`: a GPU model, "any" (those without a quota of their own), or "cpus".

    `quota` None: not limited. `used` is within quota, `borrowed` beyond it; `queued` is what workloads wait for.
    """

    priority: int
    resource: str
    quota: float | None
    used: float
    borrowed: float
    queued: float


@dataclass(frozen=True, slots=True)
class TenantUse:
    """A tenant at this moment. `gpus_in_use` and `cpus_in_use`: held by live attempts, flexible tasks too.

    `average_gpus`, `average_cpus`: held on average over the window of the fair share. `credit`: its term of the fair share, to
    which waiting adds.
    """

    tenant: str
    priority: int
    fair_share_weight: float
    quotas: tuple[QuotaUse, ...]
    gpus_in_use: int
    cpus_in_use: float
    live_attempts: int
    queued: int
    queued_over_quota: int
    average_gpus: float
    average_cpus: float
    credit: float


@dataclass(frozen=True, slots=True)
class TenantPage:
    """Some tenants, by name; averages are taken over `window_s`. `next_page_token` is empty on the last page."""

    tenants: tuple[TenantUse, ...]
    next_page_token: str
    window_s: float


@dataclass(frozen=True, slots=True)
class UsageRow:
    """GPU-hours of a group. What the rows are not told apart by is "", and `period_start_s` None."""

    period_start_s: float | None
    tenant: str
    workload: str
    gpu_model: str
    gpu_hours: float


@dataclass(frozen=True, slots=True)
class UsagePage:
    """Some rows, by period, tenant, workload, model, of what was held from `from_s` until `until_s`.

    `counted_since_s`: nothing was counted before that day; None: nothing yet. `next_page_token` is empty on the last page.
    """

    rows: tuple[UsageRow, ...]
    next_page_token: str
    from_s: float
    until_s: float
    counted_since_s: float | None


class UsageFilter(TypedDict, total=False):
    """Which GPU-hours, told apart `by` any of period, tenant, workload, gpu_model (left out: tenant). `period`: day, week or
    month. Times (0: no bound) are seconds since the epoch, of a midnight in UTC."""

    by: Sequence[str]
    period: str
    from_s: float
    until_s: float
    tenant: str
    workload: str
    gpu_model: str | None


def usage_request(
    page_size: int,
    page_token: str,
    **wanted: Unpack[UsageFilter],
) -> tenant_use_pb2.GetUsageRequest:
    refuse_unknown_keywords("usage", wanted, UsageFilter.__annotations__)
    if "by" in wanted:
        wanted["by"] = strings("by", wanted["by"])
    return message_of(tenant_use_pb2.GetUsageRequest, page_size=page_size, page_token=page_token, **wanted)


def usage_page_from_proto(message: tenant_use_pb2.GetUsageResponse) -> UsagePage:
    return UsagePage(
        tuple(
            UsageRow(row.period_start_s or None, row.tenant, row.workload, row.gpu_model, row.gpu_hours)
            for row in message.rows
        ),
        message.next_page_token,
        message.from_s,
        message.until_s,
        message.counted_since_s or None,
    )


def tenant_page_from_proto(message: tenant_use_pb2.ListTenantsResponse) -> TenantPage:
    return TenantPage(tuple(_tenant(one) for one in message.tenants), message.next_page_token, message.window_s)


def _tenant(message: tenant_use_pb2.TenantUse) -> TenantUse:
    return TenantUse(
        message.tenant,
        message.priority,
        message.fair_share_weight,
        tuple(
            QuotaUse(
                one.priority,
                one.resource,
                one.quota if one.HasField("quota") else None,
                one.used,
                one.borrowed,
                one.queued,
            )
            for one in message.quotas
        ),
        message.gpus_in_use,
        message.cpus_in_use,
        message.live_attempts,
        message.queued,
        message.queued_over_quota,
        message.average_gpus,
        message.average_cpus,
        message.credit,
    )
