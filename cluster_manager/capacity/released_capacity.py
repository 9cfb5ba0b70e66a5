"""The news that there is more room than before: what whoever remembers refusals must hear."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from cluster_manager.capacity.machines import CLUSTER, NO_WORK, RESOURCES, WORKS_AS, FleetArrays, Integers, Layout
from cluster_manager.kernels.compiled import compiled
from domain.rank import Standing


@dataclass(frozen=True, slots=True)
class ReleasedCapacity:
    """Some newcomers may now find more room on these machines than before.

    Room here means what is free plus what everybody holds whom the newcomer may evict; so an attempt that ends makes
    room only for those who could not have evicted it.
    """

    layout: Layout
    machines: Integers  # numbers, in machine order
    amounts: Integers  # [machine, resource] by how much at most
    from_standing: Standing | None = None
    """Only for newcomers of this standing or a worse one; None: for the best, too."""
    below_standing: Standing | None = None
    """Only for newcomers of a strictly better standing than this one; None: for the worst, too."""

    def concerns(self, standing: Standing) -> bool:
        """Whether a newcomer of this standing may find more room."""
        return (self.from_standing is None or standing >= self.from_standing) and (
            self.below_standing is None or standing < self.below_standing
        )


class CapacityWatcher(Protocol):
    """Is told of every growth, after it has happened; but of nothing that is tentative."""

    @property
    def listens(self) -> bool:
        """False while no growth could mean anything to it: then it need not be told."""
        ...

    def capacity_released(self, growth: ReleasedCapacity) -> None: ...


@compiled
def add_released_capacity(
    fleet: FleetArrays,
    machines: Integers,
    amounts: Integers,
    need: Integers,
    whole_room: Integers,
    cluster_room: Integers,
    room: Integers,
) -> int:
    """Adds to `room` [cluster] for how many more tasks a growth can make room at most; returns the greatest room.

    A machine whose free amounts grow by d gains room for at most the largest of ceil(d / need) over the resources,
    whatever it had before. Neither a machine (`whole_room` [shape]) nor a cluster (`cluster_room`) ever has room for
    more tasks than when empty. `need` [shape, resource] is what one task takes.
    """
    for index in range(len(machines)):
        machine = machines[index]
        shape = fleet.state[machine, WORKS_AS]
        if shape == NO_WORK:
            continue
        gain = 0
        needs_nothing = True
        for resource in range(RESOURCES):
            if need[shape, resource] > 0:
                needs_nothing = False
                steps = (amounts[index, resource] + need[shape, resource] - 1) // need[shape, resource]
                gain = max(gain, steps)
        if needs_nothing:
            # It only wants a machine that takes work, and this one may not have taken any before.
            gain = whole_room[shape]
        room[fleet.fixed[machine, CLUSTER]] += min(gain, whole_room[shape])
    greatest = 0
    for cluster in range(len(room)):
        room[cluster] = min(room[cluster], cluster_room[cluster])
        greatest = max(greatest, room[cluster])
    return greatest
