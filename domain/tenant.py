"""Tenants and priorities."""

from __future__ import annotations

from dataclasses import dataclass

from domain.identifiers import TenantId
from domain.resources import Quota

HIGHEST_PRIORITY = 0
LOWEST_PRIORITY = 6
"""MAST §4.2 has seven levels; over-quota workloads are at the lowest."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """A team: the priority of its within-quota workloads, its quota, and its weight in fair shares."""

    tenant: TenantId
    priority: int
    quota: Quota
    fair_share_weight: float = 1.0
