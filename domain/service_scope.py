"""Whose completed workloads count for a workload."""

from __future__ import annotations

from enum import StrEnum


class DistributionScope(StrEnum):
    """By whose service the Gittins index of a workload goes (Tiresias §3.2.2)."""

    GLOBAL = "global"
    """That of all tenants' completed workloads."""
    TENANT = "tenant"
    """That of its own tenant's, once there are enough."""
