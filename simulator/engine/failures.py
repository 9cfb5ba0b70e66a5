"""Machines fail and are repaired, alone or with their rack or power domain; times are exponential.

Rule: every machine, rack and power domain fails by itself after an exponential time in service and is repaired after
another. A machine is down while it, its rack or its power domain is. Each of them has its own random stream, so that
a change in one does not shift the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from domain.fleet import Fleet
from simulator.engine.settings import FailureSettings


@dataclass(frozen=True, slots=True)
class FailureDomain:
    """What fails as a whole."""

    what: str
    """For the log: `machine`, `rack k1`, `power domain 3`."""
    members: tuple[tuple[int, int], ...]
    """(position of the region, place of the machine in it)."""
    mtbf_s: float
    mttr_s: float


def failure_domains(fleet: Fleet, settings: FailureSettings) -> tuple[FailureDomain, ...]:
    """All that may fail, in the order of the fleet: machines, then racks, then power domains of consecutive racks."""
    racks = _racks(fleet)
    domains: list[FailureDomain] = []
    if settings.machine_mtbf_s > 0:
        domains += [
            FailureDomain("machine", (member,), settings.machine_mtbf_s, settings.machine_mttr_s)
            for _, members in racks
            for member in members
        ]
    if settings.rack_mtbf_s > 0:
        domains += [
            FailureDomain(f"rack {name}", members, settings.rack_mtbf_s, settings.rack_mttr_s)
            for name, members in racks
        ]
    if settings.power_domain_mtbf_s > 0:
        domains += [
            FailureDomain(f"power domain {number}", members, settings.power_domain_mtbf_s, settings.power_domain_mttr_s)
            for number, members in enumerate(_power_domains(racks, settings.racks_per_power_domain))
        ]
    return tuple(domains)


def _racks(fleet: Fleet) -> list[tuple[str, tuple[tuple[int, int], ...]]]:
    racks = []
    for position, region in enumerate(fleet.regions):
        place = 0
        for cluster in region.clusters:
            for rack in cluster.racks:
                members = tuple((position, place + offset) for offset in range(len(rack.machines)))
                racks.append((str(rack.rack), members))
                place += len(rack.machines)
    return racks


def _power_domains(
    racks: Sequence[tuple[str, tuple[tuple[int, int], ...]]], racks_per_domain: int
) -> list[tuple[tuple[int, int], ...]]:
    """Consecutive racks of one region, so many at a time."""
    by_region: dict[int, list[tuple[tuple[int, int], ...]]] = {}
    for _, members in racks:
        if members:
            by_region.setdefault(members[0][0], []).append(members)
    domains = []
    for region in sorted(by_region):
        of_region = by_region[region]
        domains += [
            tuple(member for rack in of_region[first : first + racks_per_domain] for member in rack)
            for first in range(0, len(of_region), racks_per_domain)
        ]
    return domains


class Failures:
    """When what fails, and what is down because of it."""

    def __init__(self, domains: Sequence[FailureDomain], seed: int) -> None:
        self.domains = tuple(domains)
        self._streams = [
            np.random.default_rng(np.random.SeedSequence([seed, number])) for number in range(len(self.domains))
        ]
        self._down: dict[tuple[int, int], int] = {}
        """Why a machine is down, counted: by itself, its rack, its power domain."""

    def next_failure_s(self, domain: int, now: float) -> float:
        """When it fails, if it is in service from now on."""
        return now + float(self._streams[domain].exponential(self.domains[domain].mtbf_s))

    def next_repair_s(self, domain: int, now: float) -> float:
        """When it is repaired, if it fails now."""
        return now + float(self._streams[domain].exponential(self.domains[domain].mttr_s))

    @property
    def any_failed(self) -> bool:
        """Whether any machine is down."""
        return bool(self._down)

    def fail(self, domain: int) -> tuple[tuple[int, int], ...]:
        """The machines that go down with it and were up."""
        newly = []
        for member in self.domains[domain].members:
            self._down[member] = self._down.get(member, 0) + 1
            if self._down[member] == 1:
                newly.append(member)
        return tuple(newly)

    def repair(self, domain: int) -> tuple[tuple[int, int], ...]:
        """The machines that come up with it."""
        up = []
        for member in self.domains[domain].members:
            self._down[member] -= 1
            if self._down[member] == 0:
                del self._down[member]
                up.append(member)
        return tuple(up)
