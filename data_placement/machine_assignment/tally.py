"""What the machines of a cluster count for its request, kept up to date as they come and go.

They count up to the request's share of each rack and power domain; what is there beyond it does not. So a share is never
exceeded, and asks for nothing that a region cannot do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from data_placement.machine_assignment.problem import AssignableMachine
from domain.capacity_requests import CapacityRequest, FailureDomain
from domain.identifiers import RackId


class Tally:
    """Of one request."""

    def __init__(self, request: CapacityRequest, machines: Iterable[AssignableMachine] = ()) -> None:
        self.request = request
        self.total = 0
        """What counts."""
        self.held: dict[str, int] = {}
        """What is there in each power domain, whether it counts or not."""
        self._in_rack: dict[RackId, int] = {}
        self._in_domain: dict[str, int] = {}
        """The sum of what counts in its racks."""
        self._most_in_rack = request.most_in(FailureDomain.RACK)
        self._most_in_domain = request.most_in(FailureDomain.POWER_DOMAIN)
        for machine in machines:
            self.add(machine)

    def add(self, machine: AssignableMachine) -> None:
        """It comes to the cluster."""
        self._shift(machine, machine.units(self.request.unit))

    def remove(self, machine: AssignableMachine) -> None:
        """It leaves the cluster."""
        self._shift(machine, -machine.units(self.request.unit))

    @property
    def unmet(self) -> int:
        """What is missing of the amount."""
        return max(0, self.request.amount - self.total)

    def parts(self) -> Mapping[str, int]:
        """What counts in each of the domains of which any may fail, by its name."""
        match self.request.survives:
            case FailureDomain.NONE:
                return {}
            case FailureDomain.RACK:
                return {rack: min(units, self._most_in_rack) for rack, units in self._in_rack.items()}
            case FailureDomain.POWER_DOMAIN:
                return {domain: min(units, self._most_in_domain) for domain, units in self._in_domain.items()}

    def _shift(self, machine: AssignableMachine, units: int) -> None:
        rack, domain = machine.rack, machine.power_domain
        self.held[domain] = self.held.get(domain, 0) + units
        before = self._in_rack.get(rack, 0)
        after = self._in_rack[rack] = before + units
        counted = min(after, self._most_in_rack) - min(before, self._most_in_rack)
        before = self._in_domain.get(domain, 0)
        after = self._in_domain[domain] = before + counted
        self.total += min(after, self._most_in_domain) - min(before, self._most_in_domain)


def missing_spares(pool: Sequence[Tally]) -> int:
    """What requests that share their spares lack beside their amounts: for the failure of any one domain, and of machines
    one by one."""
    wanted = sum(tally.request.amount - tally.unmet for tally in pool)
    total = sum(tally.total for tally in pool)
    missing = max(0, wanted + max(tally.request.spares for tally in pool) - total)
    if pool[0].request.survives is not FailureDomain.NONE:
        missing += max(0, wanted - total + worst_loss(pool))
    return missing


def worst_loss(pool: Sequence[Tally]) -> int:
    """How much of what counts for these requests is lost when the worst of the domains fails that may fail."""
    lost: dict[str, int] = {}
    for tally in pool:
        for domain, units in tally.parts().items():
            lost[domain] = lost.get(domain, 0) + units
    return max(lost.values(), default=0)
