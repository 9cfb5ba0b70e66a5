"""The virtual clusters of tenants.yaml matched with the cells of fleet.yaml (HiveD §3.2, Fig. 4).

`matched` is the only way from the one to the other: for files, for what is applied to a service, and for what a region
reads from its database. It gives each cluster the virtual clusters that own cells in it, and says what does not match:
hierarchies that do not divide, names that there are not, and levels of which more is promised than there is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import NamedTuple, TypeAlias

from cluster_manager.cells.assignment import (
    AssignmentProblem,
    NotToBePinned,
    OverPromised,
    assigned_cells,
    machines_as_cells,
    pinned_address,
)
from cluster_manager.cells.hierarchy import (
    Chain,
    HierarchyProblem,
    UnknownLevel,
    chains_of,
    declared_chain,
    machines_without_chain,
)
from domain.cells import OwnedCells, PinnedCell, VirtualCluster, virtual_cluster_of_tenant
from domain.declared_cells import (
    Declarations,
    DeclaredCells,
    DeclaredMachines,
    DeclaredPin,
    DeclaredVirtualCluster,
)
from domain.fleet import CELLS_MECHANISM, Cluster, Fleet, Region
from domain.identifiers import ClusterId, TenantId
from domain.tenant import Tenant
from formats.problems import FieldProblem, FormatError, suggestion

SHOWN_MACHINES = 5

Weights: TypeAlias = tuple[tuple[TenantId, float], ...]


class CellsProblem(NamedTuple):
    """Something that does not match."""

    place: str
    """The path of the cluster in the fleet (`regions[0].clusters[1]`); empty where there is no such cluster."""
    tenant: TenantId | None
    """Whose declaration it is about; None: it is the cluster's own."""
    field: str
    """The path in the cluster or in the tenant, such as `virtual_clusters[0].cells[1].level`."""
    description: str


@dataclass(frozen=True, slots=True)
class Matched:
    """A fleet with its virtual clusters, as far as they match."""

    fleet: Fleet
    problems: tuple[CellsProblem, ...]


def declarations_of(tenants: Sequence[Tenant]) -> Declarations:
    """What these tenants declare, in their order."""
    return {tenant.tenant: tenant.virtual_clusters for tenant in tenants}


def weights_of(tenants: Sequence[Tenant]) -> Weights:
    """Their weights in shares of opportunistic use, as far as they are not 1; by name."""
    return tuple(sorted((one.tenant, one.fair_share_weight) for one in tenants if one.fair_share_weight != 1.0))


def fleet_with_virtual_clusters(
    fleet: Fleet, declarations: Declarations, source: str = "fleet and tenants", weights: Weights = ()
) -> Fleet:
    """The fleet with the virtual clusters of these declarations and no others, and the weights of tenants.

    Raises FormatError with every problem; paths are those of fleet.yaml and of a list of `tenants` in this order.
    """
    found = matched(fleet, declarations, weights)
    if found.problems:
        raise FormatError(source, field_problems(found.problems, declarations))
    return found.fleet


def region_with_virtual_clusters(region: Region, tenants: Sequence[Tenant]) -> Region:
    """The region with the virtual clusters that its clusters have; what the tenants declare of others is left out.

    Raises FormatError where they do not match: what was applied does.
    """
    own = {cluster.cluster for cluster in region.clusters}
    declared = {
        tenant: [one for one in virtual_clusters if one.cluster in own]
        for tenant, virtual_clusters in declarations_of(tenants).items()
    }
    source = f"region {region.region}"
    return fleet_with_virtual_clusters(Fleet((region,)), declared, source, weights_of(tenants)).regions[0]


def field_problems(problems: Sequence[CellsProblem], declarations: Declarations) -> list[FieldProblem]:
    """The problems with their paths in fleet.yaml, or in a tenants.yaml with these tenants in this order."""
    index = {tenant: number for number, tenant in enumerate(declarations)}
    return [
        FieldProblem(f"tenants[{index[tenant]}].{path}" if tenant is not None else f"{place}.{path}", description)
        for place, tenant, path, description in problems
    ]


def matched(fleet: Fleet, declarations: Declarations, weights: Weights = ()) -> Matched:
    """Matches both, and says everything that does not match. Costs nothing for clusters without cells."""
    by_cluster: dict[ClusterId, list[_Declaration]] = {}
    for tenant, owned in declarations.items():
        for number, one in enumerate(owned):
            declaration = _Declaration(tenant, f"virtual_clusters[{number}]", one)
            by_cluster.setdefault(one.cluster, []).append(declaration)
    problems: list[CellsProblem] = []
    regions = []
    for r, region in enumerate(fleet.regions):
        clusters = []
        for c, cluster in enumerate(region.clusters):
            match = _ClusterMatch(cluster, f"regions[{r}].clusters[{c}]", by_cluster.pop(cluster.cluster, []))
            described = match.cluster_with_virtual_clusters()
            if weights and cluster.mechanism == CELLS_MECHANISM:
                described = replace(described, cells=replace(described.cells, fair_share_weights=weights))
            clusters.append(described)
            problems += match.problems
        regions.append(replace(region, clusters=tuple(clusters)))
    known = [cluster.cluster for region in fleet.regions for cluster in region.clusters]
    for name, declared in by_cluster.items():
        description = f"there is no cluster {name}; {suggestion(name, known, 'cluster')}"
        problems += [CellsProblem("", one.tenant, f"{one.field}.cluster", description) for one in declared]
    return Matched(Fleet(tuple(regions)), tuple(problems))


class _Declaration(NamedTuple):
    tenant: TenantId
    field: str
    declared: DeclaredVirtualCluster


class _OwnedAt(NamedTuple):
    """Cells of one level of one chain, and where they are declared."""

    chain: int
    level: int
    cells: int
    field: str


class _PinnedAt(NamedTuple):
    pinned: PinnedCell
    field: str


@dataclass(slots=True)
class _Owner:
    """What one tenant declares in the cluster, by the names of the cluster."""

    tenant: TenantId
    owned: list[_OwnedAt] = field(default_factory=list)
    pinned: list[_PinnedAt] = field(default_factory=list)
    pin_names: set[str] = field(default_factory=set)

    def virtual_cluster(self, chains: Sequence[Chain]) -> VirtualCluster:
        """Cells of one level together, higher levels first."""
        cells = [
            OwnedCells(chains[chain].name, chains[chain].name_of(-level), sum(owned.cells for owned in of_level))
            for (chain, level), of_level in groupby(sorted(self.owned, key=_chain_and_level), key=_chain_and_level)
        ]
        return VirtualCluster(
            virtual_cluster_of_tenant(self.tenant), tuple(cells), tuple(pin.pinned for pin in self.pinned)
        )


def _chain_and_level(owned: _OwnedAt) -> tuple[int, int]:
    return owned.chain, -owned.level


class _ClusterMatch:
    """One cluster and what is declared in it."""

    def __init__(self, cluster: Cluster, place: str, declared: Sequence[_Declaration]) -> None:
        self._cluster = cluster
        self._place = place
        self._declared = declared
        self._chains: tuple[Chain, ...] = ()
        self.problems: list[CellsProblem] = []

    def cluster_with_virtual_clusters(self) -> Cluster:
        """The cluster with those that match; sorted by name, so that nothing depends on the order of a file."""
        cluster = self._cluster
        if not cluster.has_cells:
            for one in self._declared:
                why = f"cluster {cluster.cluster} has mechanism {cluster.mechanism}; virtual clusters need {CELLS_MECHANISM}"
                self._refuse(one.tenant, f"{one.field}.cluster", why)
            return cluster
        if not self._find_chains():
            return cluster
        owners: dict[TenantId, _Owner] = {}
        for one in self._declared:
            self._take(owners.setdefault(one.tenant, _Owner(one.tenant)), one)
        owned = [owners[name] for name in sorted(owners)]
        virtual_clusters = tuple(owner.virtual_cluster(self._chains) for owner in owned)
        if not self.problems:
            self._check_assignment(virtual_clusters, owners)
        return replace(cluster, cells=replace(cluster.cells, virtual_clusters=virtual_clusters))

    def _refuse(self, tenant: TenantId | None, path: str, description: str) -> None:
        self.problems.append(CellsProblem(self._place, tenant, path, description))

    def _find_chains(self) -> bool:
        hierarchies = self._cluster.cells.hierarchies
        for number, hierarchy in enumerate(hierarchies):
            path = f"cells.hierarchies[{number}]"
            try:
                declared_chain(hierarchy, self._cluster)
            except HierarchyProblem as problem:
                field = f"levels[{problem.level - 1}].split" if problem.level is not None else problem.field
                self._refuse(None, path if field is None else f"{path}.{field}", str(problem))
        if self.problems:
            return False
        try:
            self._chains = chains_of(self._cluster, hierarchies)
        except HierarchyProblem as problem:
            self._refuse(None, "cells.hierarchies", str(problem))
            return False
        if left_out := machines_without_chain(self._cluster, self._chains):
            more = f" and {len(left_out) - SHOWN_MACHINES} more" if len(left_out) > SHOWN_MACHINES else ""
            description = (
                f"leave out {', '.join(left_out[:SHOWN_MACHINES])}{more}, which have the GPU model of a declared "
                "hierarchy; add them to the machines of one"
            )
            self._refuse(None, "cells.hierarchies", description)
        return not left_out

    def _take(self, owner: _Owner, one: _Declaration) -> None:
        declared = one.declared
        found = [
            self._cells(one.tenant, cells, f"{one.field}.cells[{number}]")
            for number, cells in enumerate(declared.cells)
        ]
        if declared.machines is not None:
            found.append(self._machines(one.tenant, declared.machines, one.field))
        owner.owned += [owned for owned in found if owned is not None]
        for number, pin in enumerate(declared.pinned):
            path = f"{one.field}.pinned[{number}]"
            if pin.name in owner.pin_names:
                self._refuse(one.tenant, f"{path}.name", f"{pin.name} is there already; rename one of the pinned cells")
            elif (pinned := self._pin(one.tenant, pin, path)) is not None:
                owner.pinned.append(_PinnedAt(pinned, path))
                owner.pin_names.add(pin.name)

    def _cells(self, tenant: TenantId, cells: DeclaredCells, path: str) -> _OwnedAt | None:
        number = self._chain_with(tenant, cells, path)
        if number is None:
            return None
        return _OwnedAt(number, self._chains[number].level_called(cells.level), cells.cells, path)

    def _chain_with(self, tenant: TenantId, cells: DeclaredCells | DeclaredPin, path: str) -> int | None:
        """The chain that the declaration names, or else the only one with such a level."""
        names = [chain.name for chain in self._chains]
        if cells.hierarchy is not None and cells.hierarchy not in names:
            description = f"cluster {self._cluster.cluster} has no hierarchy {cells.hierarchy}; "
            self._refuse(tenant, f"{path}.hierarchy", description + suggestion(cells.hierarchy, names, "hierarchy"))
            return None
        possible = [n for n, name in enumerate(names) if cells.hierarchy in (None, name)]
        with_level = [number for number in possible if _has_level(self._chains[number], cells.level)]
        if not with_level:
            levels = {level.name for number in possible for level in self._chains[number].levels}
            what = f"hierarchy {cells.hierarchy}" if cells.hierarchy is not None else f"cluster {self._cluster.cluster}"
            description = f"{what} has no level {cells.level}; {suggestion(cells.level, levels, 'level')}"
            self._refuse(tenant, f"{path}.level", description)
            return None
        if len(with_level) > 1:
            several = " or ".join(names[number] for number in with_level)
            description = f"is missing: several hierarchies have a level {cells.level}; say {several}"
            self._refuse(tenant, f"{path}.hierarchy", description)
            return None
        return with_level[0]

    def _machines(self, tenant: TenantId, wanted: DeclaredMachines, path: str) -> _OwnedAt | None:
        """The cells of a machine's size or less; where several shapes have such, whole machines."""
        models = sorted({str(chain.gpu_model) for chain in self._chains})
        if wanted.gpu_model is not None and wanted.gpu_model not in models:
            description = f"cluster {self._cluster.cluster} has no such GPU model; "
            self._refuse(tenant, f"{path}.gpu_model", description + suggestion(wanted.gpu_model, models, "GPU model"))
            return None
        if wanted.gpu_model is None and len(models) != 1:
            description = f"is missing: cluster {self._cluster.cluster} has {' and '.join(models) or 'none'}; say which"
            self._refuse(tenant, f"{path}.gpu_model", description)
            return None
        found: list[_OwnedAt] = []
        why: list[str] = []
        for number, chain in enumerate(self._chains):
            if wanted.gpu_model not in (None, chain.gpu_model):
                continue
            try:
                cells = machines_as_cells(chain, wanted.gpus, wanted.machines)
            except AssignmentProblem as problem:
                why.append(str(problem))
            else:
                found.append(_OwnedAt(number, chain.level_called(cells.level), cells.cells, path))
        whole = [owned for owned in found if owned.level == self._chains[owned.chain].machine_level]
        if len(whole) == 1 or len(found) == 1:
            return (whole or found)[0]
        if not found:
            self._refuse(tenant, f"{path}.gpus", "; ".join(why))
        else:
            several = " or ".join(self._chains[owned.chain].name for owned in found)
            self._refuse(tenant, path, f"could be of hierarchy {several}; say cells with their hierarchy instead")
        return None

    def _pin(self, tenant: TenantId, pin: DeclaredPin, path: str) -> PinnedCell | None:
        of_machine = [n for n, chain in enumerate(self._chains) if pin.machine in chain.number_of]
        if not of_machine:
            known = [machine for chain in self._chains for machine in chain.machines]
            description = f"cluster {self._cluster.cluster} has no machine {pin.machine} with GPUs; "
            self._refuse(tenant, f"{path}.machine", description + suggestion(pin.machine, known, "machine"))
            return None
        chain = self._chains[of_machine[0]]
        named = pin if pin.hierarchy is not None else replace(pin, hierarchy=chain.name)
        if self._chain_with(tenant, named, path) is None:
            return None
        if named.hierarchy != chain.name:
            description = f"machine {pin.machine} is in hierarchy {chain.name}, not in {named.hierarchy}; name that one"
            self._refuse(tenant, f"{path}.hierarchy", description)
            return None
        pinned = PinnedCell(pin.name, chain.name, pin.level, pin.machine, pin.gpu)
        try:
            pinned_address(chain, pinned)
        except LookupError as problem:
            self._refuse(tenant, f"{path}.gpu", str(problem))
            return None
        return pinned

    def _check_assignment(self, virtual_clusters: Sequence[VirtualCluster], owners: Mapping[TenantId, _Owner]) -> None:
        """Invariant (2) of HiveD's proof, before anything is allocated."""
        for chain in self._chains:
            here = [_in_chain(owner, chain.name) for owner in virtual_clusters]
            try:
                assigned_cells([chain], here)
            except OverPromised as problem:
                tenant, path = self._last_owner(chain, problem.level, owners)
                self._refuse(tenant, path, f"cluster {self._cluster.cluster}, {problem}; own fewer cells there")
            except NotToBePinned as problem:
                tenant = TenantId(problem.virtual_cluster)
                path = next(at.field for at in owners[tenant].pinned if at.pinned.name == problem.pinned_cell)
                self._refuse(tenant, path, f"cluster {self._cluster.cluster}, {problem}; pin another cell")

    def _last_owner(self, chain: Chain, level: str, owners: Mapping[TenantId, _Owner]) -> tuple[TenantId, str]:
        """Where the last cells of this level are declared: what goes beyond what there is."""
        number, at_level = self._chains.index(chain), chain.level_called(level)
        return [
            (tenant, owned.field)
            for tenant, owner in owners.items()
            for owned in owner.owned
            if (owned.chain, owned.level) == (number, at_level)
        ][-1]


def _has_level(chain: Chain, name: str) -> bool:
    try:
        chain.level_called(name)
    except UnknownLevel:
        return False
    return True


def _in_chain(owner: VirtualCluster, chain: str) -> VirtualCluster:
    return replace(
        owner,
        cells=tuple(cells for cells in owner.cells if cells.chain == chain),
        pinned=tuple(pin for pin in owner.pinned if pin.chain == chain),
    )
