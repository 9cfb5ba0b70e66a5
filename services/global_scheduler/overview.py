"""Everything in one look: which processes serve, what the regions have and use, how many workloads are in which state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata

from domain.identifiers import RegionId
from domain.life_cycle import State
from services.database import event_store, fleet_store, lease_store, standby_store, workload_reader
from services.database.connection import AnyConnection
from services.database.fleet_store import RegionSummary
from services.database.lease_store import LeaseRecord
from services.database.queue_store import newest_scan_pass
from services.database.standby_store import Standby
from services.global_scheduler.disk_room import FullDisk
from services.grpc_errors import DISK_FULL
from topmast.v1 import global_scheduler_pb2 as messages

_TIERS = frozenset({"global", "regional", "cluster"})


@dataclass(frozen=True, slots=True)
class Overview:
    """One snapshot."""

    leases: Sequence[LeaseRecord]
    standbys: Sequence[Standby]
    regions: Sequence[RegionSummary]
    workloads: Mapping[State, int]
    scan_pass: int
    """0: there was none yet."""
    violations: Mapping[RegionId, int]
    """How often a region found one of its invariants broken; it begins anew each time."""


async def load_overview(connection: AnyConnection, owners: Sequence[str] | None = None) -> Overview:
    """With the workloads of these tenants; None: of all."""
    newest = await newest_scan_pass(connection)
    return Overview(
        leases=await lease_store.list_leases(connection),
        standbys=await standby_store.list_standbys(connection),
        regions=await fleet_store.summarise_regions(connection),
        workloads=await workload_reader.count_by_state(connection, owners),
        scan_pass=0 if newest is None else newest.number,
        violations=await event_store.count_violations(connection),
    )


def overview_message(overview: Overview, now: float, full: FullDisk | None) -> messages.GetStatusResponse:
    """`full` is the disk that has no room, if one has none."""
    return messages.GetStatusResponse(
        now_s=now,
        version=_version(),
        tiers=[_tier_message(lease) for lease in overview.leases if _is_of_tier(lease.name)],
        standbys=[_standby_message(standby) for standby in overview.standbys if _is_of_tier(standby.name)],
        regions=[
            messages.RegionStatus(
                region=region.region,
                clusters=region.clusters,
                machines=region.machines,
                machines_up=region.machines_up,
                gpus=region.gpus,
                gpus_in_use=region.gpus_in_use,
                live_attempts=region.live_attempts,
                machines_on_loan=region.machines_on_loan,
                invariant_violations=overview.violations.get(region.region, 0),
            )
            for region in overview.regions
        ],
        workloads={state.value: count for state, count in overview.workloads.items()},
        scan_pass=overview.scan_pass,
        health=[messages.HealthDetail(kind=DISK_FULL, sentence=full.sentence, since_s=full.since_s)] if full else [],
    )


@cache
def _version() -> str:
    try:
        return metadata.version("topmast")
    except metadata.PackageNotFoundError:
        return "not installed"


def _is_of_tier(lease: str) -> bool:
    """That of data placement says who plans where tables should be, in the process of a global scheduler."""
    return lease.partition("/")[0] in _TIERS


def _tier_message(lease: LeaseRecord) -> messages.TierStatus:
    """Leases are called global, regional/<region> and cluster/<cluster>."""
    tier, _, name = lease.name.partition("/")
    return messages.TierStatus(
        tier=tier,
        name=name,
        address=lease.address,
        alive=lease.live,
        process_id=lease.process_id,
        lease_expires_s=lease.expires_at.timestamp(),
    )


def _standby_message(standby: Standby) -> messages.StandbyStatus:
    tier, _, name = standby.name.partition("/")
    return messages.StandbyStatus(
        tier=tier,
        name=name,
        address=standby.address,
        process_id=standby.process_id,
        since_s=standby.since.timestamp(),
    )
