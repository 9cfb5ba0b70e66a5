"""What callers may be."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """Of a caller; what each may call stands in `access_rules`."""

    ADMIN = "admin"
    """Everything: fleets, tenants, tokens too."""
    OPERATOR = "operator"
    """Sees everything, drains, declares lost, acts on workloads."""
    TENANT = "tenant"
    """Submits for its tenants, and sees and changes what is theirs."""
    READ_ONLY = "read-only"
    """Sees what belongs to its tenants, or everything, and changes nothing."""
    TIER = "tier"
    """Another tier of the service."""


NEEDS_TENANTS = frozenset({Role.TENANT})
"""Roles that are nothing without tenants."""

MAY_HAVE_TENANTS = frozenset({Role.TENANT, Role.READ_ONLY})
"""Roles that can be limited to some tenants; the others are for the whole service."""
