"""Every table of the database; migrations/ brings a database to this shape. METADATA knows all of them.

Times are seconds since the epoch on the clock of the service (`*_s`), except leases and deadlines, which are
real time of the database server, so that they mean the same to every process however fast the service's clock runs.
"""

from __future__ import annotations

from services.database.tables import (
    access,
    attempts,
    auctions,
    catalog,
    coordination,
    data_migrations,
    data_plans,
    data_staging,
    data_use,
    events,
    fleet,
    fleet_uploads,
    loans,
    machine_moves,
    notifications,
    packages,
    queue,
    skew,
    tenants,
    tuning,
    workloads,
)
from services.database.tables.definition import METADATA

__all__ = [
    "METADATA",
    "access",
    "attempts",
    "auctions",
    "catalog",
    "coordination",
    "data_migrations",
    "data_plans",
    "data_staging",
    "data_use",
    "events",
    "fleet",
    "fleet_uploads",
    "loans",
    "machine_moves",
    "notifications",
    "packages",
    "queue",
    "skew",
    "tenants",
    "tuning",
    "workloads",
]
