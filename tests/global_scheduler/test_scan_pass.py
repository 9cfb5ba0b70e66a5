from dataclasses import replace

import numpy as np
import pytest

from domain.rank import QueuePosition, Standing
from domain.tenant import LOWEST_PRIORITY
from global_scheduler.credit import CreditSettings
from global_scheduler.ordering.credit import CreditOrdering
from global_scheduler.scan_pass import scan_pass
from global_scheduler.scan_settings import QueueRule, ScanSettings
from tests.global_scheduler.brute_force_scan import brute_force_scan
from tests.global_scheduler.scan_worlds import NOW_S, TWO_THRESHOLDS, LiveRow, Queued, ScanWorld, after, tenant

WITH_LEVELS = ScanSettings(rules=(QueueRule(CreditOrdering(), TWO_THRESHOLDS),) * 7)

WORLD = ScanWorld(
    (tenant("low", priority=LOWEST_PRIORITY, any=8), tenant("high", priority=1, any=8)),
    (
        Queued("w1", "low", 9_000.0, {"any": 8}, attained_gpu_s=1_000.0),
        Queued("w2", "high", 9_100.0, {"any": 8}),
        Queued("w3", "high", 9_200.0, {"any": 8}),
    ),
    settings=WITH_LEVELS,
)


def changed_when_stored(stored: tuple[int, int, float, bool] | None) -> list[int]:
    """What changes when w1 is stored like this, and the others as they are decided."""
    view = WORLD.view()
    known = after(WORLD, view, scan_pass(view, NOW_S))
    queued = (replace(known.queued[0], stored=stored), *known.queued[1:])
    return list(scan_pass(replace(known, queued=queued).view(), NOW_S).changed)


def test_a_tuple_is_written_when_any_part_of_it_differs() -> None:
    credit = 16 / 60 + 6.0
    assert changed_when_stored((6, 2, credit, True)) == []
    assert changed_when_stored(None) == [0]
    assert changed_when_stored((5, 2, credit, True)) == [0]
    assert changed_when_stored((6, 1, credit, True)) == [0]
    assert changed_when_stored((6, 2, credit + 0.1, True)) == [0]
    assert changed_when_stored((6, 2, credit, False)) == [0]


def test_what_was_never_ranked_is_written() -> None:
    assert scan_pass(WORLD.view(), NOW_S).changed.tolist() == [0, 1, 2]


def test_within_a_quantum_of_age_nothing_is_written() -> None:
    view = WORLD.view()
    known = after(WORLD, view, scan_pass(view, NOW_S)).view()
    # They were submitted 1,000, 900 and 800 seconds ago: 16, 15 and 13 minutes.
    assert scan_pass(known, NOW_S + 19.0).changed.tolist() == []
    assert scan_pass(known, NOW_S + 20.0).changed.tolist() == [0]
    assert scan_pass(known, NOW_S + 40.0).changed.tolist() == [0, 2]


def test_after_the_age_cap_nothing_is_written_any_more() -> None:
    world = replace(WORLD, settings=ScanSettings(CreditSettings(age_cap_s=600.0)))
    view = world.view()
    known = after(world, view, scan_pass(view, NOW_S)).view()
    assert scan_pass(known, NOW_S + 1e6).changed.tolist() == []


def test_the_plan_gives_each_entry_its_position() -> None:
    view = WORLD.view()
    plan = scan_pass(view, NOW_S)
    assert plan.position(view, 1) == QueuePosition(
        view.pending.workloads[1], Standing(1, 0), float(plan.credit[1]), 9_100.0, within_quota=True
    )
    # w1 and w3 are both at priority 6; w3 is over quota there, and stands below.
    assert [view.pending.workloads[entry] for entry in plan.order] == ["w2", "w1", "w3"]
    assert plan.rank.tolist() == [1, 0, 2]


def test_an_empty_queue_has_an_empty_plan() -> None:
    plan = scan_pass(ScanWorld(()).view(), NOW_S)
    assert plan.order.size == plan.changed.size == plan.credit.size == 0
    assert plan.reclassifications == ()


def test_nothing_in_a_plan_can_be_written() -> None:
    plan = scan_pass(WORLD.view(), NOW_S)
    for array in (
        plan.priority,
        plan.level,
        plan.credit,
        plan.within_quota,
        plan.order,
        plan.changed,
        plan.running_use,
    ):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_a_longer_queue_is_ranked_as_by_the_brute_force(generator: np.random.Generator) -> None:
    names = ("ash", "birch", "cedar", "oak")
    models = ("A100", "H100", "T4", "any")

    def gpus(most: int) -> dict[str, int]:
        return {str(generator.choice(models)): int(generator.integers(most)) for _ in range(2)}

    world = ScanWorld(
        tuple(tenant(name, int(generator.integers(7)), None, 1.0, H100=40, any=60) for name in names),
        tuple(
            Queued(f"w{number}", str(generator.choice(names)), float(generator.integers(10_000)), gpus(6))
            for number in range(400)
        ),
        tuple(
            LiveRow(f"r{number}", str(generator.choice(names)), float(generator.integers(10_000)), gpus(8), within)
            for number, within in enumerate((generator.random(60) < 0.6).tolist())
        ),
    )
    view = world.view()
    plan = scan_pass(view, NOW_S)
    oracle = brute_force_scan(world, NOW_S)
    assert [view.pending.workloads[entry] for entry in plan.order] == oracle.order
    assert {row.workload: row.within_quota for row in after(world, view, plan).live} == oracle.live_within_quota
    assert any(change.promoted for change in plan.reclassifications) or any(
        change.demoted for change in plan.reclassifications
    )
    assert 0 < plan.within_quota.sum() < 400
