"""How Topmast is: its tiers, its regions, how many workloads are in which state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from topmast.v1 import global_scheduler_pb2


@dataclass(frozen=True, slots=True)
class TierStatus:
    """One server: `tier` is global, regional or cluster; `name` that of its region or cluster ("" for global)."""

    tier: str
    name: str
    address: str
    alive: bool
    process_id: int
    lease_expires_s: float


@dataclass(frozen=True, slots=True)
class StandbyStatus:
    """A process that takes over when the one that leads ends: `tier` and `name` as of that one; `since_s` is Unix time."""

    tier: str
    name: str
    address: str
    process_id: int
    since_s: float


@dataclass(frozen=True, slots=True)
class RegionStatus:
    region: str
    clusters: int
    machines: int
    machines_up: int
    gpus: int
    gpus_in_use: int
    live_attempts: int
    machines_on_loan: int = 0
    """Lent by inference clusters, or on their way back to them."""
    invariant_violations: int = 0
    """How often the region found one of its invariants broken, and began anew: 0, or a bug; the event log names it."""


@dataclass(frozen=True, slots=True)
class HealthDetail:
    """What is not as it should be: its kind for programs (DISK_FULL), a sentence with the remedy, and since when."""

    kind: str
    sentence: str
    since_s: float


@dataclass(frozen=True, slots=True)
class Status:
    """One look at everything. `workloads` counts them by the name of their state."""

    now_s: float
    version: str
    tiers: tuple[TierStatus, ...]
    regions: tuple[RegionStatus, ...]
    workloads: Mapping[str, int]
    scan_pass: int
    health: tuple[HealthDetail, ...] = ()
    """What is not as it should be; empty: nothing that is known of."""
    standbys: tuple[StandbyStatus, ...] = ()

    def cluster_address(self, cluster: str) -> str | None:
        """Where the manager of a cluster answers; None when no living one is known."""
        return next(
            (tier.address for tier in self.tiers if tier.tier == "cluster" and tier.name == cluster and tier.alive),
            None,
        )


def status_from_proto(message: global_scheduler_pb2.GetStatusResponse) -> Status:
    return Status(
        message.now_s,
        message.version,
        tuple(
            TierStatus(tier.tier, tier.name, tier.address, tier.alive, tier.process_id, tier.lease_expires_s)
            for tier in message.tiers
        ),
        tuple(
            RegionStatus(
                region.region,
                region.clusters,
                region.machines,
                region.machines_up,
                region.gpus,
                region.gpus_in_use,
                region.live_attempts,
                region.machines_on_loan,
                region.invariant_violations,
            )
            for region in message.regions
        ),
        dict(sorted(message.workloads.items())),
        message.scan_pass,
        tuple(HealthDetail(detail.kind, detail.sentence, detail.since_s) for detail in message.health),
        tuple(
            StandbyStatus(standby.tier, standby.name, standby.address, standby.process_id, standby.since_s)
            for standby in message.standbys
        ),
    )
