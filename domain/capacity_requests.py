"""What clusters ask for of their region's machines (MAST §2: RAS)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from domain.fleet import NO_GPU_MODEL, Cluster
from domain.identifiers import ClusterId, GpuModel

UNLIMITED = 2**40
"""More than any region has of anything."""


class CapacityUnit(StrEnum):
    """In what a request counts."""

    MACHINES = "machines"
    GPUS = "gpus"


class FailureDomain(StrEnum):
    """What may fail as a whole, with all machines in it."""

    NONE = "none"
    RACK = "rack"
    POWER_DOMAIN = "power_domain"


@dataclass(frozen=True, slots=True)
class CapacityRequest:
    """What one cluster asks for of machines with one GPU model."""

    cluster: ClusterId
    gpu_model: GpuModel
    """NO_GPU_MODEL: machines without GPUs."""
    amount: int
    unit: CapacityUnit = CapacityUnit.MACHINES
    most_per_rack: float = 1.0
    """The share of the amount that counts in one rack at most; what is there beyond it does not count."""
    most_per_power_domain: float = 1.0
    survives: FailureDomain = FailureDomain.NONE
    """Any one of these may fail, and the amount is still there."""
    spares: int = 0
    """So much more than the amount, for machines that fail one by one; in the same unit."""
    spare_pool: str = ""
    """Requests of one pool share their spares: what is more than the amounts may be in any of their clusters. Empty: its own."""

    def most_in(self, domain: FailureDomain) -> int:
        """So much of it counts at most in one rack, or power domain; UNLIMITED where the share is 1."""
        share = self.most_per_rack if domain is FailureDomain.RACK else self.most_per_power_domain
        # A share such as 0.3 of 10 is 3, whatever binary fractions make of it.
        return UNLIMITED if share >= 1.0 else max(1, int(self.amount * share + 1e-9))

    @property
    def machines_named(self) -> str:
        """Of which machines it is, in words."""
        return f"machines with {self.gpu_model}" if self.gpu_model != NO_GPU_MODEL else "machines without GPUs"

    @property
    def needs_racks(self) -> bool:
        """Whether it matters in which racks they are."""
        return self.most_per_rack < 1.0 or self.survives is FailureDomain.RACK


@dataclass(frozen=True, slots=True)
class ClusterRequests:
    """What one cluster asks for. Machines that it has and does not ask for may be given to others."""

    cluster: ClusterId
    capacity: tuple[CapacityRequest, ...] = ()
    """At most one for each GPU model."""


def why_fixed(cluster: Cluster) -> str:
    """Why no machine may leave the cluster, or come to it; empty: they may."""
    if cluster.inference is not None:
        return f"cluster {cluster.cluster} serves inference: its machines are lent, and do not change their cluster"
    if cluster.has_cells:
        return (
            f"cluster {cluster.cluster} is divided into cells, on which its virtual clusters count: "
            "machines neither leave it nor come to it"
        )
    return ""
