"""Capacity remembers which attempts have changed lately, for those who keep a state of their own."""

from __future__ import annotations

from cluster_manager.capacity.attempts import CHANGES_REMEMBERED
from domain.placement import Holding
from domain.rank import Standing
from regional_scheduler.region_capacity import RegionCapacity
from tests.cluster_manager.fleets import cluster, gpu_machine, key_of, region, tasks_on


def held(name: str, gpu: int, priority: int = 6) -> Holding:
    return Holding(key_of(name), Standing(priority, 0), 0.0, (tasks_on("m", [gpu]),))


def test_whoever_asks_again_hears_of_what_came_changed_and_went() -> None:
    capacity = RegionCapacity(region(cluster("c", [gpu_machine("m")])))
    (view,) = capacity.clusters
    before, start = view.changed_attempts(-1)
    assert before is None, "who has never asked looks at all"
    capacity.hold(held("a", 0))
    capacity.hold(held("b", 1))
    changed, now = view.changed_attempts(start)
    assert changed is not None
    assert [(one.key, one.holding is not None, one.leaving) for one in changed] == [
        (key_of("a"), True, False),
        (key_of("b"), True, False),
    ]
    capacity.begin_eviction(key_of("a"))
    capacity.release(key_of("b"))
    changed, later = view.changed_attempts(now)
    assert changed is not None
    assert [(one.key, one.holding is not None, one.leaving) for one in changed] == [
        (key_of("a"), True, True),
        (key_of("b"), False, False),
    ]
    assert view.changed_attempts(later) == ([], later)


def test_what_was_undone_counts_as_changed_and_what_is_long_ago_is_forgotten() -> None:
    capacity = RegionCapacity(region(cluster("c", [gpu_machine("m")])))
    view = capacity.clusters[0]
    _, start = view.changed_attempts(-1)
    with capacity.tentatively():
        capacity.hold(held("a", 0))
    changed, now = view.changed_attempts(start)
    assert changed is not None
    assert [(one.key, one.holding) for one in changed] == [(key_of("a"), None)]
    for _ in range(CHANGES_REMEMBERED):
        capacity.hold(held("b", 1))
        capacity.release(key_of("b"))
    forgotten, last = view.changed_attempts(now)
    assert forgotten is None
    assert last == now + 2 * CHANGES_REMEMBERED
