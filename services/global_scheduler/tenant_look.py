"""What tenants may use, use, borrow and wait for now, and the GPU-hours that were used."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from domain.identifiers import ANY_GPU_MODEL, GpuModel, TenantId
from domain.tenant import CPU_BUCKET, UNLIMITED, Tenant, bucket_at, quota_limits
from global_scheduler.credit import CreditSettings, fair_share_terms
from global_scheduler.usage_window import WindowedUse, window_averages
from services.database import gpu_use_store, tenant_look_store, tenant_store, usage_store
from services.database.connection import AnyConnection
from services.database.gpu_use_store import DAY_S, BadUsePageToken, UseFilter, UseKey, UsePeriod
from services.database.tenant_look_store import BucketUse, LiveUse, QueuedUse, QueueLength
from services.global_scheduler.request_checks import GREATEST_PAGE, Checks
from services.grpc_errors import InvalidArgument, NotFound
from topmast.v1 import tenant_use_pb2 as messages

_NAMED = 20
_MILLI = 1_000


async def tenants(
    connection: AnyConnection,
    request: messages.ListTenantsRequest,
    settings: CreditSettings,
    now: float,
    owners: Collection[str] | None = None,
) -> messages.ListTenantsResponse:
    """Of these, as if there were no others; None: of all. Raises InvalidArgument, and NotFound for a tenant that there is not."""
    checks = Checks()
    checks.name("tenant", request.tenant)
    checks.text("page_token", request.page_token)
    page_size = checks.count("page_size", request.page_size, 100, GREATEST_PAGE)
    checks.raise_problems()
    everybody = await tenant_store.load_tenants(connection)
    visible = [one for one in everybody if owners is None or one.tenant in owners]
    _require_tenant(request.tenant, visible)
    chosen = [one for one in visible if one.tenant > request.page_token and request.tenant in ("", one.tenant)]
    shown = chosen[:page_size]
    names = [one.tenant for one in shown]
    stretches = await usage_store.load_use(connection, now, settings.usage_window_s)
    averages = window_averages(stretches, now, settings.usage_window_s)
    credits_by_tenant = _fair_share_terms(everybody, averages, settings)
    charges = await tenant_look_store.charges(connection, names)
    live = await tenant_look_store.live_use(connection, names)
    queued = await tenant_look_store.queued_use(connection, names)
    lengths = await tenant_look_store.queue_lengths(connection, names)
    return messages.ListTenantsResponse(
        tenants=[
            _tenant_message(
                one,
                charges.get(one.tenant, {}),
                live.get(one.tenant, LiveUse()),
                queued.get(one.tenant, ()),
                lengths.get(one.tenant, QueueLength()),
                averages.get(one.tenant, WindowedUse()),
                credits_by_tenant[one.tenant],
            )
            for one in shown
        ],
        next_page_token=shown[-1].tenant if len(chosen) > page_size else "",
        window_s=settings.usage_window_s,
    )


async def usage(
    connection: AnyConnection, request: messages.GetUsageRequest, now: float, owners: Collection[str] | None = None
) -> messages.GetUsageResponse:
    """Of these tenants; None: of all. Raises InvalidArgument."""
    wanted, page_size = _use_filter(request)
    if owners is not None:
        wanted = replace(wanted, owners=tuple(sorted(owners)))
    try:
        page = await gpu_use_store.load_use(connection, wanted, now, page_size, request.page_token)
    except BadUsePageToken as bad:
        raise InvalidArgument.of("page_token", str(bad)) from bad
    since_s = await gpu_use_store.counted_since_s(connection)
    from_s = max(wanted.from_s or 0.0, since_s if since_s is not None else now)
    return messages.GetUsageResponse(
        rows=[
            messages.UsageRow(
                period_start_s=row.period_start_s,
                tenant=row.tenant,
                workload=row.workload,
                gpu_model=row.gpu_model,
                gpu_hours=row.gpu_hours,
            )
            for row in page.rows
        ],
        next_page_token=page.next_page_token,
        from_s=from_s,
        until_s=max(from_s, min(now, math.inf if wanted.until_s is None else wanted.until_s)),
        counted_since_s=since_s or 0.0,
    )


def _use_filter(request: messages.GetUsageRequest) -> tuple[UseFilter, int]:
    checks = Checks()
    keys = _keys(checks, request.by or [UseKey.TENANT.value])
    period = request.period or UsePeriod.DAY.value
    if period not in tuple(UsePeriod):
        checks.add("period", f"must be one of {', '.join(UsePeriod)}, not {period!r}")
    bounds: dict[str, float | None] = {}
    for field in ("from_s", "until_s"):
        bounds[field] = checks.time(field, getattr(request, field))
        if (bounds[field] or 0.0) % DAY_S:
            checks.add(field, "must be the beginning of a day (UTC): use is counted by days")
    if bounds["from_s"] and bounds["until_s"] and bounds["until_s"] <= bounds["from_s"]:
        checks.add("until_s", "must be later than from_s")
    for field in ("tenant", "workload"):
        checks.name(field, getattr(request, field))
    checks.text("gpu_model", request.gpu_model)
    checks.text("page_token", request.page_token)
    page_size = checks.count("page_size", request.page_size, 100, GREATEST_PAGE)
    checks.raise_problems()
    model = request.gpu_model if request.HasField("gpu_model") else None
    use_filter = UseFilter(
        keys, UsePeriod(period), bounds["from_s"], bounds["until_s"], request.tenant, request.workload, model
    )
    return use_filter, page_size


def _keys(checks: Checks, said: Sequence[str]) -> tuple[UseKey, ...]:
    for index, key in enumerate(said):
        if key not in tuple(UseKey):
            checks.add(f"by[{index}]", f"must be one of {', '.join(UseKey)}, not {key!r}")
    return tuple(key for key in UseKey if key in said)


def _require_tenant(tenant: str, everybody: Sequence[Tenant]) -> None:
    if tenant and all(one.tenant != tenant for one in everybody):
        known = ", ".join(one.tenant for one in everybody[:_NAMED]) or "none"
        raise NotFound("tenant", tenant, f"there are {known}")


def _fair_share_terms(
    everybody: Sequence[Tenant], averages: Mapping[TenantId, WindowedUse], settings: CreditSettings
) -> dict[TenantId, float]:
    """As the scan pass takes them."""
    used = [averages.get(one.tenant, WindowedUse()) for one in everybody]
    terms = fair_share_terms(
        np.array([one.gpus for one in used], dtype=np.float64),
        np.array([one.cpus for one in used], dtype=np.float64),
        np.array([one.fair_share_weight for one in everybody], dtype=np.float64),
        np.array([any(quota_limits(one).values()) for one in everybody], dtype=np.bool_),
        settings,
    )
    return {one.tenant: float(term) for one, term in zip(everybody, terms, strict=True)}


def _tenant_message(
    tenant: Tenant,
    charges: Mapping[str, BucketUse],
    live: LiveUse,
    queued: Sequence[QueuedUse],
    length: QueueLength,
    average: WindowedUse,
    credit: float,
) -> messages.TenantUse:
    limits = quota_limits(tenant)
    waiting = _queued_by_bucket(tenant, queued)
    message = messages.TenantUse(
        tenant=tenant.tenant,
        priority=tenant.priority,
        fair_share_weight=tenant.fair_share_weight,
        gpus_in_use=live.gpus,
        cpus_in_use=live.cpus,
        live_attempts=live.attempts,
        queued=length.queued,
        queued_over_quota=length.over_quota,
        average_gpus=average.gpus,
        average_cpus=average.cpus,
        credit=credit,
    )
    for priority, quota in tenant.quotas:
        at = None if priority == tenant.priority else priority
        models = [str(model) for model, _ in quota.gpus]
        if ANY_GPU_MODEL not in models and bucket_at(ANY_GPU_MODEL, at) in charges.keys() | waiting.keys():
            models.append(ANY_GPU_MODEL)  # There is no quota of it: all of that is borrowed.
        for resource in (*models, CPU_BUCKET):
            bucket = bucket_at(resource, at)
            unit = _MILLI if resource == CPU_BUCKET else 1
            limit = limits.get(bucket, 0)
            use = charges.get(bucket, BucketUse(0, 0))
            message.quotas.add(
                priority=priority,
                resource=resource,
                quota=None if limit >= UNLIMITED else limit / unit,
                used=use.within / unit,
                borrowed=use.beyond / unit,
                queued=waiting.get(bucket, 0.0),
            )
    return message


def _queued_by_bucket(tenant: Tenant, queued: Sequence[QueuedUse]) -> dict[str, float]:
    """What waits, by the bucket that it would be charged to; CPUs in CPUs."""
    found: dict[str, float] = {}
    for asked in queued:
        priority = tenant.priority_of(asked.asked_priority)
        at = None if priority == tenant.priority else priority
        if asked.gpus:
            bucket = bucket_at(str(tenant.quota_at(priority).bucket(GpuModel(asked.gpu_model))), at)
            found[bucket] = found.get(bucket, 0.0) + asked.gpus
        if asked.cpus:
            bucket = bucket_at(CPU_BUCKET, at)
            found[bucket] = found.get(bucket, 0.0) + asked.cpus
    return found
