"""Which changes of a scan pass are stored with it, and which in what order after it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from global_scheduler.credit_turns import CreditTurns, credit_turns
from global_scheduler.scan_pass import scan_pass
from global_scheduler.scan_plan import ScanPlan
from global_scheduler.scan_view import ScanView
from tests.global_scheduler.scan_worlds import NOW_S, Queued, ScanWorld, tenant, worlds

QUANTUM_S = 60.0


def _first_turns(world: ScanWorld, view: ScanView, plan: ScanPlan, turns: CreditTurns) -> ScanWorld:
    """The world once the pass is stored, and one part of what comes after it."""
    written = {view.pending.workloads[entry] for part in (turns.first, *turns.later[:1]) for entry in part.tolist()}
    position = {str(view.pending.workloads[entry]): plan.position(view, entry) for entry in range(len(view.pending))}
    return replace(
        world,
        queued=tuple(
            replace(
                row,
                stored=(
                    *position[row.workload].standing,
                    position[row.workload].credit,
                    position[row.workload].within_quota,
                ),
            )
            if row.workload in written
            else row
            for row in world.queued
        ),
    )


@given(worlds(), st.integers(1, 4), st.integers(0, 3))
def test_never_leaves_anything_out_and_news_come_first(world: ScanWorld, at_once: int, quanta: int) -> None:
    view = world.view()
    world = _first_turns(world, view, plan := scan_pass(view, NOW_S), CreditTurns(plan.changed, ()))
    view = world.view()
    plan = scan_pass(view, NOW_S + quanta * QUANTUM_S)
    turns = credit_turns(view.pending.stored, plan, at_once)
    assert sorted(np.concatenate([turns.first, *turns.later]).tolist()) == plan.changed.tolist()
    assert turns.first.tolist() == sorted(turns.first.tolist())
    stored = view.pending.stored
    for entry in (entry for part in turns.later for entry in part.tolist()):
        assert (stored.priority[entry], stored.level[entry]) == (plan.priority[entry], plan.level[entry])
        assert stored.within_quota[entry] == plan.within_quota[entry]
        assert entry not in plan.promotions
    assert all(len(part) <= at_once for part in turns.later)


@given(worlds(), st.integers(1, 4), st.integers(1, 3))
def test_never_puts_what_is_stored_behind_what_is_not(world: ScanWorld, at_once: int, quanta: int) -> None:
    """As long as credits grow with age: of two entries, one of which is stored, no later one gets before an earlier one."""
    view = world.view()
    world = _first_turns(world, view, plan := scan_pass(view, NOW_S), CreditTurns(plan.changed, ()))
    view = world.view()
    plan = scan_pass(view, NOW_S + quanta * QUANTUM_S)
    if (plan.credit < view.pending.stored.credit).any():
        return
    turns = credit_turns(view.pending.stored, plan, at_once)
    stored = {row.workload: row.stored for row in _first_turns(world, view, plan, turns).queued}
    keys = []
    for entry in plan.order.tolist():
        name = view.pending.workloads[entry]
        priority, level, credit, _ = stored[name] or (0, 0, 0.0, False)
        keys.append((priority, level, -credit, float(view.pending.submitted_s[entry]), name))
    left = {view.pending.workloads[entry] for part in turns.later[1:] for entry in part.tolist()}
    assert all(key < behind for place, key in enumerate(keys) if key[4] not in left for behind in keys[place + 1 :])


def test_whoever_comes_near_the_head_is_stored_however_little_is_stored_at_a_time() -> None:
    """All credits grow between any two passes, each stores three of those that wait, and the first one starts."""
    queued = tuple(Queued(f"w{number}", "ads", float(number), {"any": 1}) for number in range(10))
    world = ScanWorld((tenant("ads", any=100),), queued)
    for number in range(1, 10):
        view = world.view()
        plan = scan_pass(view, NOW_S + number * QUANTUM_S)
        turns = credit_turns(view.pending.stored, plan, 3)
        world = _first_turns(world, view, plan, turns)
        stored = [row.stored[2] for row in world.queued if row.stored is not None]
        assert stored == sorted(stored, reverse=True)
        assert stored[:3] == plan.credit[plan.order[:3]].tolist()
        world = replace(world, queued=world.queued[1:])


def test_what_has_fallen_is_stored_first_from_the_end_on() -> None:
    queued = [
        Queued(f"w{number}", "ads", float(number), {"any": 1}, stored=(1, 0, credit, True))
        for number, credit in enumerate((1.0, 1e9, 1.0, 1e9, 1.0))
    ]
    view = ScanWorld((tenant("ads", any=100),), tuple(queued)).view()
    plan = scan_pass(view, NOW_S)
    turns = credit_turns(view.pending.stored, plan, 1)
    assert [part.tolist() for part in turns.later] == [[3], [1], [0], [2], [4]]


def test_few_changes_are_all_stored_with_the_pass() -> None:
    view = ScanWorld((tenant("ads", any=2),), (Queued("w", "ads", 0.0, {"any": 1}, stored=(1, 0, 1.0, True)),)).view()
    plan = scan_pass(view, NOW_S)
    turns = credit_turns(view.pending.stored, plan)
    assert (turns.first.tolist(), turns.later) == ([0], ())
