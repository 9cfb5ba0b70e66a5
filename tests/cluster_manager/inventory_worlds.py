"""Small random regions with a history: what is held, what is leaving, which machines are up."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
from hypothesis import strategies as st

from cluster_manager.capacity.tables import Integers
from domain.eviction import DEFAULT_RULE, EvictionRule, evictable_from_s
from domain.fleet import NO_GPU_MODEL, Cluster, Machine, MachineState, Rack, Region
from domain.identifiers import (
    ANY_GPU_MODEL,
    AttemptNumber,
    ClusterId,
    GpuModel,
    JobName,
    MachineId,
    RackId,
    RegionId,
    TenantId,
    WorkloadId,
)
from domain.placement import AttemptKey, Holding
from domain.plan import Plan, Retune, ScaleIn
from domain.rank import Standing
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification, Workload, WorkloadSpecification
from regional_scheduler.plan_application import apply_actions
from regional_scheduler.planner import plan_workload
from regional_scheduler.region_capacity import RegionCapacity

SHAPES = (
    (GpuModel("H100"), 8, 96.0, 1024.0),
    (GpuModel("H100"), 8, 96.0, 1024.0),
    (GpuModel("A100"), 4, 30.0, 250.0),
    (GpuModel("A100"), 3, 32.0, 256.0),
    (NO_GPU_MODEL, 0, 16.0, 64.0),
    (NO_GPU_MODEL, 0, 16.0, 64.0),
    (NO_GPU_MODEL, 0, 40.5, 32.0),
)
"""GPU model, GPUs, CPUs, GiB; the common ones twice."""

# Strategies are made once and drawn from often: making them costs more than drawing.


@st.composite
def regions(draw: st.DrawFn, most_clusters: int = 3, most_racks: int = 3, most_machines: int = 4) -> Region:
    """A region of a few machines of few shapes."""
    clusters = []
    for cluster in range(draw(st.integers(1, most_clusters))):
        racks = []
        for rack in range(draw(st.integers(1, most_racks))):
            shapes = draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=most_machines))
            name = f"c{cluster}-r{rack}"
            machines = tuple(Machine(MachineId(f"{name}-m{number}"), *shape) for number, shape in enumerate(shapes))
            racks.append(Rack(RackId(name), machines))
        clusters.append(Cluster(ClusterId(f"c{cluster}"), tuple(racks)))
    return Region(RegionId("here"), tuple(clusters))


@cache
def task_resources() -> st.SearchStrategy[TaskResources]:
    """What a task asks for: GPUs with a share or with stated amounts, or CPUs only."""
    models = st.sampled_from((ANY_GPU_MODEL, ANY_GPU_MODEL, GpuModel("H100"), GpuModel("A100"), GpuModel("B200")))
    with_gpus = st.builds(
        TaskResources,
        gpus=st.sampled_from((1, 1, 2, 3, 4, 8, 8)),
        gpu_model=models,
        cpus=st.sampled_from((None, None, None, 0.0, 1.5, 12.0, 40.0)),
        memory_gib=st.sampled_from((None, None, None, 0.0, 10.5, 128.0)),
    )
    without = st.builds(
        TaskResources,
        gpus=st.just(0),
        cpus=st.sampled_from((0.0, 0.5, 2.0, 7.25, 16.0, 40.5)),
        memory_gib=st.sampled_from((0.0, 1.0, 16.0, 33.0, 64.0)),
    )
    return with_gpus | with_gpus | without


@cache
def jobs(most_tasks: int = 10) -> st.SearchStrategy[JobSpecification]:
    """One job."""
    return st.builds(
        _job,
        tasks=st.integers(1, most_tasks),
        resources=task_resources(),
        closeness=st.sampled_from(("any", "any", "consolidated", "consolidated", "fragments")),
    )


def _job(tasks: int, resources: TaskResources, closeness: str) -> JobSpecification:
    return JobSpecification(
        JobName("job"),
        tasks,
        resources,
        Emulated(60.0),
        consolidate=closeness == "consolidated",
        fills_fragments=closeness == "fragments",
    )


@cache
def standings() -> st.SearchStrategy[Standing]:
    """Priorities and levels that meet each other often."""
    return st.builds(Standing, st.sampled_from((0, 3, 5, 6)), st.integers(0, 1))


def workload_of(name: str, *jobs_: JobSpecification) -> Workload:
    """A workload of these jobs, which get distinct names."""
    named = tuple(replace(job, name=JobName(f"job-{number}")) for number, job in enumerate(jobs_))
    return Workload(WorkloadId(name), WorkloadSpecification(name, TenantId("tenant"), named), 0.0)


@st.composite
def workloads(draw: st.DrawFn, name: str = "newcomer", most_jobs: int = 3, most_tasks: int = 8) -> Workload:
    """A workload of one to a few jobs."""
    return workload_of(name, *draw(st.lists(jobs(most_tasks), min_size=1, max_size=most_jobs)))


@dataclass(frozen=True)
class Submit:
    """A workload comes; it is placed if there is room."""

    jobs: tuple[JobSpecification, ...]
    standing: Standing


@dataclass(frozen=True)
class End:
    """An attempt ends, or has left."""

    which: int


@dataclass(frozen=True)
class BeginEviction:
    """An attempt is told to leave, for no newcomer's sake."""

    which: int


@dataclass(frozen=True)
class Restand:
    """An attempt's standing changes."""

    which: int
    standing: Standing


@dataclass(frozen=True)
class Switch:
    """A machine goes down, comes up, or is drained."""

    which: int
    state: MachineState


@dataclass(frozen=True)
class Shrink:
    """An attempt gives up half of its placements."""

    which: int


@dataclass(frozen=True)
class MakeElastic:
    """Of the attempt's tasks only the first ones are base tasks from now on."""

    which: int
    base_tasks: int


@dataclass(frozen=True)
class Fill:
    """Workloads of one small job come until there is no room for another."""

    job: JobSpecification
    standing: Standing


@dataclass(frozen=True)
class Begin:
    """An attempt starts to run."""

    which: int


@dataclass(frozen=True)
class Pass:
    """Time passes."""

    seconds: float


Step = Submit | Fill | End | BeginEviction | Restand | Switch | Shrink | MakeElastic | Begin | Pass


def all_arrays(region: RegionCapacity) -> list[Integers]:
    """The tables of all clusters."""
    return [array for cluster in region.clusters for array in cluster.arrays if isinstance(array, np.ndarray)]


@dataclass
class World:
    """An inventory, and what a shell would do to it."""

    region: Region
    inventory: RegionCapacity
    now_s: float = 1_000.0
    submitted: int = 0
    waiting: dict[AttemptKey, tuple[AttemptKey, ...]] = field(default_factory=dict)
    """Who waits for whom to leave."""

    @staticmethod
    def of(region: Region, rule: EvictionRule = DEFAULT_RULE) -> World:
        return World(region, RegionCapacity(region, rule=rule))

    @property
    def states(self) -> dict[MachineId, MachineState]:
        return {machine.machine: self.inventory.machine_state(machine.machine) for machine in self.region.machines()}

    @property
    def leaving(self) -> set[AttemptKey]:
        return {h.key for h in self.inventory.holdings() if self.inventory.is_leaving(h.key)}

    def next_name(self) -> str:
        self.submitted += 1
        return f"w{self.submitted}"

    def carry_out(self, plan: Plan, standing: Standing) -> AttemptKey:
        """Does what a plan says."""
        apply_actions(self.inventory, [one for one in plan.actions if isinstance(one, ScaleIn | Retune)], self.now_s)
        for victim in plan.evictions:
            self.inventory.begin_eviction(victim)
        key = AttemptKey(plan.workload, AttemptNumber(1))
        from_s = evictable_from_s(self.inventory.rule, self.now_s, None)
        self.inventory.hold(Holding(key, standing, self.now_s, plan.placements, from_s))
        self.waiting[key] = plan.evictions
        return key

    def end(self, key: AttemptKey) -> None:
        """The attempt is gone, for whatever reason."""
        self.inventory.release(key)
        self.waiting.pop(key, None)

    def make_elastic(self, key: AttemptKey, base_tasks: int) -> None:
        """As if it had been given the rest of what it holds by a round of its cluster."""
        holding = self.inventory.holding(key)
        assert holding is not None
        if not self.inventory.is_leaving(key):
            jobs_ = dict.fromkeys([placement.job for placement in holding.placements], base_tasks)
            self.inventory.release(key)
            self.inventory.hold(holding._replace(base_tasks=tuple(jobs_.items())))

    def all_keys(self) -> list[AttemptKey]:
        return [holding.key for holding in self.inventory.holdings()]

    def take(self, step: Step) -> None:
        """Lets one thing happen; a step that makes no sense here does nothing."""
        self.now_s += 10.0
        self.inventory.pass_time(self.now_s)
        keys = self.all_keys()
        match step:
            case Submit(jobs_, standing):
                workload = workload_of(self.next_name(), *jobs_)
                plan = plan_workload(self.inventory, workload, standing, self.now_s, within_quota=False)
                if isinstance(plan, Plan):
                    self.carry_out(plan, standing)
            case Fill(job, standing):
                for _ in range(30):
                    plan = plan_workload(
                        self.inventory, workload_of(self.next_name(), job), standing, self.now_s, within_quota=False
                    )
                    if not isinstance(plan, Plan) or plan.evictions:
                        break
                    self.carry_out(plan, standing)
                    self.now_s += 1.0
            case End(which):
                if keys:
                    self.end(keys[which % len(keys)])
            case BeginEviction(which):
                if keys:
                    self.inventory.begin_eviction(keys[which % len(keys)])
            case Restand(which, standing):
                if keys:
                    self.inventory.set_standing(keys[which % len(keys)], standing)
            case Begin(which):
                if keys:
                    self.inventory.begin_run(keys[which % len(keys)], self.now_s)
            case Pass(seconds):
                self.now_s += seconds
                self.inventory.pass_time(self.now_s)
            case Switch(which, state):
                machines = list(self.region.machines())
                self.inventory.set_machine_state(machines[which % len(machines)].machine, state)
            case MakeElastic(which, base_tasks):
                if keys:
                    self.make_elastic(keys[which % len(keys)], base_tasks)
            case Shrink(which):
                if keys:
                    key = keys[which % len(keys)]
                    holding = self.inventory.holding(key)
                    assert holding is not None
                    self.inventory.replace_placements(key, holding.placements[: len(holding.placements) // 2 + 1])


@cache
def rules() -> st.SearchStrategy[EvictionRule]:
    """Without a minimum run time as often as with one; the histories' steps take ten seconds each."""
    return st.sampled_from((DEFAULT_RULE, DEFAULT_RULE, EvictionRule(25.0), EvictionRule(90.0)))


@cache
def submissions() -> st.SearchStrategy[Submit]:
    """Workloads of one job or two."""
    return st.builds(Submit, st.lists(jobs(), min_size=1, max_size=2).map(tuple), standings())


@cache
def changes() -> st.SearchStrategy[Step]:
    """What can make room, or take it."""
    which = st.integers(0, 50)
    return st.one_of(
        st.builds(End, which),
        st.builds(End, which),
        st.builds(BeginEviction, which),
        st.builds(Restand, which, standings()),
        st.builds(Switch, which, st.sampled_from(MachineState)),
        st.builds(Shrink, which),
        st.builds(Begin, which),
        st.builds(Pass, st.sampled_from((5.0, 30.0, 100.0))),
    )


def elastic_steps() -> st.SearchStrategy[list[Step]]:
    """A history in which most attempts are elastic, and the region is full of them."""
    elastic = st.builds(MakeElastic, st.integers(0, 50), st.integers(0, 2))
    return st.builds(list[Step].__add__, steps(6), st.lists(elastic, min_size=2, max_size=12))


def steps(most: int = 14) -> st.SearchStrategy[list[Step]]:
    """A history: the region is filled to some degree, then things happen to it."""
    low = st.sampled_from((Standing(6, 1), Standing(6, 0), Standing(5, 1), Standing(3, 0)))
    fills = st.lists(st.builds(Fill, jobs(3), low), min_size=0, max_size=4)
    rest = st.lists(submissions() | changes() | changes(), min_size=0, max_size=most)
    return st.builds(list[Step].__add__, fills, rest)
