"""Where one more job goes."""

from __future__ import annotations

from cluster_manager.tuning.demand import GpuAmounts
from cluster_manager.tuning.mechanism import MachineRoom, Part
from cluster_manager.tuning.newcomers import tightest_place

FREE = [MachineRoom(4, 20_000, 100), MachineRoom(2, 9_000, 100), MachineRoom(2, 6_000, 100), MachineRoom(3, 3_000, 100)]


def test_the_machine_with_the_least_free_that_is_enough() -> None:
    assert tightest_place(2, GpuAmounts(3_000, 10), FREE) == (Part(2, 2),)
    assert tightest_place(2, GpuAmounts(4_000, 10), FREE) == (Part(1, 2),)
    assert tightest_place(2, GpuAmounts(5_000, 10), FREE) == (Part(0, 2),)
    assert tightest_place(3, GpuAmounts(1_000, 10), FREE) == (Part(3, 3),)


def test_the_fewest_machines_when_none_is_enough() -> None:
    assert tightest_place(6, GpuAmounts(3_000, 10), FREE) == (Part(0, 4), Part(2, 2))
    assert tightest_place(6, GpuAmounts(6_000, 10), FREE) is None
    assert tightest_place(1, GpuAmounts(1_000, 10), []) is None
