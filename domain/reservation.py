"""Reservations: machines that are kept for a gang that has waited for too long, and how far that goes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from domain.identifiers import ClusterId, MachineId, RegionId, WorkloadId
from domain.rank import Standing
from domain.tenant import HIGHEST_PRIORITY, LOWEST_PRIORITY


@dataclass(frozen=True, slots=True)
class ReservationLimits:
    """Of the gangs of one priority."""

    after_s: float = 3600.0
    """A gang that has been queued for so long gets a reservation."""
    at_most: int = 2
    """So many have one in a region at a time; 0: none."""

    def __post_init__(self) -> None:
        if self.after_s < 0:
            raise ValueError(f"after_s must be 0 or more, not {self.after_s:g}")
        if self.at_most < 0:
            raise ValueError(f"at_most must be 0 or more, not {self.at_most}")

    @property
    def entitled_after_s(self) -> float:
        """A gang that has been queued for so long may get one; infinite: none ever does."""
        return self.after_s if self.at_most else math.inf


@dataclass(frozen=True, slots=True)
class ReservationRule:
    """The limits of `regional_scheduler.reservations`. Raises ValueError for some that make no sense."""

    limits: ReservationLimits = ReservationLimits()
    limits_of_priorities: Mapping[int, ReservationLimits] = field(default_factory=lambda: MappingProxyType({}))
    """Instead of `limits`."""
    least_gpus: int = 16
    """A workload of fewer is no large gang and gets none."""
    tolerance_s: float = 1800.0
    """A reservation that is not met so long after its time is made anew."""
    assumed_run_time_s: float = 86_400.0
    """What runs without an estimate is taken to run for so long; what has outlived its estimate, for so long from now on."""
    start_up_s: float = 213.0
    """From a dispatch to the work (MAST §5.5, with a restore): added to what a workload says that it runs."""
    look_every_s: float = 300.0
    """So often, on the clock of the run, a region looks at its reservations."""

    def __post_init__(self) -> None:
        if self.least_gpus < 1:
            raise ValueError(f"least_gpus must be 1 or more, not {self.least_gpus}")
        if min(self.tolerance_s, self.assumed_run_time_s, self.start_up_s) < 0:
            raise ValueError("tolerance_s, assumed_run_time_s and start_up_s must be 0 or more")
        if self.look_every_s <= 0:
            raise ValueError(f"look_every_s must be more than 0, not {self.look_every_s:g}")
        for priority in self.limits_of_priorities:
            if not HIGHEST_PRIORITY <= priority <= LOWEST_PRIORITY:
                raise ValueError(f"priorities are from {HIGHEST_PRIORITY} to {LOWEST_PRIORITY}; {priority} is none")

    def limits_of(self, priority: int) -> ReservationLimits:
        """For gangs of that priority."""
        return self.limits_of_priorities.get(priority, self.limits)


@dataclass(frozen=True, slots=True)
class Reservation:
    """Machines that are kept for a gang."""

    workload: WorkloadId
    region: RegionId
    clusters: tuple[ClusterId, ...]
    """Of its machines, sorted."""
    machines: tuple[MachineId, ...]
    """Sorted."""
    gpus: int
    """That the gang asks for."""
    standing: Standing
    """Of the gang, as it was ranked last: workloads of a strictly better one are not kept off."""
    made_s: float
    expected_start_s: float
    """When the machines will be free, if what runs there ends when it is expected to."""
    expires_s: float
    """Not met by then, it is made anew."""


class ReservationEnd(StrEnum):
    """Why there is a reservation no more; the values stand in event logs."""

    STARTED = "started"
    """The gang has its machines, these or others."""
    NOT_QUEUED = "not_queued"
    """The gang waits no more: it was cancelled, or has ended."""
    MACHINE_LOST = "machine_lost"
    """One of its machines takes no work any more, or is not of the region any more."""
    NOT_MET = "not_met"
    """It was not met in time: the estimates were wrong, or better workloads came."""
    SOONER_ELSEWHERE = "sooner_elsewhere"
    """Another region has machines earlier."""
    SWITCHED_OFF = "switched_off"
    """The settings give the gang none any more."""
