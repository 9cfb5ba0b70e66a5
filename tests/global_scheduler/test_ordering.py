import importlib
import math
import pkgutil
from dataclasses import dataclass

import numpy as np
import pytest

from domain.tenant import LOWEST_PRIORITY
from global_scheduler import ordering
from global_scheduler.arithmetic import Numbers
from global_scheduler.knowledge import Knowledge, OracleNeeded
from global_scheduler.levels.attained_service import AttainedService
from global_scheduler.ordering import ORDERINGS
from global_scheduler.ordering.credit import CreditOrdering
from global_scheduler.ordering.fifo import FifoOrdering
from global_scheduler.ordering.policy import OrderingInput
from global_scheduler.ordering.shortest_remaining import ShortestRemaining
from global_scheduler.ordering.total_order import total_order
from global_scheduler.scan_pass import scan_pass
from global_scheduler.scan_settings import QueueRule, ScanSettings
from global_scheduler.usage_window import WindowedUse
from tests.global_scheduler.scan_worlds import NOW_S, Queued, ScanWorld, tenant

# In the order of submission. The tenant `greedy` used all there was, so its workloads have less credit.
QUEUED = (
    Queued("w1", "greedy", 9_000.0, {"any": 1}),
    Queued("w2", "modest", 9_500.0, {"any": 1}),
    Queued("w3", "greedy", 9_500.0, {"any": 9}),
    Queued("w4", "modest", 9_900.0, {"any": 9}),
)
TENANTS = (tenant("greedy", any=4), tenant("modest", any=4))


def names_in_order(settings: ScanSettings, queued: tuple[Queued, ...] = QUEUED) -> list[str]:
    view = ScanWorld(TENANTS, queued, use=(("greedy", WindowedUse(8.0)),), settings=settings).view()
    plan = scan_pass(view, NOW_S)
    return [view.pending.workloads[entry] for entry in plan.order]


def test_credit_orders_within_a_priority() -> None:
    assert names_in_order(ScanSettings()) == ["w2", "w1", "w4", "w3"]


def test_fifo_orders_by_submit_time() -> None:
    assert names_in_order(ScanSettings(rules=(QueueRule(FifoOrdering()),) * 7)) == ["w1", "w2", "w3", "w4"]


def test_each_priority_has_its_own_policy() -> None:
    first_come = (*(QueueRule() for _ in range(LOWEST_PRIORITY)), QueueRule(FifoOrdering()))
    assert names_in_order(ScanSettings(rules=first_come)) == ["w2", "w1", "w3", "w4"]


def test_a_fifo_priority_stores_no_credit_that_would_change() -> None:
    view = ScanWorld(TENANTS, QUEUED, settings=ScanSettings(rules=(QueueRule(FifoOrdering()),) * 7)).view()
    plan = scan_pass(view, NOW_S)
    assert plan.credit.tolist() == [0.0] * 4
    assert plan.scan_credit.min() > 0.0


def test_level_comes_before_credit_and_after_priority() -> None:
    queued = (
        Queued("w1", "modest", 0.0, {"any": 9}),
        Queued("w2", "modest", 9_000.0, {"any": 1}, attained_gpu_s=250.0),
        Queued("w3", "modest", 9_500.0, {"any": 1}),
        Queued("w4", "modest", 9_600.0, {"any": 1}, attained_gpu_s=150.0),
    )
    levels = ScanSettings(rules=(QueueRule(CreditOrdering(), AttainedService((100.0, 200.0))),) * 7)
    assert names_in_order(levels, queued) == ["w3", "w4", "w2", "w1"]
    assert names_in_order(ScanSettings(), queued) == ["w2", "w3", "w4", "w1"]


def test_many_levels_do_not_wrap_around() -> None:
    level = np.array([32_767, 0, 12_000, 32_767], dtype=np.int16)
    priority = np.array([0, 6, 6, 6], dtype=np.int8)
    assert total_order(priority, level, np.zeros(4)).tolist() == [0, 1, 2, 3]
    assert total_order(priority[::-1].copy(), level[::-1].copy(), np.zeros(4)).tolist() == [3, 2, 1, 0]


def test_there_is_one_rule_per_priority() -> None:
    with pytest.raises(ValueError, match="7 rules"):
        ScanSettings(rules=(QueueRule(),))


def test_what_only_an_oracle_knows_is_never_given_to_a_service() -> None:
    with pytest.raises(OracleNeeded, match="shortest_remaining needs to know how long"):
        names_in_order(ScanSettings(rules=(QueueRule(ShortestRemaining()),) * 7))


@dataclass(frozen=True)
class Undecided:
    """A policy gone wrong."""

    name: str = "undecided"
    needs: Knowledge = Knowledge.LIVE

    def ordering_credit(self, queue: OrderingInput[Numbers]) -> Numbers:
        return queue.constant(math.nan)


def test_a_policy_without_an_answer_is_refused() -> None:
    with pytest.raises(ValueError, match="the ordering policy undecided gave an entry no finite"):
        names_in_order(ScanSettings(rules=(QueueRule(Undecided()),) * 7))


def test_every_policy_is_one_file_that_says_what_it_does_and_is_registered_under_its_name() -> None:
    modules = {info.name for info in pkgutil.iter_modules(ordering.__path__)} - {"policy", "total_order"}
    assert modules == set(ORDERINGS)
    for name, policy in ORDERINGS.items():
        assert policy.name == name
        text = importlib.import_module(f"global_scheduler.ordering.{name}").__doc__ or ""
        for heading in ("Rule: ", "Invariant: ", "Ignores: ", "Fails when: ", "§"):
            assert heading in text, f"{name} does not say {heading}"
