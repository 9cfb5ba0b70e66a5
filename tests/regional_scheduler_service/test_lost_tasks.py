"""An elastic attempt that loses flexible tasks goes on without them, whatever else is being changed."""

from __future__ import annotations

import pytest

from cluster_manager.attempt_run.events import Eviction, LeaveAsked
from domain.events import EventKind, EvictionCause
from domain.life_cycle import State
from domain.placement_changes import LossCause, name_of
from domain.plan import TaskName
from services.execution.executor import AttemptPhase, AttemptStatus
from services.regional_scheduler.adjustment_rounds import as_told
from tests.regional_scheduler_service.test_races import FIRST
from tests.regional_scheduler_service.test_refused_changes import (
    CLUSTER,
    NOW_S,
    TRAIN,
    Region,
    _loaded,
    grow_on_another_machine,
    in_a_region,
)
from tests.regional_scheduler_service.test_won_scale_in import TASKS


def reports_lost(region: Region, *tasks: int) -> None:
    """The cluster says that they are gone."""
    region.attempt.reports[CLUSTER] = AttemptStatus(
        FIRST,
        AttemptPhase.RUNNING,
        2100.0,
        progress=50.0,
        started_s=2100.0,
        revision=region.attempt.revision,
        lost_tasks=tuple(TaskName(TRAIN, task) for task in tasks),
    )


def names(region: Region) -> list[int]:
    return [name_of(placement).task for placement in region.held]


def test_it_goes_on_without_a_flexible_task_and_says_why(database_url: str) -> None:
    async def story(region: Region) -> None:
        reports_lost(region, 3)
        await region.losses.take_reports([FIRST, FIRST])
        change = region.attempt.change
        assert change is not None
        assert (region.attempt.state, change.cause, change.lost) == (
            State.RUNNING,
            LossCause.TASK_LOST,
            (TaskName(TRAIN, 3),),
        )
        assert names(region) == [0, 1, 2]
        assert [name_of(placement).task for placement in change.released] == [3]
        await region.losses.take_reports([FIRST])
        assert region.attempt.revision == 1, "what it does without already is nothing new"
        async with region.database.transaction() as connection:
            again = (await _loaded(connection)).live.get(FIRST)
        assert again is not None
        assert (again.revision, again.change, again.placements) == (1, change, TASKS[:3])
        await region.carry_out()
        ((kind, details),) = await region.events()
        assert kind == EventKind.RESIZED.value
        assert isinstance(details, dict)
        assert (details["cause"], details["lost"]) == ("task_lost", [{"job": "train", "task": 3}])
        assert len(details["placement"]) == 3

    in_a_region(database_url, 4, story)


def test_the_loss_of_a_base_task_is_not_taken_up(database_url: str) -> None:
    async def story(region: Region) -> None:
        reports_lost(region, 0, 3)
        await region.losses.take_reports([FIRST])
        assert region.attempt.change is None
        assert names(region) == [0, 1, 2, 3]

    in_a_region(database_url, 4, story)


def test_one_that_is_leaving_goes_on_leaving(database_url: str) -> None:
    async def story(region: Region) -> None:
        reports_lost(region, 3)
        region.attempt.take(LeaveAsked(3000.0, Eviction(EvictionCause.DRAINED)))
        await region.losses.take_reports([FIRST])
        assert region.attempt.change is None

    in_a_region(database_url, 4, story)


def test_a_machine_with_flexible_tasks_only_costs_these(database_url: str) -> None:
    async def story(region: Region) -> None:
        machine = await grow_on_another_machine(region)
        await region.carry_out()
        await region.lose(machine)
        assert region.attempt.state is State.RUNNING
        assert region.attempt.change is not None
        assert region.attempt.change.cause is LossCause.MACHINE_LOST
        assert region.held == TASKS[:2]
        await region.lose(machine)
        assert region.attempt.revision == 2
        await region.carry_out()
        told = [details for kind, details in await region.events() if kind == "resized"]
        assert [details.get("cause") for details in told if isinstance(details, dict)] == [None, "machine_lost"]

    in_a_region(database_url, 2, story)


def test_a_loss_takes_the_place_of_the_change_that_is_under_way(database_url: str) -> None:
    """It was to shrink from four tasks to three, when the third is killed."""

    async def story(region: Region) -> None:
        await region.resize(3)
        reports_lost(region, 2)
        await region.losses.take_reports([FIRST])
        change = region.attempt.change
        assert change is not None
        assert (region.attempt.revision, names(region)) == (2, [0, 1])
        assert sorted(name_of(placement).task for placement in change.released) == [2, 3]
        async with region.database.transaction() as connection:
            again = (await _loaded(connection)).live.get(FIRST)
        assert again is not None
        assert (again.revision, again.change, again.placements) == (2, change, TASKS[:2])
        await region.carry_out()
        assert region.attempt.change is None

    in_a_region(database_url, 4, story)


@pytest.mark.parametrize("refusals", [1, 2])
def test_a_change_back_never_has_what_is_lost(database_url: str, refusals: int) -> None:
    async def story(region: Region) -> None:
        await region.resize(3)
        reports_lost(region, 2)
        await region.losses.take_reports([FIRST])
        for _ in range(refusals):
            await region.refuse(region.attempt.revision)
        if refusals == 1:
            assert region.attempt.change is not None
            assert region.attempt.change.undoes
            assert names(region) == [0, 1, 3]
        else:
            assert region.attempt.state is State.PREEMPTING

    in_a_region(database_url, 4, story)


def test_a_machine_that_goes_while_its_tasks_are_given_up_is_no_reason_to_leave(database_url: str) -> None:
    async def story(region: Region) -> None:
        machine = await grow_on_another_machine(region)
        await region.carry_out()
        await region.resize(2)
        await region.lose(machine)
        assert (region.attempt.state, region.attempt.revision) == (State.RUNNING, 2)
        await region.refuse(2)
        assert region.held == TASKS[:2], "the change back does without the machine"

    in_a_region(database_url, 2, story)


def test_a_drained_machine_with_flexible_tasks_only_costs_these(database_url: str) -> None:
    async def story(region: Region) -> None:
        machine = await grow_on_another_machine(region)
        await region.carry_out()
        assert await region.drain(machine) == []
        change = region.attempt.change
        assert change is not None
        assert (region.attempt.state, change.cause, change.lost) == (State.RUNNING, None, ())
        assert region.held == TASKS[:2]
        assert await region.drain(machine) == [], "what it gives up already is nothing new"
        assert region.attempt.revision == 2
        async with region.database.transaction() as connection:
            again = (await _loaded(connection)).live.get(FIRST)
        assert again is not None
        assert (again.revision, again.change, again.placements) == (2, change, TASKS[:2])
        await region.carry_out()
        assert region.attempt.change is None

    in_a_region(database_url, 2, story)


def test_a_drained_machine_costs_flexible_tasks_only_while_others_are_given_up(database_url: str) -> None:
    """It was to shrink from four tasks to three, the other two of which are on the machine that is drained."""

    async def story(region: Region) -> None:
        machine = await grow_on_another_machine(region)
        await region.carry_out()
        await region.resize(3)
        assert await region.drain(machine) == []
        change = region.attempt.change
        assert change is not None
        assert (region.attempt.state, region.attempt.revision) == (State.RUNNING, 3)
        assert (change.cause, change.lost) == (None, ())
        assert sorted(name_of(placement).task for placement in change.released) == [2, 3]
        assert region.held == TASKS[:2]
        assert region.attempt.task_kills.times == 0
        async with region.database.transaction() as connection:
            again = (await _loaded(connection)).live.get(FIRST)
        assert again is not None
        assert (again.revision, again.change, again.placements) == (3, change, TASKS[:2])
        assert await region.drain(machine) == []
        assert region.attempt.revision == 3
        await region.carry_out()
        assert region.attempt.change is None
        assert not region.memory.live.on(machine)

    in_a_region(database_url, 2, story)


def test_a_kill_counts_once_although_a_drain_follows_it(database_url: str) -> None:
    async def story(region: Region) -> None:
        machine = await grow_on_another_machine(region)
        await region.carry_out()
        reports_lost(region, 3)
        await region.losses.take_reports([FIRST])
        await region.drain(machine)
        change = region.attempt.change
        assert change is not None
        assert (change.cause, change.lost) == (LossCause.TASK_LOST, (TaskName(TRAIN, 3),))
        assert region.held == TASKS[:2]
        assert region.attempt.task_kills.times == 1

    in_a_region(database_url, 2, story)


def test_what_is_drained_is_not_returned_to_when_it_cannot_be_given_up(database_url: str) -> None:
    async def story(region: Region) -> None:
        machine = await grow_on_another_machine(region)
        await region.carry_out()
        await region.drain(machine)
        await region.refuse(2)
        assert region.attempt.state is State.PREEMPTING

    in_a_region(database_url, 2, story)


def test_the_base_tasks_leave_a_drained_machine_with_the_attempt(database_url: str) -> None:
    async def story(region: Region) -> None:
        await grow_on_another_machine(region)
        await region.carry_out()
        assert await region.drain(TASKS[0].machine) == [FIRST]
        assert region.attempt.state is State.PREEMPTING

    in_a_region(database_url, 2, story)


def test_what_has_completed_loses_nothing_with_its_machine(database_url: str) -> None:
    async def story(region: Region) -> None:
        region.attempt.reports[CLUSTER] = AttemptStatus(FIRST, AttemptPhase.COMPLETED, 2900.0, started_s=2100.0)
        await region.lose(TASKS[0].machine)
        assert region.attempt.eviction is None
        region.attempt.reports[CLUSTER] = AttemptStatus(FIRST, AttemptPhase.LOST, 2900.0, started_s=2100.0)
        await region.lose(TASKS[0].machine)
        assert region.attempt.eviction == Eviction(EvictionCause.MACHINE_LOST)

    in_a_region(database_url, 2, story)


def test_after_each_kill_it_grows_later_also_in_a_new_session(database_url: str) -> None:
    async def story(region: Region) -> None:
        assert region.attempt.may_grow_from_s == 0.0
        for task, waits_s in ((3, 10.0), (2, 20.0)):
            reports_lost(region, task)
            await region.losses.take_reports([FIRST])
            await region.carry_out()
            assert region.attempt.may_grow_from_s == NOW_S + waits_s
        async with region.database.transaction() as connection:
            again = (await _loaded(connection)).live.get(FIRST)
        assert again is not None
        assert again.task_kills == region.attempt.task_kills
        (told,) = as_told([again], NOW_S)
        assert not told.may_grow
        (told,) = as_told([again], NOW_S + 20.0)
        assert told.may_grow

    in_a_region(database_url, 4, story)


def test_a_machine_that_is_lost_is_no_reason_to_grow_later(database_url: str) -> None:
    async def story(region: Region) -> None:
        machine = await grow_on_another_machine(region)
        await region.carry_out()
        await region.lose(machine)
        await region.carry_out()
        assert region.attempt.may_grow_from_s == 0.0

    in_a_region(database_url, 2, story)
