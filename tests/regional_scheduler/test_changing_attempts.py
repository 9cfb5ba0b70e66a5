"""An attempt whose last change is not carried out yet gives up nothing, whatever happens to the region's capacity meanwhile."""

from __future__ import annotations

from data_placement.catalog import Catalog
from domain.placement import AttemptKey, Holding
from domain.plan import Evict, Migrate, Plan, ScaleIn, Start
from domain.rank import QueuePosition, Standing
from regional_scheduler.dispatching import Dispatch, confirm_wins, withdraw_wins
from regional_scheduler.hosting import EmptyRegion
from regional_scheduler.plan_application import apply_plan
from regional_scheduler.planner import Refusal
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.region_change import capacity_after_change
from regional_scheduler.requested_plans import AttemptToChange, plan_migration
from regional_scheduler.rounds import Lot
from tests.cluster_manager.fleets import cluster, gpu_machine, key_of, region, tasks_on
from tests.cluster_manager.inventory_worlds import workload_of
from tests.regional_scheduler.test_voluntary_releases import (
    BETTER,
    EQUAL,
    apply,
    hold_elastic,
    job,
    plan,
    released,
    two_machines,
)

ALL = tuple(range(8))


def scaling_in() -> tuple[RegionCapacity, AttemptKey]:
    """A full region, and the attempt that is giving up one of its flexible tasks and has two more."""
    inventory = two_machines()
    inventory.voluntary.changes_take_time = True
    key = hold_elastic(inventory, "a", 1, ("m1", (0, 1)), ("m1", (2, 3)), ("m1", (4, 5)), ("m1", (6, 7)))
    hold_elastic(inventory, "b", 1, ("m2", ALL))
    apply(inventory, plan(inventory, job(2)))
    return inventory, key


def gives_up_nothing(inventory: RegionCapacity) -> bool:
    return isinstance(plan(inventory, job(2)), Refusal)


def test_other_machines_change_nothing() -> None:
    before, key = scaling_in()
    other = region(cluster("c", [gpu_machine("m1"), gpu_machine("m2"), gpu_machine("m3", 1)]))
    inventory = capacity_after_change(before, other, {})
    assert gives_up_nothing(inventory)
    inventory.change_carried_out(key)
    assert len(released(plan(inventory, job(2)))) == 1
    apply(inventory, plan(inventory, job(2)), newcomer="next")
    assert gives_up_nothing(inventory)


def test_what_is_tried_out_changes_nothing() -> None:
    inventory, key = scaling_in()
    with inventory.tentatively():
        inventory.release(key)
    inventory.begin_eviction(key_of("b"))
    assert gives_up_nothing(inventory)


def test_an_eviction_that_is_withdrawn_changes_nothing() -> None:
    inventory, key = scaling_in()
    outcome = plan(inventory, job(4), standing=BETTER)
    assert isinstance(outcome, Plan)
    assert [type(action) for action in outcome.actions] == [Evict, Start]
    if outcome.evictions != (key,):
        outcome = Plan(outcome.workload, outcome.region, (Evict(key), Start((tasks_on("m1", (4, 5)),))), outcome.score)
    workload = workload_of("new", job(4))
    lot = Lot(workload, QueuePosition(workload.workload, BETTER, 0.0, 0.0, within_quota=False), key.attempt)
    apply_plan(inventory, outcome, 100.0, lot)
    assert withdraw_wins(inventory, [Dispatch(lot, outcome)])
    assert gives_up_nothing(inventory)


def test_tasks_that_are_given_up_for_what_is_withdrawn_are_held_again_and_can_be_given_up_again() -> None:
    inventory = two_machines()
    inventory.voluntary.changes_take_time = True
    key = hold_elastic(inventory, "a", 1, ("m1", (0, 1)), ("m1", (2, 3)), ("m1", (4, 5)), ("m1", (6, 7)))
    hold_elastic(inventory, "b", 1, ("m2", ALL))
    before = inventory.holding(key)
    workload = workload_of("new", job(4))
    lot = Lot(workload, QueuePosition(workload.workload, EQUAL, 0.0, 0.0, within_quota=False), key.attempt)
    machines = region(cluster("c", [gpu_machine("m1"), gpu_machine("m2")]))
    (won,) = confirm_wins(inventory, EmptyRegion(machines), Catalog(()), [lot], 100.0)
    assert isinstance(won, Dispatch)
    assert len(released(won.plan)) == 2
    assert gives_up_nothing(inventory)
    assert withdraw_wins(inventory, [won])
    inventory.check()
    assert inventory.holding(key) == before
    again = plan(inventory, job(4))
    assert released(again) == released(won.plan)


def test_who_begins_to_run_is_known_to_have_something_to_give_up() -> None:
    inventory = two_machines()
    inventory.voluntary.will_begin(key_of("a"))
    key = hold_elastic(inventory, "a", 1, ("m1", (0, 1)), ("m1", (2, 3)))
    assert inventory.voluntary.will_give_up(key)
    assert inventory.voluntary.change_carried_out(key)
    assert not inventory.voluntary.will_give_up(key)


def test_what_migrates_has_others_give_up_what_they_can_do_without() -> None:
    inventory = two_machines()
    hold_elastic(inventory, "a", 1, ("m1", (0, 1, 2, 3)), ("m1", (4, 5)), ("m1", (6, 7)))
    key = key_of("moves")
    inventory.hold(Holding(key, Standing(1, 0), 0.0, (tasks_on("m2", (0, 1)),)))
    moves = AttemptToChange(
        key, workload_of("moves", job(2)).specification, (tasks_on("m2", (0, 1)),), guaranteed=False
    )
    outcome = plan_migration(inventory, moves, None, 100.0)
    assert [type(action) for action in outcome.actions] == [ScaleIn, Migrate]
    assert released(outcome) == [("a", 2)]
    apply_plan(inventory, outcome, 100.0)
    inventory.check()


def test_nobody_gives_up_anything_for_a_migration_into_what_is_free() -> None:
    inventory = two_machines()
    hold_elastic(inventory, "a", 1, ("m1", (0, 1)), ("m1", (2, 3)))
    key = key_of("moves")
    inventory.hold(Holding(key, EQUAL, 0.0, (tasks_on("m2", (0, 1)),)))
    moves = AttemptToChange(
        key, workload_of("moves", job(2)).specification, (tasks_on("m2", (0, 1)),), guaranteed=False
    )
    (action,) = plan_migration(inventory, moves, None, 100.0).actions
    assert isinstance(action, Migrate)
