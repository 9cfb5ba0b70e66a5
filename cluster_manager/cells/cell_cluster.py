"""The state of a cluster divided into cells: what is bound, what is held, what is out of use.

Decisions (`cluster_manager.cells.decisions`) leave it as it was; `commit` carries one out, `release` ends work. Each
change is checked before it is made: where it raises, nothing has changed.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from types import MappingProxyType

from cluster_manager.cells.assignment import assigned_cells, owned_levels, pinned_address
from cluster_manager.cells.buddy import BuddyCells
from cluster_manager.cells.hierarchy import Chain
from cluster_manager.cells.nodes import Nodes
from cluster_manager.cells.occupancy import Occupancy, Occupant
from cluster_manager.cells.requests import CellRequest, InvalidRequest
from cluster_manager.cells.virtual_view import NodeUse, ViewKey, VirtualView
from cluster_manager.cells.work import Placement, TaskCells, Work
from domain.cells import CellPair, VirtualCluster
from domain.identifiers import MachineId, TenantId

NO_WEIGHTS: Mapping[TenantId, float] = MappingProxyType({})


class UnknownCells(InvalidRequest):
    """A virtual cluster, a pinned cell or a GPU model that is not there."""


class StalePlacement(ValueError):
    """The cells have changed since the placement was found: decide again."""


class CellCluster:
    """One cluster's chains, virtual clusters, and the work on them."""

    def __init__(
        self,
        chains: Sequence[Chain],
        virtual_clusters: Sequence[VirtualCluster] = (),
        *,
        weights: Mapping[TenantId, float] = NO_WEIGHTS,
        static_binding: bool = False,
    ) -> None:
        """Nothing is held. Raises AssignmentProblem where virtual clusters own more than there is.

        `weights` are those of tenants in their shares of opportunistic use; who is missing has 1.

        `static_binding`: all owned cells are bound now and for good, instead of when they are used.
        """
        self.chains = tuple(chains)
        self.weights = dict(weights)
        self.virtual_clusters = {owner.virtual_cluster: owner for owner in virtual_clusters}
        self.buddies: tuple[BuddyCells, ...] = assigned_cells(chains, virtual_clusters)
        """[chain] its free cells."""
        self.machines = tuple(Nodes(chain, [chain.top] * chain.counts[chain.top]) for chain in chains)
        """[chain] its machines, as a search for places sees them."""
        self.views: dict[ViewKey, VirtualView] = {}
        for number, chain in enumerate(self.chains):
            for owner in virtual_clusters:
                self._add_views(owner, chain, self.buddies[number])
        if static_binding:
            self._bind_for_good()
        self.work: dict[Hashable, Work] = {}
        """By its key, in the order in which it came."""
        self.revision = 0
        """Grows with every change."""
        self._number_of = {
            machine: (chain, number)
            for chain, of_chain in enumerate(self.chains)
            for number, machine in enumerate(of_chain.machines)
        }
        self._sequence = 0

    def _add_views(self, owner: VirtualCluster, chain: Chain, buddy: BuddyCells) -> None:
        name = owner.virtual_cluster
        levels = owned_levels(chain, owner)
        if levels:
            key = ViewKey(name, chain.name)
            self.views[key] = VirtualView(key, levels, buddy)
        for pinned in owner.pinned:
            if pinned.chain == chain.name:
                key = ViewKey(name, chain.name, pinned.name)
                level, cell = pinned_address(chain, pinned)
                self.views[key] = VirtualView(key, (level,), buddy, cell)

    def _bind_for_good(self) -> None:
        """Large cells first: so they find large ones that are whole."""
        dynamic = [view for key, view in self.views.items() if key.pinned is None]
        for level in range(max((chain.top for chain in self.chains), default=0), 0, -1):
            for view in dynamic:
                if level <= view.nodes.chain.top:
                    view.binding.bind_for_good(level)

    # What there is.

    def occupancy(self, chain: int) -> Occupancy:
        """What is on the machines of the chain."""
        return self.buddies[chain].occupancy

    def number_of(self, machine: MachineId) -> tuple[int, int]:
        """The chain of the machine, and its number there. Raises KeyError."""
        return self._number_of[machine]

    def has_machine(self, machine: MachineId) -> bool:
        """Whether the machine is in any chain."""
        return machine in self._number_of

    def views_for(self, request: CellRequest) -> list[tuple[int, VirtualView]]:
        """The cells that may serve a guaranteed request, with their chains. Raises UnknownCells where there are none."""
        name = request.virtual_cluster
        if name is None or name not in self.virtual_clusters:
            there = ", ".join(sorted(self.virtual_clusters)) or "none"
            raise UnknownCells(f"{request.key}: there is no virtual cluster {name}; there is {there}")
        views = [
            (number, view)
            for number, chain in enumerate(self.chains)
            if _may_use(request, chain)
            and (view := self.views.get(ViewKey(name, chain.name, request.pinned_cell))) is not None
        ]
        if not views:
            what = f"pinned cell {request.pinned_cell}" if request.pinned_cell is not None else "cell"
            of_model = f" of GPU model {request.gpu_model}" if request.gpu_model is not None else ""
            raise UnknownCells(f"{request.key}: virtual cluster {name} has no {what}{of_model}")
        return views

    def chains_for(self, request: CellRequest) -> list[int]:
        """The chains that may serve an opportunistic request. Raises UnknownCells where there are none."""
        chains = [number for number, chain in enumerate(self.chains) if _may_use(request, chain)]
        if not chains:
            raise UnknownCells(f"{request.key}: there is no machine of GPU model {request.gpu_model}")
        return chains

    # Changes.

    def commit(self, placement: Placement) -> None:
        """Carries the decision out: the request holds its cells, victims are asked to leave, others are downgraded.

        Raises StalePlacement where anything has changed since the decision.
        """
        request = placement.request
        if placement.revision != self.revision or request.key in self.work:
            raise StalePlacement(f"{request.key}: the cells have changed since its place was found")
        for key in placement.unseated:
            self.unseat(self.work[key])
        for key in placement.victims:
            self.work[key].leaving = True
        self.add(request, placement.view, placement.tasks)

    def release(self, key: Hashable) -> None:
        """The work is gone. Raises KeyError."""
        work = self.work[key]
        for task in work.tasks:
            self._remove(work, task)
        self._leave_view(work)
        del self.work[key]
        self.revision += 1

    def begin_eviction(self, key: Hashable) -> None:
        """The work is asked to leave. Raises KeyError."""
        self.work[key].leaving = True
        self.revision += 1

    def set_usable(self, machine: MachineId, *, usable: bool) -> tuple[Hashable, ...]:
        """Whether the machine takes new work from now on; returns what is on it. Raises KeyError."""
        chain, number = self._number_of[machine]
        occupancy = self.occupancy(chain)
        if occupancy.set_usable(number, usable=usable):
            self.buddies[chain].machine_changed(number)
            self.revision += 1
        return tuple(dict.fromkeys(occupant.key for occupant in occupancy.occupants[number]))

    def add(self, request: CellRequest, view: ViewKey | None, tasks: tuple[TaskCells, ...]) -> Work:
        """Work that holds these cells. Raises Inconsistent where it cannot hold them in that view."""
        work = Work(request, None, tasks, self._sequence)
        if view is not None:
            self.views[view].binding.use(pair for task in tasks for pair in task.pairs)
        self._sequence += 1
        self.work[request.key] = work
        for task in tasks:
            self._occupy(work, task, guaranteed=view is not None)
        if view is not None:
            self._hold_view(work, view)
        self.revision += 1
        return work

    def seat(self, work: Work, view: ViewKey, pairs: Sequence[tuple[CellPair, ...]]) -> None:
        """The work, which is here opportunistically, holds these virtual cells. Raises Inconsistent."""
        self.views[view].binding.use(pair for of_task in pairs for pair in of_task)
        for task in work.tasks:
            self._remove(work, task)
        work.tasks = tuple(task._replace(pairs=of_task) for task, of_task in zip(work.tasks, pairs, strict=True))
        for task in work.tasks:
            self._occupy(work, task, guaranteed=True)
        self._hold_view(work, view)
        self.revision += 1

    def unseat(self, work: Work) -> None:
        """The work loses its virtual cells and goes on opportunistically where it is."""
        if work.view is None:
            return
        for task in work.tasks:
            self._remove(work, task)
        self._leave_view(work)
        for task in work.tasks:
            self._occupy(work, task, guaranteed=False)
        self.revision += 1

    def _leave_view(self, work: Work) -> None:
        if work.view is None:
            return
        view = self.views[work.view]
        for task in work.tasks:
            for node, bits in _per_node(view, task):
                view.let_go(node, NodeUse(work.request.key, bits))
        work.view = None
        view.binding.stop_using(pair for task in work.tasks for pair in task.pairs)

    def _hold_view(self, work: Work, key: ViewKey) -> None:
        view = self.views[key]
        levels: list[str] = []
        for task in work.tasks:
            for node, bits in _per_node(view, task):
                view.hold(node, NodeUse(work.request.key, bits))
            level, virtual, _ = task.pairs[0]
            levels.append(view.nodes.chain.name_of(view.binding.owned_level(level, virtual)))
        work.view, work.owned_levels = key, tuple(levels)

    def _occupy(self, work: Work, task: TaskCells, *, guaranteed: bool) -> None:
        occupancy = self.occupancy(task.chain)
        taken_back = occupancy.taken_back[task.machine]
        occupancy.add(task.machine, Occupant(work.request.key, task.bits, guaranteed, work.request.tenant))
        if occupancy.taken_back[task.machine] != taken_back:
            self.buddies[task.chain].machine_changed(task.machine)

    def _remove(self, work: Work, task: TaskCells) -> None:
        occupancy = self.occupancy(task.chain)
        taken_back = occupancy.taken_back[task.machine]
        occupancy.remove(
            task.machine, Occupant(work.request.key, task.bits, work.view is not None, work.request.tenant)
        )
        if occupancy.taken_back[task.machine] != taken_back:
            self.buddies[task.chain].machine_changed(task.machine)

    # What is on GPUs.

    def on(self, tasks: Iterable[TaskCells]) -> tuple[Hashable, ...]:
        """Whatever holds any of these GPUs, in the order in which it came."""
        keys = {
            occupant.key: None
            for task in tasks
            for occupant in self.occupancy(task.chain).occupants[task.machine]
            if occupant.bits & task.bits
        }
        return tuple(sorted(keys, key=lambda key: self.work[key].sequence))

    def waiting_for(self, key: Hashable) -> tuple[Hashable, ...]:
        """What has yet to leave the GPUs that this work holds."""
        work = self.work[key]
        return tuple(
            other
            for other in self.on(work.tasks)
            if self.work[other].leaving and self.work[other].sequence < work.sequence
        )

    def blocked(self, chain: int, barred: Collection[MachineId]) -> Collection[int] | None:
        """The machines of the chain that new work must not use; None where these are just those that are unusable."""
        if not barred:
            return None
        here = [number for of_chain, number in map(self._number_of.__getitem__, barred) if of_chain == chain]
        return dict.fromkeys([*self.occupancy(chain).unusable, *here]) if here else None


def _may_use(request: CellRequest, chain: Chain) -> bool:
    return request.gpu_model in {None, chain.gpu_model} and (request.chains is None or chain.name in request.chains)


def _per_node(view: VirtualView, task: TaskCells) -> Iterable[tuple[int, int]]:
    """The task's GPUs of each virtual node, as bits: all in one."""
    if len(task.pairs) == 1:
        return (view.node_of(task.pairs[0]),)
    bits_of: dict[int, int] = {}
    for pair in task.pairs:
        node, bits = view.node_of(pair)
        bits_of[node] = bits_of.get(node, 0) | bits
    return bits_of.items()
