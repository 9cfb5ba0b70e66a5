"""Tenants, their quotas, and what they use."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Float, ForeignKey, Index, Integer, SmallInteger, Table, text

from services.database.tables.definition import DOCUMENT, METADATA, NAME, REWRITTEN, key, optional, required

TENANTS: Final = Table(
    "tenants",
    METADATA,
    key("tenant", NAME),
    required("priority", SmallInteger),
    # Null: CPUs are not limited.
    optional("cpu_quota", Float),
    required("fair_share_weight", Float, server_default=text("1")),
    # At other priorities than its own, as in tenants.yaml (`formats.tenants_file`).
    required("further_quotas", DOCUMENT, server_default=text("""'{"quotas": {}}'""")),
    # As in tenants.yaml: what waits, what runs, how fast it submits.
    required("limits", DOCUMENT, server_default=text("""'{"limits": {}}'""")),
    # As in tenants.yaml (`formats.virtual_clusters`).
    required("cells", DOCUMENT, server_default=text("""'{"virtual_clusters": []}'""")),
)

TENANT_QUOTAS: Final = Table(
    "tenant_quotas",
    METADATA,
    key("tenant", NAME, ForeignKey("tenants.tenant", ondelete="CASCADE")),
    # `any`: the bucket of all models without one of their own.
    key("gpu_model", NAME),
    required("gpus", Integer),
)

QUOTA_USE: Final = Table(
    # Within-quota use in force, changed in the same transaction as the attempts: the guard of I4.
    "quota_use",
    METADATA,
    key("tenant", NAME),
    # A quota bucket's GPU model, or `cpus` (in thousandths); with the priority (`domain.tenant.bucket_at`).
    key("bucket", NAME),
    required("amount", BigInteger),
    postgresql_with=REWRITTEN,
)

GPU_USE: Final = Table(
    # What a workload's attempts held of a GPU model on a day (UTC), as far as it is counted. Nothing is ever taken away: it
    # outlives attempts, whose placements it is made of.
    "gpu_use",
    METADATA,
    key("workload", NAME),
    key("gpu_model", NAME),
    key("day_start_s", Float),
    required("tenant", NAME),
    required("gpu_seconds", Float),
    Index("gpu_use_days", "day_start_s"),
    postgresql_with=REWRITTEN,
)

USAGE_WINDOWS: Final = Table(
    # What a tenant's attempts held in one finished stretch of time: the raw material of Eq. 11.
    "usage_windows",
    METADATA,
    key("tenant", NAME),
    key("window_start_s", Float),
    required("window_end_s", Float),
    required("gpu_seconds", Float),
    required("cpu_seconds", Float),
    Index("usage_windows_end", "window_end_s"),
)
