"""What all tables share; and the tables of tenants and of the fleet. See services.database.models."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Float,
    ForeignKey,
    Index,
    Integer,
    SmallInteger,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

Name = Text(collation="C")
"""What identifies something. Compared by code points, as Python does: the order of the queue ends in a name."""

REWRITTEN = {"postgresql_with": {"fillfactor": "80"}}
"""Rows that change while they live: room on their page keeps a change away from the indexes."""


class Base(DeclarativeBase):
    """All tables."""


class TenantRow(Base):
    __tablename__ = "tenants"

    tenant: Mapped[str] = mapped_column(Name, primary_key=True)
    priority: Mapped[int] = mapped_column(SmallInteger)
    cpu_quota: Mapped[float | None] = mapped_column(Float)
    """None: CPUs are not limited."""
    fair_share_weight: Mapped[float] = mapped_column(Float, server_default=text("1"))


class TenantQuotaRow(Base):
    __tablename__ = "tenant_quotas"

    tenant: Mapped[str] = mapped_column(ForeignKey("tenants.tenant", ondelete="CASCADE"), primary_key=True)
    gpu_model: Mapped[str] = mapped_column(Name, primary_key=True)
    """`any`: the bucket of all models without one of their own."""
    gpus: Mapped[int] = mapped_column(Integer)


class QuotaUseRow(Base):
    """Within-quota use in force, changed in the same transaction as the attempts: the guard of I4.

    The bucket is a quota bucket's GPU model, or `cpus` (in thousandths).
    """

    __tablename__ = "quota_use"
    __table_args__ = REWRITTEN

    tenant: Mapped[str] = mapped_column(Name, primary_key=True)
    bucket: Mapped[str] = mapped_column(Name, primary_key=True)
    amount: Mapped[int] = mapped_column(BigInteger)


class UsageWindowRow(Base):
    """What a tenant's attempts held in one finished stretch of time: the raw material of Eq. 11."""

    __tablename__ = "usage_windows"
    __table_args__ = (Index("usage_windows_end", "window_end_s"),)

    tenant: Mapped[str] = mapped_column(Name, primary_key=True)
    window_start_s: Mapped[float] = mapped_column(Float, primary_key=True)
    window_end_s: Mapped[float] = mapped_column(Float)
    gpu_seconds: Mapped[float] = mapped_column(Float)
    cpu_seconds: Mapped[float] = mapped_column(Float)


class RegionRow(Base):
    __tablename__ = "regions"

    region: Mapped[str] = mapped_column(Name, primary_key=True)
    position: Mapped[int] = mapped_column(Integer)


class ClusterRow(Base):
    __tablename__ = "clusters"

    cluster: Mapped[str] = mapped_column(Name, primary_key=True)
    region: Mapped[str] = mapped_column(ForeignKey("regions.region", ondelete="CASCADE"), index=True)
    position: Mapped[int] = mapped_column(Integer)
    mechanism: Mapped[str] = mapped_column(Name, server_default=text("'packing'"))
    """What places jobs in it."""


class MachineRow(Base):
    __tablename__ = "machines"

    machine: Mapped[str] = mapped_column(Name, primary_key=True)
    cluster: Mapped[str] = mapped_column(ForeignKey("clusters.cluster", ondelete="CASCADE"), index=True)
    rack: Mapped[str] = mapped_column(Name)
    position: Mapped[int] = mapped_column(Integer)
    """Order within the cluster: racks in order, machines in order within their rack."""
    gpu_model: Mapped[str] = mapped_column(Name)
    gpus: Mapped[int] = mapped_column(SmallInteger)
    cpus: Mapped[float] = mapped_column(Float)
    memory_gib: Mapped[float] = mapped_column(Float)
    state: Mapped[str] = mapped_column(Name, server_default=text("'up'"))
    """domain.fleet.MachineState."""


class DataTableRow(Base):
    __tablename__ = "data_tables"

    data_table: Mapped[str] = mapped_column(Name, primary_key=True)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    home: Mapped[str] = mapped_column(Name)
    revision: Mapped[int] = mapped_column(BigInteger, server_default=text("0"), index=True)
    """Of the catalog, in which it last changed."""


class DroppedDataTableRow(Base):
    """A table that is gone, remembered so that those who know the catalog of an earlier revision can forget it."""

    __tablename__ = "dropped_data_tables"

    data_table: Mapped[str] = mapped_column(Name, primary_key=True)
    revision: Mapped[int] = mapped_column(BigInteger, index=True)


class DataTableReplicaRow(Base):
    """Where a complete copy is, besides the home region."""

    __tablename__ = "data_table_replicas"

    data_table: Mapped[str] = mapped_column(ForeignKey("data_tables.data_table", ondelete="CASCADE"), primary_key=True)
    region: Mapped[str] = mapped_column(Name, primary_key=True)


class RevisionRow(Base):
    """Grows with each change of `fleet`, `tenants` or `catalog`, so that every tier notices; also holds the service's clock."""

    __tablename__ = "revisions"

    subject: Mapped[str] = mapped_column(Name, primary_key=True)
    revision: Mapped[int] = mapped_column(BigInteger)
    document: Mapped[dict[str, Any] | None] = mapped_column(JSONB)


# ---------------------------------------------------------------- workloads
