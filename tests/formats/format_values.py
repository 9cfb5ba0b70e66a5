"""Hypothesis strategies for whatever stands in the files."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from domain.affinity import NO_JOB_AFFINITY, CellAffinity, JobAffinity, TaskGroup
from domain.cells import CellHierarchy, CellLevel, ClusterCells
from domain.declared_cells import DeclaredCells, DeclaredMachines, DeclaredPin, DeclaredVirtualCluster
from domain.fleet import CELLS_MECHANISM, DEFAULT_MECHANISM, NO_GPU_MODEL, Cluster, Fleet, Machine, Rack, Region
from domain.identifiers import (
    ANY_GPU_MODEL,
    ClusterId,
    GpuModel,
    JobName,
    MachineId,
    RackId,
    RegionId,
    TableId,
    TenantId,
    WorkloadId,
)
from domain.model_profile import ModelProfile
from domain.resources import Quota, TaskResources
from domain.table import Table
from domain.tenant import Tenant
from domain.workload import (
    Command,
    Emulated,
    EntryPoint,
    JobSpecification,
    PythonCallable,
    RetryPolicy,
    TableInput,
    WorkloadSpecification,
)
from formats.fleet_file import FleetFile
from formats.trace import TraceRow

# Names that YAML would take for something else are in the mix on purpose.
NAMES = st.one_of(
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,12}", fullmatch=True),
    st.sampled_from(["NO", "null", "123", "1.5", "1:30", "0x10", "2026-01-01", "yes", "1e3", "a:b"]),
)
GPU_MODELS = NAMES.filter(lambda name: name != ANY_GPU_MODEL).map(GpuModel)
CPUS = st.floats(0.001, 1e5, allow_nan=False)
MEMORY_GIB = st.floats(0.001, 1e7, allow_nan=False)
TEXTS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=20)


def _unique(names: st.SearchStrategy[list[str]]) -> st.SearchStrategy[list[str]]:
    return names.map(lambda found: list(dict.fromkeys(found)))


_MIB = st.floats(0.001, 1e9)
_PROFILES = st.builds(ModelProfile, st.floats(0, 1)) | st.tuples(_MIB, _MIB).map(
    lambda sizes: ModelProfile(largest_tensor_mib=min(sizes), model_mib=max(sizes))
)


_FRESHNESS = st.sampled_from(
    ((False, None, None), (True, None, None), (False, 0.0, None), (False, 3600.0, 1), (True, None, 7))
)
"""Of an input: whether it must be fresh, how far a copy may be behind, and how many of the newest partitions are read."""


@st.composite
def machines(draw: st.DrawFn, name: str) -> Machine:
    gpus = draw(st.integers(0, 62))
    model = draw(GPU_MODELS) if gpus else NO_GPU_MODEL
    return Machine(MachineId(name), model, gpus, draw(CPUS), draw(MEMORY_GIB))


@st.composite
def virtual_cluster_lists(draw: st.DrawFn) -> tuple[DeclaredVirtualCluster, ...]:
    # That any name survives is known of others; a pattern takes long to draw from.
    names = st.sampled_from(["gpu", "a:b", "null", "1e3", "machine"])
    hierarchies = st.none() | names
    cells = st.builds(DeclaredCells, names, st.integers(1, 1000), hierarchies)
    pins = st.builds(DeclaredPin, names, names, names.map(MachineId), st.integers(0, 61), hierarchies)
    machines = st.builds(DeclaredMachines, st.integers(1, 1000), st.integers(1, 100), st.none() | names.map(GpuModel))
    clusters = names.map(ClusterId)
    one = st.builds(
        DeclaredVirtualCluster,
        clusters,
        st.lists(cells, min_size=1, max_size=2).map(tuple),
        st.lists(pins, max_size=2).map(tuple),
    ) | st.builds(DeclaredVirtualCluster, clusters, pinned=st.lists(pins, max_size=2).map(tuple), machines=machines)
    return tuple(draw(st.lists(one, min_size=1, max_size=3)))


@st.composite
def _cluster_cells(draw: st.DrawFn) -> ClusterCells:
    """As a file may declare them, whatever the machines."""
    hierarchies = []
    for name in draw(_unique(st.lists(NAMES, max_size=2))):
        names = [name for name in draw(_unique(st.lists(NAMES, max_size=3))) if name != "machine"]
        names.insert(min(1, len(names)), "machine")
        lowest, *higher = names
        levels = (CellLevel(lowest), *(CellLevel(level, draw(st.integers(1, 9))) for level in higher))
        machines = draw(st.none() | _unique(st.lists(NAMES, min_size=1, max_size=3)))
        chosen = tuple(MachineId(machine) for machine in machines) if machines is not None else None
        hierarchies.append(CellHierarchy(name, draw(GPU_MODELS), levels, chosen))
    return ClusterCells(tuple(hierarchies))


@st.composite
def fleet_files(draw: st.DrawFn) -> FleetFile:
    names = iter(f"{draw(NAMES)}-{number}" for number in range(10_000))
    mechanisms = st.sampled_from([DEFAULT_MECHANISM, CELLS_MECHANISM])
    regions = tuple(
        Region(
            RegionId(next(names)),
            tuple(
                Cluster(
                    ClusterId(next(names)),
                    tuple(
                        Rack(
                            RackId(next(names)),
                            tuple(draw(machines(next(names))) for _ in range(draw(st.integers(0, 2)))),
                        )
                        for _ in range(draw(st.integers(0, 2)))
                    ),
                    mechanism,
                    draw(_cluster_cells()) if mechanism == CELLS_MECHANISM else ClusterCells(),
                )
                for mechanism in draw(st.lists(mechanisms, max_size=2))
            ),
        )
        for _ in range(draw(st.integers(1, 3)))
    )
    homes = st.sampled_from([region.region for region in regions])
    tables = tuple(
        Table(TableId(next(names)), draw(st.integers(0, 2**62)), draw(homes), tuple(draw(st.lists(homes, max_size=2))))
        for _ in range(draw(st.integers(0, 3)))
    )
    return FleetFile(Fleet(regions), tables)


@st.composite
def tenant_lists(draw: st.DrawFn) -> tuple[Tenant, ...]:
    names = draw(_unique(st.lists(NAMES, min_size=1, max_size=4)))
    tenants = tuple(
        Tenant(
            TenantId(name),
            draw(st.integers(0, 6)),
            draw(_QUOTAS),
            draw(st.floats(0.001, 1e6)),
            draw(st.just(()) | virtual_cluster_lists()),
        )
        for name in names
    )
    return tuple(replace(tenant, further_quotas=draw(_further_quotas(tenant.priority))) for tenant in tenants)


_QUOTAS = st.builds(
    Quota.of,
    st.dictionaries(NAMES.map(GpuModel), st.integers(0, 1000), max_size=3),
    st.none() | st.floats(0, 1e6),
)


def _further_quotas(priority: int) -> st.SearchStrategy[tuple[tuple[int, Quota], ...]]:
    """At up to two other priorities."""
    others = st.sampled_from([other for other in range(7) if other != priority])
    return st.dictionaries(others, _QUOTAS, max_size=2).map(lambda quotas: tuple(sorted(quotas.items())))


def _entry_points(emulated: bool) -> st.SearchStrategy[EntryPoint]:
    if emulated:
        return st.builds(Emulated, st.floats(0.5, 1e8), st.just(0.0) | st.floats(1e4, 1e8))
    commands = st.lists(TEXTS.filter(bool), min_size=1, max_size=3).map(tuple).map(Command)
    return commands | st.sampled_from(["train:main", "package.module:Class.method"]).map(PythonCallable)


_WITHINS = st.none() | st.builds(CellAffinity, NAMES, st.booleans())


@st.composite
def _groups(draw: st.DrawFn, tasks: int, depth: int = 0) -> tuple[TaskGroup, ...]:
    """Groups of so many tasks together."""
    groups: list[TaskGroup] = []
    while tasks:
        each = draw(st.integers(1, tasks))
        count = draw(st.integers(1, tasks // each))
        inner = draw(_groups(each, depth + 1)) if depth < 2 and draw(st.booleans()) else ()
        groups.append(TaskGroup(each, draw(_WITHINS), inner, count))
        tasks -= each * count
    return tuple(groups)


@st.composite
def _affinities(draw: st.DrawFn, tasks: int, gpus: int, *, consolidate: bool) -> JobAffinity:
    if gpus == 0 or draw(st.booleans()):
        return NO_JOB_AFFINITY
    within = None if consolidate else draw(_WITHINS)
    groups = draw(_groups(tasks)) if draw(st.booleans()) else ()
    return JobAffinity(within, groups, draw(st.just("") | NAMES), draw(st.booleans()))


@st.composite
def _jobs(draw: st.DrawFn, name: str, emulated: bool) -> JobSpecification:
    tasks = draw(st.integers(1, 40))
    gpus = draw(st.integers(0, 62))
    resources = (
        TaskResources(
            gpus, draw(GPU_MODELS | st.just(ANY_GPU_MODEL)), draw(st.none() | CPUS), draw(st.none() | MEMORY_GIB)
        )
        if gpus
        else TaskResources(0, ANY_GPU_MODEL, draw(CPUS), draw(MEMORY_GIB))
    )
    variables = st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True).filter(
        lambda key: not key.startswith("TOPMAST_")
    )
    consolidate, across_clusters = draw(st.booleans()), draw(st.booleans())
    return JobSpecification(
        JobName(name),
        tasks,
        resources,
        draw(_entry_points(emulated)),
        0 if across_clusters else draw(st.just(0) | st.integers(tasks, 50)),
        tuple(sorted(draw(st.dictionaries(variables, TEXTS, max_size=3)).items())),
        consolidate,
        profile=draw(st.none() | _PROFILES),
        affinity=NO_JOB_AFFINITY if across_clusters else draw(_affinities(tasks, gpus, consolidate=consolidate)),
        across_clusters=across_clusters,
    )


@st.composite
def workloads(draw: st.DrawFn) -> WorkloadSpecification:
    emulated = draw(st.booleans())
    names = draw(_unique(st.lists(NAMES, min_size=1, max_size=3)))
    return WorkloadSpecification(
        draw(NAMES),
        TenantId(draw(NAMES)),
        tuple(draw(_jobs(name, emulated)) for name in names),
        tuple(TableInput(TableId(name), *draw(_FRESHNESS)) for name in draw(_unique(st.lists(NAMES, max_size=3)))),
        tuple(RegionId(name) for name in draw(_unique(st.lists(NAMES, max_size=3)))),
        tuple(sorted(draw(st.dictionaries(NAMES, TEXTS, max_size=3)).items())),
        RetryPolicy(draw(st.integers(0, 1000)), draw(st.floats(0, 1e5)), draw(st.floats(0, 1e5))),
        draw(st.floats(0, 86_400)),
        draw(st.none() | st.integers(0, 6)),
        draw(st.just("") | st.text("0123456789abcdef", min_size=64, max_size=64)),
    )


@st.composite
def trace_rows(draw: st.DrawFn) -> TraceRow:
    tasks = draw(st.none() | st.integers(1, 20))
    gpus = draw(st.integers(0, 16)) * (tasks or 1)
    required = st.floats(0.001, 1e9)
    optional = st.none() | required
    return TraceRow(
        WorkloadId(draw(NAMES)),
        TenantId(draw(NAMES)),
        draw(st.floats(0, 1e12)),
        draw(required),
        gpus,
        draw(GPU_MODELS | st.just(ANY_GPU_MODEL)),
        tasks,
        draw(optional if gpus else required),
        draw(optional if gpus else required),
        draw(st.none() | st.integers(0, 6)),
        draw(TEXTS.map(lambda text: " ".join(text.split()))),
        draw(st.none() | st.integers(1, tasks)) if tasks else None,
        draw(st.none() | st.integers(tasks, 100)) if tasks else None,
        tuple(TableId(name) for name in draw(_unique(st.lists(NAMES, max_size=3)))),
        draw(st.none() | st.booleans()),
        draw(st.none() | st.floats(0, 1e6)),
        draw(st.none() | NAMES.map(RegionId)),
        draw(st.none() | st.floats(0, 1)),
    )
