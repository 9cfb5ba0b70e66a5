"""The one match over actions, and what becomes of placements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import pytest

from domain.cells import CellPair, CellUse, TaskCellUse, cells_after, downgraded
from domain.identifiers import (
    AttemptNumber,
    ClusterId,
    JobName,
    MachineId,
    RegionId,
    TenantId,
    VirtualClusterId,
    WorkloadId,
)
from domain.placement import AttemptKey, Score, TaskPlacement
from domain.placement_changes import (
    ChangeKind,
    ImpossibleAction,
    change_of,
    check_gang,
    grown,
    name_of,
    placements_after,
)
from domain.plan import (
    EVICTS_NOTHING,
    PREEMPTS,
    SCALES_IN,
    Action,
    Downgrade,
    Evict,
    Migrate,
    Plan,
    Reclaim,
    Restore,
    Retune,
    ScaleIn,
    ScaleOut,
    Start,
    TaskAmounts,
    TaskName,
    execute,
    reclaim_class,
)
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification, WorkloadSpecification

KEY = AttemptKey(WorkloadId("w"), AttemptNumber(1))
MAIN = JobName("main")


def placed(task: int, gpu: int = 0, cpus: int = 4) -> TaskPlacement:
    return TaskPlacement(MAIN, task, ClusterId("c"), MachineId("m"), (gpu,), 1000 * cpus, 1024)


def gang(tasks: int = 2, most: int = 4) -> WorkloadSpecification:
    job = JobSpecification(MAIN, tasks, TaskResources(gpus=1), Emulated(1.0), max_tasks=most)
    return WorkloadSpecification("w", TenantId("t"), (job,))


TWO = (placed(0, 0), placed(1, 1))
THREE = (*TWO, placed(2, 2))
SEATED = CellUse(
    TenantId("t"),
    VirtualClusterId("t"),
    "A100",
    (TaskCellUse("machine", (CellPair(2, 0, 3),)),),
    yields_to_downgrade=True,
)
ACTIONS: tuple[Action, ...] = (
    Evict(KEY),
    Downgrade(KEY, ((MAIN, downgraded(SEATED)),)),
    Restore(KEY, ((MAIN, SEATED),)),
    ScaleIn(KEY, (TaskName(MAIN, 2),)),
    ScaleOut(KEY, (placed(2, 2),)),
    Retune(KEY, (TaskAmounts(TaskName(MAIN, 0), 1, 2),)),
    Migrate(KEY, TWO),
    Reclaim((MachineId("m"),), (KEY,)),
    Start(TWO),
)


class CarriedOut:
    """Remembers what it was told to carry out."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Action]] = []

    def __getattr__(self, name: str) -> Callable[[Action], None]:
        return lambda action: self.calls.append((name, action))


def test_every_kind_of_action_has_its_method_and_the_order_is_kept() -> None:
    carried_out = CarriedOut()
    execute(ACTIONS, carried_out)
    assert {type(action) for action in ACTIONS} == set(get_args(Action))
    assert [action for _, action in carried_out.calls] == list(ACTIONS)
    names = ["evict", "downgrade", "restore", "scale_in", "scale_out", "retune", "migrate", "reclaim", "start"]
    assert [name for name, _ in carried_out.calls] == names


def test_who_is_downgraded_keeps_the_levels_of_its_cells_and_nothing_else_of_them() -> None:
    lost = downgraded(SEATED)
    assert lost.tasks == (TaskCellUse("machine"),)
    assert (lost.downgraded, lost.yields_to_downgrade) == (True, True)
    feed = JobName("feed")
    assert cells_after(((MAIN, SEATED), (feed, SEATED)), ((feed, lost),)) == ((MAIN, SEATED), (feed, lost))


def test_a_plan_without_actions_is_a_plan() -> None:
    plan = Plan(KEY.workload, RegionId("r"), (), Score())
    carried_out = CarriedOut()
    execute(plan.actions, carried_out)
    assert (plan.placements, plan.evictions, carried_out.calls) == ((), (), [])


@pytest.mark.parametrize(
    ("actions", "expected"),
    [
        ((), EVICTS_NOTHING),
        ((Start(TWO),), EVICTS_NOTHING),
        ((ScaleIn(KEY, ()), Start(TWO)), SCALES_IN),
        ((ScaleIn(KEY, ()), Evict(KEY), Start(TWO)), PREEMPTS),
    ],
)
def test_a_plan_that_scales_in_only_is_better_than_one_that_evicts(actions: tuple[Action, ...], expected: int) -> None:
    assert reclaim_class(actions) == expected
    assert Score(reclaim_class=EVICTS_NOTHING) < Score(reclaim_class=SCALES_IN) < Score(reclaim_class=PREEMPTS)


def test_what_goes_is_given_up_and_what_comes_is_got() -> None:
    scale_in = ScaleIn(KEY, (name_of(THREE[2]),))
    assert placements_after(scale_in, THREE) == TWO
    change = change_of(scale_in, THREE, TWO)
    assert (change.kind, change.released) == (ChangeKind.RESIZED, (THREE[2],))
    assert placements_after(ScaleOut(KEY, (THREE[2],)), TWO) == THREE
    assert grown(TWO, THREE) == (THREE[2],)
    more = replace_cpus(THREE, 0, 8)
    retune = Retune(KEY, (TaskAmounts(name_of(THREE[0]), 8000, 1024),))
    assert placements_after(retune, THREE) == more
    assert change_of(retune, THREE, more).released == ()
    assert change_of(retune, more, THREE).released == (more[0],)


def replace_cpus(placements: tuple[TaskPlacement, ...], index: int, cpus: int) -> tuple[TaskPlacement, ...]:
    changed = list(placements)
    changed[index] = changed[index]._replace(millicpus=1000 * cpus)
    return tuple(changed)


@pytest.mark.parametrize(
    ("action", "why"),
    [
        (ScaleIn(KEY, (TaskName(MAIN, 7),)), "is not placed"),
        (ScaleIn(KEY, (TaskName(MAIN, 1), TaskName(MAIN, 1))), "named twice"),
        (ScaleOut(KEY, (placed(1, 3),)), "is placed already"),
        (Retune(KEY, (TaskAmounts(TaskName(MAIN, 9), 1, 1),)), "is not placed"),
    ],
)
def test_tasks_that_are_not_there_are_named(action: ScaleIn | ScaleOut | Retune, why: str) -> None:
    with pytest.raises(ImpossibleAction, match=why):
        placements_after(action, THREE)


def test_a_gang_keeps_its_base_tasks_and_its_bounds() -> None:
    check_gang(KEY, gang(), THREE)
    for placements, why in (
        ((placed(0),), "base task"),
        ((*TWO, placed(4, 3)), "at most 4 tasks"),
        ((*TWO, TWO[1]), "placed twice"),
        ((TWO[0], TWO[1]._replace(gpu_indices=())), "needs 1 GPUs"),
        ((*TWO, TWO[1]._replace(job=JobName("other"))), "has no job other"),
    ):
        with pytest.raises(ImpossibleAction, match=why):
            check_gang(KEY, gang(), placements)
    with pytest.raises(ImpossibleAction, match="less than nothing"):
        check_gang(KEY, replace(gang()), (TWO[0], TWO[1]._replace(mebibytes=-1)))
