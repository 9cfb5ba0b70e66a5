"""The news that a newcomer may find more capacity than before: what every memory of refusals must hear."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from cluster_manager.capacity.charging import MACHINE
from cluster_manager.capacity.fitting import tasks_on
from cluster_manager.capacity.tables import NO_WORK, RESOURCES, WORKS_AS, ClusterArrays, Integers
from cluster_manager.capacity.task_kinds import MUCH, WHEN_EMPTY, Needs
from domain.rank import Standing
from kernels.compiled import compiled


class ReleasedCapacity(NamedTuple):
    """Some newcomers may now find more capacity on these machines of one cluster than before.

    Capacity here means what is free plus what all attempts hold that the newcomer may evict. The standings say whose
    capacity grew where newcomers may evict whatever stands worse: there an attempt that ends releases capacity only for
    those that could not have evicted it.
    """

    arrays: ClusterArrays
    machines: Integers  # numbers, in machine order
    amounts: Integers  # [machine, resource] by how much at most
    from_standing: Standing | None = None
    """Only for newcomers of this standing or a worse one; None: for the best, too."""
    below_standing: Standing | None = None
    """Only for newcomers of a strictly better standing than this one; None: for the worst, too."""

    def concerns(self, standing: Standing) -> bool:
        """Whether a newcomer of this standing may find more capacity, where it may evict whatever stands worse."""
        return (self.from_standing is None or standing >= self.from_standing) and (
            self.below_standing is None or standing < self.below_standing
        )


class ReleaseListener(Protocol):
    """Hears of what is released in one cluster, after it has happened; but of nothing that is tentative."""

    @property
    def listens(self) -> bool:
        """False while no release could mean anything to it: then it need not hear of any."""
        ...

    def capacity_released(self, released: ReleasedCapacity) -> None: ...


@compiled
def most_gained(cluster: ClusterArrays, machines: Integers, amounts: Integers, table: Integers) -> int:
    """For how many more tasks these amounts, released on these machines, can make room at most.

    A machine whose free amounts grow by d gains room for at most the largest of ceil(d / need) over the resources,
    whatever it had before; and it never has room for more tasks than when empty.
    """
    gained = 0
    for index in range(len(machines)):
        shape = cluster.state[machines[index], WORKS_AS]
        if shape == NO_WORK:
            continue
        gain = 0
        needs_nothing = True
        for resource in range(RESOURCES):
            if table[shape, resource] > 0:
                needs_nothing = False
                steps = (amounts[index, resource] + table[shape, resource] - 1) // table[shape, resource]
                gain = max(gain, steps)
        if needs_nothing:
            # It only wants a machine that takes work, and this one may not have taken any before.
            gain = table[shape, WHEN_EMPTY]
        gained += min(gain, table[shape, WHEN_EMPTY])
    return gained


@compiled
def tasks_gained(cluster: ClusterArrays, needs: Needs, entries: Integers) -> int:
    """For how many more tasks there is capacity when these entries, one for each machine, are released."""
    gained = 0
    for entry in range(len(entries)):
        machine = entries[entry, MACHINE]
        if cluster.state[machine, WORKS_AS] == NO_WORK:
            continue
        before = tasks_on(cluster, needs.table, machine, MUCH)
        for resource in range(RESOURCES):
            cluster.state[machine, resource] += entries[entry, resource]
        gained += tasks_on(cluster, needs.table, machine, MUCH) - before
        for resource in range(RESOURCES):
            cluster.state[machine, resource] -= entries[entry, resource]
    return gained
