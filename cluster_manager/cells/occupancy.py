"""What is on the machines of a chain: which work holds which GPUs, guaranteed or opportunistic, and what is unusable."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from cluster_manager.cells.hierarchy import Chain
from domain.identifiers import TenantId

UNUSABLE = 0
OPPORTUNISTIC = 1

Integers: TypeAlias = npt.NDArray[np.int64]
TenantGpus: TypeAlias = tuple[tuple[TenantId, int], ...]
"""How many GPUs each tenant has, by name."""

NOBODYS: Final[TenantGpus] = ()


class Occupant(NamedTuple):
    """GPUs of one machine that one task holds."""

    key: Hashable
    """Of the work that the task belongs to."""
    bits: int
    guaranteed: bool
    tenant: TenantId


class Occupancy:
    """The GPUs of one chain, as bits per machine, with the sums that the choice of cells needs.

    GPUs may be held twice: by work that is to leave, and by what takes its place.
    """

    __slots__ = (
        "_all_gpus",
        "_guaranteed",
        "_machines_per_cell",
        "_opportunistic",
        "_unusable",
        "chain",
        "idle",
        "idle_gpus",
        "occupants",
        "opportunistic_of",
        "opportunistic_use",
        "taken_back",
        "unusable",
    )

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        machines = len(chain.machines)
        self._all_gpus = (1 << chain.gpus_per_machine) - 1
        self.occupants: list[list[Occupant]] = [[] for _ in range(machines)]
        """[machine] who holds something there."""
        self.idle = [self._all_gpus] * machines
        """[machine] the GPUs that nothing holds, as bits."""
        self.idle_gpus: Integers = np.full(machines, chain.gpus_per_machine, np.int64)
        """[machine] how many these are."""
        self.taken_back = [0] * machines
        """[machine] the GPUs that opportunistic work holds, as bits: who takes them back evicts it."""
        self.opportunistic_of: list[TenantGpus] = [NOBODYS] * machines
        """[machine] whose opportunistic work holds how many GPUs."""
        self.opportunistic_use: dict[TenantId, int] = {}
        """The same of the chain; tenants without any are left out."""
        self.unusable: dict[int, None] = {}
        """The machines that take no new work, because they are bad or being drained."""
        levels = range(len(chain.counts))
        self._machines_per_cell = [
            (level, chain.sizes[level] // chain.gpus_per_machine) for level in levels if level >= chain.machine_level
        ]
        self._opportunistic = [[0] * (chain.counts[k] if k >= chain.machine_level else 0) for k in levels]
        self._guaranteed: list[Integers] = [
            np.zeros(chain.counts[k] if k >= chain.machine_level else 0, np.int64) for k in levels
        ]
        self._unusable = [[0] * (chain.counts[k] if k >= chain.machine_level else 0) for k in levels]

    def add(self, machine: int, occupant: Occupant) -> None:
        """The GPUs are held from now on."""
        self.occupants[machine].append(occupant)
        self._sum_up(machine)

    def remove(self, machine: int, occupant: Occupant) -> None:
        """They are held no longer. Raises ValueError where they were not."""
        self.occupants[machine].remove(occupant)
        self._sum_up(machine)

    def set_usable(self, machine: int, *, usable: bool) -> bool:
        """Whether the machine takes new work; returns whether that changed."""
        if usable != (machine in self.unusable):
            return False
        if usable:
            del self.unusable[machine]
        else:
            self.unusable[machine] = None
        self._shift(self._unusable, machine, -1 if usable else 1)
        return True

    def cost(self, level: int, cell: int) -> tuple[int, int]:
        """Unusable machines in the cell, then GPUs of opportunistic work: the fewer, the better to bind."""
        if level >= self.chain.machine_level:
            return self._unusable[level][cell], self._opportunistic[level][cell]
        machine = cell * self.chain.sizes[level] // self.chain.gpus_per_machine
        bits = self.taken_back[machine]
        if bits:
            bits &= self.chain.bits_of(level, cell)
        return (1 if machine in self.unusable else 0), bits.bit_count()

    def opportunistic_in(self, level: int, cell: int) -> TenantGpus:
        """Whose opportunistic work holds how many GPUs of the cell."""
        chain = self.chain
        machines = chain.machines_in(level, cell)
        if level == chain.machine_level:
            return self.opportunistic_of[machines[0]]
        gpus: dict[TenantId, int] = {}
        if level > chain.machine_level:
            for machine in machines:
                for tenant, count in self.opportunistic_of[machine]:
                    gpus[tenant] = gpus.get(tenant, 0) + count
        else:
            inside = chain.bits_of(level, cell)
            for occupant in self.occupants[machines[0]]:
                if not occupant.guaranteed and occupant.bits & inside:
                    gpus[occupant.tenant] = gpus.get(occupant.tenant, 0) + (occupant.bits & inside).bit_count()
        return tuple(sorted(gpus.items()))

    def guaranteed_gpus(self, level: int) -> Integers:
        """[cell] the GPUs that guaranteed work holds in each cell of a level from the machine on; not to be changed."""
        return self._guaranteed[level]

    def whole_usable(self, level: int, cell: int, part: int, blocked: Iterable[int]) -> int:
        """How many cells of the level `part`, not above `level`, within the cell have no blocked machine."""
        chain = self.chain
        machines = chain.machines_in(level, cell)
        per_cell = chain.sizes[level] // chain.sizes[part]
        inside = [machine for machine in blocked if machine in machines]
        if not inside:
            return per_cell
        if part <= chain.machine_level:
            per_machine = min(per_cell, chain.gpus_per_machine // chain.sizes[part])
            return per_cell - len(inside) * per_machine
        return per_cell - len({chain.above(chain.machine_level, machine, part) for machine in inside})

    def _sum_up(self, machine: int) -> None:
        guaranteed = opportunistic = 0
        for _, bits, is_guaranteed, _ in self.occupants[machine]:
            if is_guaranteed:
                guaranteed |= bits
            else:
                opportunistic |= bits
        if opportunistic or self.opportunistic_of[machine]:
            self._count_opportunistic(machine)
        idle = self._all_gpus & ~(guaranteed | opportunistic)
        if idle != self.idle[machine]:
            self.idle[machine] = idle
            self.idle_gpus[machine] = idle.bit_count()
        level = self.chain.machine_level
        if opportunistic != self.taken_back[machine]:
            self.taken_back[machine] = opportunistic
            self._shift(self._opportunistic, machine, opportunistic.bit_count() - self._opportunistic[level][machine])
        self._shift(self._guaranteed, machine, guaranteed.bit_count() - int(self._guaranteed[level][machine]))

    def _count_opportunistic(self, machine: int) -> None:
        by_tenant: dict[TenantId, int] = {}
        for _, bits, is_guaranteed, tenant in self.occupants[machine]:
            if not is_guaranteed:
                by_tenant[tenant] = by_tenant.get(tenant, 0) + bits.bit_count()
        gpus, before = tuple(sorted(by_tenant.items())), self.opportunistic_of[machine]
        if gpus == before:
            return
        self.opportunistic_of[machine] = gpus
        use = self.opportunistic_use
        for tenant, count in gpus:
            use[tenant] = use.get(tenant, 0) + count
        for tenant, count in before:
            use[tenant] -= count
            if not use[tenant]:
                del use[tenant]

    def _shift(self, sums: list[list[int]] | list[Integers], machine: int, change: int) -> None:
        if change:
            for level, machines in self._machines_per_cell:
                sums[level][machine // machines] += change
