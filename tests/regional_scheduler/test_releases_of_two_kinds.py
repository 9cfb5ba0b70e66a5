"""Attempts that can do without flexible tasks and without CPUs at once: what is planned can be done, and takes no more than needed."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import event, given, settings
from hypothesis import strategies as st

from domain.fleet import Region
from domain.placement import Holding
from domain.placement_changes import name_of
from domain.plan import Evict, Plan, Retune, ScaleIn
from domain.rank import QueuePosition, Standing
from domain.workload import Workload
from regional_scheduler.needless_victims import needless_victims
from regional_scheduler.plan_application import apply_plan
from regional_scheduler.planner import plan_workload
from regional_scheduler.rounds import Lot
from regional_scheduler.voluntary_releases import VoluntaryRelease
from tests.cluster_manager.fleets import key_of
from tests.cluster_manager.inventory_worlds import Step, World, elastic_steps, regions, standings, workloads
from tests.examples import examples


class _HalfTheCpus:
    """Each task can do with half of them, and of its memory."""

    def releases_of(self, holding: Holding) -> Iterator[VoluntaryRelease]:
        for task in holding.placements:
            if task.millicpus > 1 or task.mebibytes > 1:
                less = task._replace(
                    millicpus=task.millicpus - task.millicpus // 2, mebibytes=task.mebibytes - task.mebibytes // 2
                )
                yield VoluntaryRelease(holding.key, task, less)


@settings(max_examples=examples(200))
@given(
    regions(2, 2, 3),
    elastic_steps(),
    st.lists(st.tuples(workloads(), standings()), min_size=2, max_size=4),
    st.booleans(),
)
def test_never_takes_twice_nor_needlessly(
    described: Region, history: list[Step], newcomers: list[tuple[Workload, Standing]], takes_time: bool
) -> None:
    world = World.of(described)
    inventory = world.inventory
    inventory.voluntary.add_source(_HalfTheCpus())
    inventory.voluntary.changes_take_time = takes_time
    for step in history:
        world.take(step)
    for number, (workload, standing) in enumerate(newcomers):
        outcome = plan_workload(inventory, workload, standing, world.now_s, within_quota=False)
        if not isinstance(outcome, Plan):
            continue
        kinds = {type(action).__name__ for action in outcome.actions}
        event(f"{', '.join(sorted(kinds))}, {len(workload.specification.jobs)} jobs")
        released = {
            (action.attempt, name)
            for action in outcome.actions
            if isinstance(action, ScaleIn)
            for name in action.released
        }
        with_less = {
            (action.attempt, amounts.name)
            for action in outcome.actions
            if isinstance(action, Retune)
            for amounts in action.amounts
        }
        assert not released & with_less
        evicted = {action.victim for action in outcome.actions if isinstance(action, Evict)}
        assert not evicted & {attempt for attempt, _ in released | with_less}
        for attempt, name in released | with_less:
            holding = inventory.holding(attempt)
            assert holding is not None
            assert name in {name_of(task) for task in holding.placements}
        key = key_of(f"newcomer-{number}")
        position = QueuePosition(key.workload, standing, 0.0, 0.0, within_quota=False)
        lot = Lot(Workload(key.workload, workload.specification, 0.0), position, key.attempt)
        apply_plan(inventory, outcome, world.now_s, lot)
        inventory.check()
        assert needless_victims(inventory, key, outcome) == ()
