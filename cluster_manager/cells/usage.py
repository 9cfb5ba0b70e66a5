"""Who owns and uses what of a cluster's cells: by level of each virtual cluster, and in GPUs; all sums add up.

A GPU that one attempt is leaving for another counts as the newcomer's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from cluster_manager.capacity.cluster_capacity import ClusterCapacity
from cluster_manager.cells.cell_cluster import CellCluster
from cluster_manager.cells.fair_share import max_min_shares
from cluster_manager.cells.health import owned_cell_states
from cluster_manager.cells.held_work import HeldWork, WorkKey
from cluster_manager.cells.virtual_view import ViewKey
from domain.cells import tenant_of_virtual_cluster
from domain.identifiers import TenantId, VirtualClusterId
from domain.placement import AttemptKey

NONE_WAITING: Mapping[TenantId, int] = MappingProxyType({})


class LevelUsage(NamedTuple):
    """The cells of one level that a virtual cluster owns, or one that is pinned: owned = used + free + bad."""

    virtual_cluster: VirtualClusterId
    hierarchy: str
    level: str
    pinned_cell: str | None
    gpus_per_cell: int
    owned: int
    used: int
    """Guaranteed work holds GPUs of so many."""
    free: int
    bad: int
    """Not in use, and on hardware that is out of use, or doomed to such."""


class TenantGpus(NamedTuple):
    """The GPUs of one tenant."""

    tenant: TenantId
    owned: int
    """Of its virtual cluster."""
    guaranteed: int
    """Held in its cells."""
    opportunistic: int
    """Held anywhere else."""
    downgraded: int
    """Those of the opportunistic ones whose work asked for cells and does without at the moment."""
    bad: int
    """In cells that are bad."""
    fair_share: int
    """Its weighted max-min share of what is not guaranteed, of as much as it holds opportunistically or waits for."""


@dataclass(frozen=True, slots=True)
class CellUsage:
    """One cluster: gpus = guaranteed + opportunistic + idle + out_of_use, of the tenants together."""

    gpus: int
    guaranteed: int
    opportunistic: int
    idle: int
    """On machines that take work."""
    out_of_use: int
    """Idle, on machines that take none."""
    levels: tuple[LevelUsage, ...]
    """By virtual cluster, hierarchy, and level from the highest down; pinned cells last."""
    tenants: tuple[TenantGpus, ...]
    """Those that own or hold something, by name."""


def cell_usage(
    view: ClusterCapacity, tenant_of: Mapping[AttemptKey, TenantId], waiting: Mapping[TenantId, int] = NONE_WAITING
) -> CellUsage:
    """The usage of a cluster, with the tenants of the attempts that hold something in it, and the GPUs for which each
    tenant waits beyond its quota. Raises KeyError without a tenant."""
    held = HeldWork(view)
    held.bring_up_to_date(view)
    cells = held.cells
    guaranteed: Counter[TenantId] = Counter()
    opportunistic: Counter[TenantId] = Counter()
    downgraded: Counter[TenantId] = Counter()
    taken: Counter[tuple[int, int]] = Counter()
    for work in sorted(cells.work.values(), key=lambda work: (work.leaving, work.sequence)):
        if not isinstance(work.request.key, WorkKey):
            continue
        tenant, gpus = tenant_of[work.request.key.attempt], 0
        for task in work.tasks:
            gpus += (task.bits & ~taken[task.chain, task.machine]).bit_count()
            taken[task.chain, task.machine] |= task.bits
        (opportunistic if work.view is None else guaranteed)[tenant] += gpus
        downgraded[tenant] += gpus if work.downgraded else 0
    out_of_use = sum(
        chain.gpus_per_machine - taken[number, machine].bit_count()
        for number, chain in enumerate(cells.chains)
        for machine in cells.occupancy(number).unusable
    )
    levels = tuple(_levels(cells))
    owned: Counter[TenantId] = Counter()
    bad: Counter[TenantId] = Counter()
    for level in levels:
        tenant = tenant_of_virtual_cluster(level.virtual_cluster)
        owned[tenant] += level.owned * level.gpus_per_cell
        bad[tenant] += level.bad * level.gpus_per_cell
    demands = {name: opportunistic[name] + waiting.get(name, 0) for name in (*opportunistic, *waiting)}
    gpus, used = sum(chain.gpus for chain in cells.chains), guaranteed.total() + opportunistic.total()
    shares = max_min_shares(gpus - guaranteed.total() - out_of_use, demands, cells.weights)
    tenants = tuple(
        TenantGpus(
            name, owned[name], guaranteed[name], opportunistic[name], downgraded[name], bad[name], shares.get(name, 0)
        )
        for name in sorted({*owned, *guaranteed, *opportunistic})
    )
    return CellUsage(
        gpus, guaranteed.total(), opportunistic.total(), gpus - used - out_of_use, out_of_use, levels, tenants
    )


def _levels(cells: CellCluster) -> Iterator[LevelUsage]:
    chains = {chain.name: chain for chain in cells.chains}
    for key in sorted(cells.views, key=lambda key: (key.virtual_cluster, key.chain, key.pinned or "")):
        view, chain = cells.views[key], chains[key.chain]
        in_use = {view.nodes.owned[node] for node, _ in view.uses()}
        states = owned_cell_states(cells, key)
        for level in sorted(set(view.owned_levels), reverse=True):
            numbers = [number for number, owned in enumerate(view.owned_levels) if owned == level]
            used = sum(number in in_use for number in numbers)
            bad = sum(number not in in_use and not states[number].usable for number in numbers)
            yield _level_usage(key, chain.name_of(level), chain.sizes[level], len(numbers), used, bad)


def _level_usage(key: ViewKey, level: str, gpus: int, owned: int, used: int, bad: int) -> LevelUsage:
    name = key.virtual_cluster
    return LevelUsage(name, key.chain, level, key.pinned, gpus, owned, used, owned - used - bad, bad)
