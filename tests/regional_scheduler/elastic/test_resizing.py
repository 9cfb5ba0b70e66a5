"""Elastic policies on the capacity of a region: who grows and shrinks, and where."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.affinity import CellAffinity, JobAffinity
from domain.fleet import Cluster, Machine, MachineState, Rack, Region
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
from domain.placement import AttemptKey, Holding, TaskPlacement
from domain.plan import ScaleIn, ScaleOut, TaskName
from domain.rank import Standing
from domain.resources import TaskResources
from domain.scaling import MeasuredScaling, ScalingPoint
from domain.workload import Emulated, JobSpecification, WorkloadSpecification
from regional_scheduler.adjustment import AdjustableAttempt, ElasticPolicy, Resize, adjust
from regional_scheduler.elastic.afs import AfsElastic
from regional_scheduler.elastic.candidates import expected_remaining_s
from regional_scheduler.elastic.gandiva import GandivaElastic
from regional_scheduler.elastic.lyra import LyraElastic
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.requested_plans import place_in

TRAIN = JobName("train")
LYRA = LyraElastic(resize_pause_s=1.0)
"""With a price that is small beside the hundred seconds of these attempts."""
POLICIES: tuple[ElasticPolicy, ...] = (LYRA, AfsElastic(), GandivaElastic())


@dataclass
class ElasticWorld:
    """A region of a cluster t for training and one, s, on loan; machines t0, ... and s0, ... have four GPUs each, and in t
    there are a0, ... with GPUs of another model besides."""

    training: int = 2
    on_loan: int = 0
    others: int = 0
    attempts: dict[str, AdjustableAttempt] = field(default_factory=dict)

    def __post_init__(self) -> None:
        clusters = []
        for name, count in (("t", self.training), ("s", self.on_loan)):
            if count:
                machines = tuple(
                    Machine(MachineId(f"{name}{n}"), GpuModel("V100"), 4, 16.0, 64.0) for n in range(count)
                )
                if name == "t":
                    machines += tuple(
                        Machine(MachineId(f"a{n}"), GpuModel("A100"), 4, 16.0, 64.0) for n in range(self.others)
                    )
                clusters.append(Cluster(ClusterId(name), (Rack(RackId(name), machines),)))
        states = {MachineId(f"s{number}"): MachineState.ON_LOAN for number in range(self.on_loan)}
        self.region = RegionCapacity(Region(RegionId("r"), tuple(clusters)), states)

    def run(
        self,
        name: str,
        where: str,
        base: int = 1,
        most: int = 1,
        gpus: int = 1,
        remaining_s: float = 100.0,
        affinity: JobAffinity | None = None,
        scaling: tuple[ScalingPoint, ...] = (),
        model: GpuModel = ANY_GPU_MODEL,
    ) -> None:
        """An attempt is put on machines, `t0*2 t1`: so many tasks of so many GPUs each, the first `base` being base tasks."""
        job = JobSpecification(TRAIN, base, TaskResources(gpus, model), Emulated(1000.0), most, scaling=scaling)
        if affinity is not None:
            job = JobSpecification(TRAIN, base, TaskResources(gpus=gpus), Emulated(1000.0), most, affinity=affinity)
        specification = WorkloadSpecification(name, TenantId("t"), (job,))
        placements: list[TaskPlacement] = []
        for part in where.split():
            machine, _, count = part.partition("*")
            for _ in range(int(count or 1)):
                placements.append(self._task(MachineId(machine), len(placements), gpus, placements))
        key = AttemptKey(WorkloadId(name), AttemptNumber(1))
        attempt = AdjustableAttempt(
            key, specification, tuple(placements), True, Standing(3, 0), float(len(self.attempts)), remaining_s
        )
        self.region.hold(
            Holding(key, attempt.standing, attempt.started_s, attempt.placements, base_tasks=specification.base_tasks)
        )
        self.attempts[name] = attempt

    def _task(self, machine: MachineId, number: int, gpus: int, own: Sequence[TaskPlacement]) -> TaskPlacement:
        taken = {
            gpu
            for placements in (own, *(holding.placements for holding in self.region.holdings()))
            for placement in placements
            if placement.machine == machine
            for gpu in placement.gpu_indices
        }
        indices = tuple(gpu for gpu in range(4) if gpu not in taken)[:gpus]
        assert len(indices) == gpus, f"{machine} is full"
        return TaskPlacement(
            TRAIN, number, self.region.cluster_of(machine), machine, indices, 4000 * gpus, 16384 * gpus
        )

    def round(self, policy: ElasticPolicy, *, anything_waits: bool = False) -> list[Resize]:
        """What the policy decides; `adjust` checks that it is possible and keeps bounds."""
        actions = adjust(self.region, list(self.attempts.values()), policy, None, 1000.0, anything_waits=anything_waits)
        return [action for action in actions if isinstance(action, ScaleIn | ScaleOut)]

    def told(self, policy: ElasticPolicy, *, anything_waits: bool = False) -> dict[str, str]:
        """`+s0 s0` for tasks that come, `-2 3` for numbers of tasks that go."""
        return {
            action.attempt.workload: "-" + " ".join(str(name.task) for name in action.released)
            if isinstance(action, ScaleIn)
            else "+" + " ".join(placement.machine for placement in action.added)
            for action in self.round(policy, anything_waits=anything_waits)
        }


def test_lyra_gives_to_whom_it_helps_most_and_takes_from_others() -> None:
    world = ElasticWorld(training=1)
    world.run("long", "t0", most=3, remaining_s=400.0)
    world.run("short", "t0*3", most=3, remaining_s=30.0)
    # Two flexible GPUs: long completes 200 s earlier with one and 267 s with both, short 15 s and 20 s.
    assert world.told(LYRA) == {"short": "-1 2", "long": "+t0 t0"}
    assert world.told(GandivaElastic()) == {}


def test_nothing_changes_where_all_is_as_it_should_be() -> None:
    world = ElasticWorld(training=1)
    world.run("long", "t0*3", most=3, remaining_s=400.0)
    world.run("short", "t0", most=3, remaining_s=30.0)
    assert world.round(LYRA) == []


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_one_that_may_not_grow_yet_keeps_what_it_has(policy: ElasticPolicy) -> None:
    world = ElasticWorld(training=1)
    world.run("killed", "t0*2", most=4)
    world.attempts["killed"] = replace(world.attempts["killed"], may_grow=False)
    assert world.told(policy) == {}
    world.attempts["killed"] = replace(world.attempts["killed"], may_grow=True)
    assert world.told(policy) == {"killed": "+t0 t0"}


def test_one_that_may_not_grow_gives_to_others() -> None:
    world = ElasticWorld(training=1)
    world.run("long", "t0", most=3, remaining_s=400.0)
    world.run("short", "t0*3", most=4, remaining_s=30.0)
    world.attempts["short"] = replace(world.attempts["short"], may_grow=False)
    assert world.told(LYRA) == {"short": "-1 2", "long": "+t0 t0"}


def test_afs_gives_by_throughput_whatever_is_left_to_do() -> None:
    world = ElasticWorld(training=1)
    world.run("long", "t0*2", base=2, most=4, remaining_s=4000.0)
    world.run("short", "t0", most=2, remaining_s=30.0)
    assert world.told(AfsElastic()) == {"short": "+t0"}
    assert world.told(LYRA) == {"long": "+t0"}


def test_gandiva_grows_only_while_nothing_waits() -> None:
    world = ElasticWorld(training=1)
    world.run("first", "t0", most=3)
    world.run("second", "t0", most=3)
    assert world.told(GandivaElastic()) == {"first": "+t0 t0"}
    assert world.told(GandivaElastic(), anything_waits=True) == {}
    assert world.told(LYRA, anything_waits=True) != {}


def test_flexible_tasks_are_kept_apart_on_loaned_machines() -> None:
    world = ElasticWorld(training=0, on_loan=3)
    world.run("base", "s0", most=4)
    world.run("flexible", "s1 s2", base=1, most=2)
    # s0 and s1 have base tasks; s2 has nothing but a flexible one.
    assert world.told(LYRA) == {"base": "+s2 s2 s2"}


def test_rather_beside_base_tasks_than_nowhere() -> None:
    world = ElasticWorld(training=0, on_loan=2)
    world.run("a", "s0", most=4)
    world.run("b", "s1*3", base=3)
    assert world.told(LYRA) == {"a": "+s0 s0 s0"}
    fuller = ElasticWorld(training=0, on_loan=2)
    fuller.run("a", "s0", most=6)
    fuller.run("b", "s1 s1*2", base=1, most=3)
    assert fuller.told(LYRA) == {"a": "+s0 s0 s0 s1"}


def test_what_finds_no_room_as_idle_gpus_are_scattered_goes_to_others() -> None:
    """Three GPUs are idle on two machines: no task of three, though the knapsack would have it."""
    world = ElasticWorld(training=2)
    world.run("wide", "t0", most=2, gpus=3, remaining_s=4000.0)
    world.run("narrow", "t1", most=4, remaining_s=10.0)
    world.run("fixed", "t1", remaining_s=10.0)
    assert world.told(LYRA) == {"narrow": "+t0 t1 t1"}


def test_nobody_gives_up_tasks_for_those_that_find_no_room() -> None:
    """Twenty would each gain more by the GPUs of the other model than who has them, and can use none."""
    world = ElasticWorld(training=1, others=5)
    world.run("only", "t0*3", most=4, remaining_s=50.0, model=GpuModel("V100"))
    for number in range(20):
        world.run(f"other-{number:02d}", f"a{number // 4}", most=2, remaining_s=1000.0, model=GpuModel("A100"))
    for policy in POLICIES:
        assert world.told(policy) == {"only": "+t0"}


def test_nobody_gives_up_tasks_however_often_others_find_no_room() -> None:
    """Each of them asks for another amount of CPUs, so that what one of them finds says nothing of the next."""
    world = ElasticWorld(training=1, others=15)
    world.run("only", "t0*3", most=4, remaining_s=50.0, model=GpuModel("V100"))
    for number in range(60):
        world.run(f"w{number:02d}", f"a{number // 4}", most=4, remaining_s=1000.0, model=GpuModel("A100"))
        attempt = world.attempts[f"w{number:02d}"]
        (job,) = attempt.specification.jobs
        job = replace(job, resources=job.resources._replace(cpus=1.0 + number / 32))
        world.attempts[f"w{number:02d}"] = replace(attempt, specification=replace(attempt.specification, jobs=(job,)))
    assert world.told(LYRA) == {}


def test_a_measured_curve_says_where_more_tasks_are_worth_nothing() -> None:
    world = ElasticWorld(training=1)
    world.run("flat", "t0", most=4)
    flat = MeasuredScaling(((1, 1.0), (2, 1.9), (3, 1.9), (4, 1.9)))
    assert world.told(LyraElastic(scaling=flat)) == {"flat": "+t0"}


def test_the_curve_that_a_job_declares_counts_and_not_that_of_the_policy() -> None:
    world = ElasticWorld(training=1)
    flat = (ScalingPoint(1, 1.0), ScalingPoint(2, 1.2))
    world.run("flat", "t0", most=3, scaling=flat)
    world.run("steep", "t0", most=3)
    assert world.told(LYRA) == {"steep": "+t0 t0"}
    assert world.told(AfsElastic()) == {"steep": "+t0 t0"}


def test_who_must_stay_close_together_is_left_alone() -> None:
    world = ElasticWorld(training=2)
    world.run("close", "t0", most=4, affinity=JobAffinity(CellAffinity("machine")))
    for policy in POLICIES:
        assert world.round(policy) == []


def test_an_unknown_rest_is_as_long_as_it_has_run() -> None:
    world = ElasticWorld()
    world.run("w", "t0", most=2, remaining_s=math.inf)
    assert expected_remaining_s(world.attempts["w"], 70.0) == 70.0
    assert world.told(LYRA) == {"w": "+t0"}


def test_an_attempt_stays_in_its_cluster() -> None:
    world = ElasticWorld(training=1, on_loan=1)
    world.run("w", "t0*4", base=4, most=8)
    assert world.round(LYRA) == []


@st.composite
def worlds(draw: st.DrawFn) -> ElasticWorld:
    world = ElasticWorld(draw(st.integers(1, 2)), draw(st.integers(0, 2)))
    names = [f"t{number}" for number in range(world.training)] + [f"s{number}" for number in range(world.on_loan)]
    for number in range(draw(st.integers(1, 5))):
        cluster, gpus = draw(st.sampled_from(sorted({name[0] for name in names}))), draw(st.integers(1, 2))
        base = draw(st.integers(1, 2))
        most = base + draw(st.integers(0, 4))
        free = [
            name for name in names if name[0] == cluster for _ in range(world.region.idle(MachineId(name))[0] // gpus)
        ]
        tasks = draw(st.integers(base, most))
        if len(free) >= tasks:
            where = " ".join(draw(st.permutations(free))[:tasks])
            world.run(f"w{number}", where, base, most, gpus, float(draw(st.integers(0, 300))))
    return world


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
@given(world=worlds(), anything_waits=st.booleans())
def test_never_changes_the_region_or_decides_what_is_impossible(
    policy: ElasticPolicy, world: ElasticWorld, anything_waits: bool
) -> None:
    """`adjust` carries the actions out and checks the gangs; it would raise."""
    before = world.region.holdings()
    actions = world.round(policy, anything_waits=anything_waits)
    assert world.region.holdings() == before
    assert actions == world.round(policy, anything_waits=anything_waits)
    grown = [action.attempt for action in actions]
    assert len(set(grown)) == len(grown), "one change of each attempt"
    kinds = [isinstance(action, ScaleOut) for action in actions]
    assert kinds == sorted(kinds), "what is given up comes first"


@given(worlds())
def test_never_leaves_room_that_anybody_could_use(world: ElasticWorld) -> None:
    """Whoever still gains by a task has no place for one."""
    resized = {action.attempt: action for action in world.round(LyraElastic(resize_pause_s=0.0))}
    for action in resized.values():
        attempt = world.attempts[action.attempt.workload]
        released = {name.task for name in action.released} if isinstance(action, ScaleIn) else set()
        added = action.added if isinstance(action, ScaleOut) else ()
        kept = tuple(p for p in attempt.placements if p.task not in released)
        world.region.replace_placements(action.attempt, (*kept, *added))
    for attempt in world.attempts.values():
        holding = world.region.holding(attempt.key)
        assert holding is not None
        (job,) = attempt.specification.jobs
        if attempt.remaining_s > 0 and len(holding.placements) < job.greatest_tasks:
            one_more = JobSpecification(TRAIN, 1, job.resources, job.entry_point)
            cluster = attempt.placements[0].cluster
            room = place_in(world.region, attempt, (one_more,), cluster, 1000.0)
            assert not room, f"{attempt.key.workload} could have one more task on {room[0].machine}"


def test_flexible_tasks_are_named_by_what_is_free() -> None:
    world = ElasticWorld(training=1)
    world.run("w", "t0*3", base=1, most=4)
    first, _, last = world.attempts["w"].placements
    world.region.replace_placements(world.attempts["w"].key, (first, last))
    world.attempts["w"] = AdjustableAttempt(
        world.attempts["w"].key,
        world.attempts["w"].specification,
        (first, last),
        True,
        Standing(3, 0),
        0.0,
        100.0,
    )
    (grown,) = world.round(LYRA)
    assert isinstance(grown, ScaleOut)
    assert [TaskName(one.job, one.task) for one in grown.added] == [TaskName(TRAIN, 1), TaskName(TRAIN, 3)]
