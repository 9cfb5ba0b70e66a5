"""What the inventory promises, one sentence per test, on regions small enough to count by hand."""

import pytest

from cluster_manager.capacity.errors import (
    GpuTaken,
    GrowsWhileLeaving,
    InvariantBroken,
    InventoryError,
    OverCommitted,
    UnexpectedHolding,
    UnknownMachine,
)
from cluster_manager.capacity.machine_entries import entries_of_placements
from cluster_manager.capacity.tables import MILLICPUS
from domain.fleet import Machine, MachineState
from domain.identifiers import MachineId
from domain.placement import AttemptKey, Holding
from domain.rank import Standing
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.region_releases import RegionRelease
from tests.cluster_manager.fleets import A100, cluster, cpu_machine, gpu_machine, hold, key_of, region, tasks_on

M0, M1 = MachineId("m0"), MachineId("m1")


def two_machines() -> RegionCapacity:
    return RegionCapacity(region(cluster("c", [gpu_machine("m0"), gpu_machine("m1")])))


def test_what_is_held_is_not_idle_until_it_is_released() -> None:
    inventory = two_machines()
    key = hold(inventory, "w", tasks_on("m0", [0, 1], cpus=24, memory_gib=256), tasks_on("m0", [5], cpus=0.5))
    assert inventory.idle(M0) == (5, 71_500, 768 * 1024)
    assert inventory.idle(M1) == (8, 96_000, 1024 * 1024)
    inventory.check()
    inventory.release(key)
    assert inventory.idle(M0) == (8, 96_000, 1024 * 1024)
    assert inventory.holdings() == ()
    inventory.check()


def test_what_a_plan_says_of_its_placements_counts_for_these_very_placements() -> None:
    cluster_capacity = two_machines().clusters[0]
    planned, equal = ((tasks_on("m0", [0, 1], cpus=1),) for _ in range(2))
    entries = entries_of_placements(planned, cluster_capacity.cluster, cluster_capacity.number_of)
    cluster_capacity.is_planned(planned, entries)
    cluster_capacity.hold(Holding(key_of("other"), Standing(0, 0), 0.0, (tasks_on("m1", [4]),)))
    cluster_capacity.hold(Holding(key_of("planned"), Standing(0, 0), 0.0, planned))
    assert cluster_capacity.entries_of(key_of("planned")) is entries
    cluster_capacity.release(key_of("planned"))
    cluster_capacity.hold(Holding(key_of("equal"), Standing(0, 0), 0.0, equal))
    assert cluster_capacity.entries_of(key_of("equal")) is not entries
    cluster_capacity.check()


def test_holdings_come_sorted_by_workload_and_attempt() -> None:
    inventory = two_machines()
    for name in ("w3", "w1", "w2"):
        hold(inventory, name, tasks_on("m0", cpus=1))
    assert [holding.key.workload for holding in inventory.holdings()] == ["w1", "w2", "w3"]


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (tasks_on("m0", cpus=90), "machine m0: 90000 thousandths of a CPU asked, 84000 there"),
        (tasks_on("m0", memory_gib=1000), "machine m0: 1024000 MiB of memory asked, 917504 there"),
        (tasks_on("m0", range(8)), "machine m0: 8 GPUs asked, 7 there"),
    ],
)
def test_more_than_there_is_is_refused_with_the_numbers(asked: object, sentence: str) -> None:
    inventory = two_machines()
    hold(inventory, "first", tasks_on("m0", [3], cpus=12, memory_gib=128))
    with pytest.raises(OverCommitted, match=sentence):
        hold(inventory, "second", asked)  # type: ignore[arg-type]  # pytest hands parameters over untyped
    assert inventory.holding(key_of("second")) is None
    inventory.check()


def test_a_gpu_that_stays_held_is_refused() -> None:
    inventory = two_machines()
    hold(inventory, "first", tasks_on("m0", [3]))
    with pytest.raises(GpuTaken, match="machine m0: GPU 3 is held by an attempt that stays"):
        hold(inventory, "second", tasks_on("m0", [2, 3]))
    inventory.check()


def test_gpus_that_do_not_exist_or_are_asked_for_twice_are_refused() -> None:
    inventory = RegionCapacity(region(cluster("c", [gpu_machine("m0", gpus=2)])))
    for gpus in ([2], [-1], [62], [1, 1]):
        with pytest.raises(GpuTaken):
            hold(inventory, "w", tasks_on("m0", gpus))
    with pytest.raises(GpuTaken):
        hold(inventory, "w", tasks_on("m0", [0]), tasks_on("m0", [0]))
    inventory.check()


def test_a_newcomer_may_be_charged_on_what_its_victim_has_yet_to_leave() -> None:
    inventory = two_machines()
    victim = hold(inventory, "victim", tasks_on("m0", range(8), cpus=96))
    with pytest.raises(OverCommitted):
        hold(inventory, "newcomer", tasks_on("m0", range(6), cpus=72), priority=0)
    inventory.begin_eviction(victim)
    hold(inventory, "newcomer", tasks_on("m0", range(6), cpus=72), priority=0)
    assert inventory.idle(M0)[:2] == (0, 0)  # the other two GPUs are reserved too, until the victim has left
    inventory.check()
    inventory.release(victim)
    assert inventory.idle(M0)[:2] == (2, 24_000)
    inventory.check()


def test_two_newcomers_cannot_be_charged_on_the_same_leaving_capacity() -> None:
    inventory = two_machines()
    inventory.begin_eviction(hold(inventory, "victim", tasks_on("m0", range(8))))
    hold(inventory, "first", tasks_on("m0", range(6)), priority=0)
    with pytest.raises(OverCommitted, match="3 GPUs asked, 2 there"):
        hold(inventory, "second", tasks_on("m0", [5, 6, 7]), priority=0)
    with pytest.raises(GpuTaken):
        hold(inventory, "second", tasks_on("m0", [5, 6]), priority=0)
    hold(inventory, "second", tasks_on("m0", [6, 7]), priority=0)
    inventory.check()


def test_unknown_names_and_attempts_are_refused() -> None:
    inventory = two_machines()
    with pytest.raises(UnknownMachine, match="nowhere"):
        hold(inventory, "w", tasks_on("nowhere"))
    with pytest.raises(UnknownMachine, match="is in cluster c, not in other"):
        hold(inventory, "w", tasks_on("m0", cluster_name="other"))
    with pytest.raises(UnknownMachine):
        RegionCapacity(region(cluster("c", [gpu_machine("m0")])), {M1: MachineState.DOWN})
    key = hold(inventory, "w", tasks_on("m0", [0]))
    with pytest.raises(UnexpectedHolding, match="is held already"):
        hold(inventory, "w", tasks_on("m1", [0]))
    inventory.release(key)
    for change in (inventory.release, inventory.begin_eviction, inventory.is_leaving):
        with pytest.raises(UnexpectedHolding, match="attempt 1 of workload w: holds nothing here"):
            change(key)
    inventory.check()


def test_priorities_beyond_the_scale_are_refused() -> None:
    inventory = two_machines()
    with pytest.raises(ValueError, match="priority 7"):
        hold(inventory, "w", tasks_on("m0"), priority=7)
    key = hold(inventory, "w", tasks_on("m0"))
    with pytest.raises(ValueError, match="priority -1"):
        inventory.set_standing(key, Standing(-1, 0))


def test_impossible_machines_are_refused() -> None:
    for machine in (
        gpu_machine("m", gpus=63),
        Machine(MachineId("m"), A100, -1, 1.0, 1.0),
        cpu_machine("m", cpus=-1.0),
        cpu_machine("m", memory_gib=1e30),
    ):
        with pytest.raises(ValueError, match="machine m has"):
            RegionCapacity(region(cluster("c", [machine])))
    with pytest.raises(ValueError, match="same name"):
        RegionCapacity(region(cluster("c", [gpu_machine("m"), gpu_machine("m")])))


def test_62_gpus_of_one_machine_can_be_held_and_released() -> None:
    inventory = RegionCapacity(region(cluster("c", [gpu_machine("m0", gpus=62)])))
    key = hold(inventory, "w", tasks_on("m0", range(62)))
    inventory.check()
    assert inventory.idle(M0)[0] == 0
    inventory.release(key)
    assert inventory.idle(M0)[0] == 62
    inventory.check()


def test_a_machine_that_is_not_up_keeps_what_it_holds_and_gives_nothing_plannable() -> None:
    inventory = two_machines()
    key = hold(inventory, "w2", tasks_on("m0", [0]), tasks_on("m1", [0]))
    other = hold(inventory, "w1", tasks_on("m0", [1]))
    assert inventory.set_machine_state(M0, MachineState.DRAINING) == (other, key)
    assert inventory.machine_state(M0) is MachineState.DRAINING
    inventory.check()
    inventory.release(key)
    assert inventory.set_machine_state(M0, MachineState.DOWN) == (other,)
    inventory.release(other)
    assert inventory.set_machine_state(M0, MachineState.UP) == ()
    assert inventory.idle(M0)[0] == 8
    inventory.check()


def test_placements_are_replaced_at_once_or_not_at_all() -> None:
    inventory = two_machines()
    key = hold(inventory, "w", tasks_on("m0", range(4), cpus=48))
    hold(inventory, "other", tasks_on("m0", [4], cpus=24))
    with pytest.raises(OverCommitted, match="73000 thousandths of a CPU asked, 72000 there"):
        inventory.replace_placements(key, (tasks_on("m0", range(4), cpus=73),))
    with pytest.raises(GpuTaken, match="GPU 4"):
        inventory.replace_placements(key, (tasks_on("m0", range(5), cpus=48),))
    assert inventory.idle(M0)[:2] == (3, 24_000)
    inventory.check()
    inventory.replace_placements(key, (tasks_on("m0", range(2), cpus=72), tasks_on("m1", [7])))
    assert inventory.idle(M0)[:2] == (5, 0)
    assert inventory.idle(M1)[0] == 7
    inventory.check()


def test_an_attempt_that_is_leaving_may_shrink_but_gets_nothing_new() -> None:
    inventory = two_machines()
    victim = hold(inventory, "victim", tasks_on("m0", range(8), cpus=96))
    inventory.begin_eviction(victim)
    hold(inventory, "newcomer", tasks_on("m0", range(8), cpus=96), priority=0)
    inventory.replace_placements(victim, (tasks_on("m0", range(4), cpus=96),))
    for more in (tasks_on("m0", [4]), tasks_on("m0", [0], cpus=97), tasks_on("m1", [0])):
        with pytest.raises(GrowsWhileLeaving, match="attempt 1 of workload victim is leaving"):
            inventory.replace_placements(victim, (more,))
    inventory.check()


def test_what_was_done_tentatively_is_undone_in_every_particular() -> None:
    inventory = two_machines()
    stays = hold(inventory, "stays", tasks_on("m0", range(4)))
    leaves = hold(inventory, "leaves", tasks_on("m0", range(4, 8)))
    before = inventory.holdings()
    with inventory.tentatively():
        inventory.begin_eviction(leaves)
        hold(inventory, "newcomer", tasks_on("m0", range(4, 8)), priority=0)
        with inventory.tentatively():
            inventory.release(leaves)
            inventory.set_standing(stays, Standing(0, 0))
            inventory.set_machine_state(M1, MachineState.DOWN)
        assert inventory.machine_state(M1) is MachineState.UP
        assert inventory.is_leaving(leaves)
        inventory.replace_placements(stays, (tasks_on("m1", [0]),))
        inventory.check()
    assert inventory.holdings() == before
    assert not inventory.is_leaving(leaves)
    inventory.check()


def test_what_was_done_tentatively_is_undone_after_an_exception() -> None:
    inventory = two_machines()

    def hold_twice() -> None:
        with inventory.tentatively():
            hold(inventory, "w", tasks_on("m0", [0]))
            hold(inventory, "w", tasks_on("m0", [1]))

    with pytest.raises(InventoryError):
        hold_twice()
    assert inventory.holdings() == ()
    inventory.check()


class Listener:
    """Writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[list[int], list[int], Standing | None, Standing | None]] = []

    @property
    def listens(self) -> bool:
        return True

    def capacity_released(self, release: RegionRelease) -> None:
        growth = release.released
        cpus = growth.amounts[:, MILLICPUS].tolist()
        self.heard.append((growth.machines.tolist(), cpus, growth.from_standing, growth.below_standing))


def listened_to(inventory: RegionCapacity) -> Listener:
    listener = Listener()
    inventory.watch(listener)
    return listener


def test_watchers_hear_for_whom_there_is_more_room() -> None:
    inventory = two_machines()
    listener = listened_to(inventory)
    key = hold(inventory, "w", tasks_on("m1", cpus=5), priority=3)
    inventory.set_standing(key, Standing(2, 0))
    assert listener.heard == []
    inventory.set_standing(key, Standing(5, 0))
    inventory.release(key)
    leaving = hold(inventory, "v", tasks_on("m0", cpus=7), priority=3)
    inventory.begin_eviction(leaving)
    inventory.release(leaving)
    inventory.set_machine_state(M0, MachineState.DRAINING)
    inventory.set_machine_state(M0, MachineState.UP)
    assert listener.heard == [
        ([1], [5_000], Standing(2, 0), Standing(5, 0)),  # evictable by a few more now
        ([1], [5_000], Standing(5, 0), None),  # gone: nothing new for those who could have evicted it
        ([0], [7_000], None, None),  # its capacity counted for nobody while it was leaving
        ([0], [96_000], None, None),
    ]


def test_watchers_hear_nothing_of_what_is_tentative() -> None:
    inventory = two_machines()
    key = hold(inventory, "w", tasks_on("m0", [0]))
    listener = listened_to(inventory)
    with inventory.tentatively():
        inventory.release(key)
        hold(inventory, "v", tasks_on("m0", [0]))
    assert listener.heard == []


@pytest.mark.breaks_capacity
def test_the_check_finds_arrays_that_disagree_with_what_is_held() -> None:
    inventory = two_machines()
    key = hold(inventory, "w", tasks_on("m0", [0], cpus=1))
    arrays = inventory.clusters[0].arrays
    for array in (
        arrays.state,
        arrays.leaving,
        arrays.free_gpus,
        arrays.holders,
        arrays.rack_free,
        arrays.totals,
    ):
        array.flat[0] += 1
        with pytest.raises(InvariantBroken):
            inventory.check()
        array.flat[0] -= 1
    inventory.check()
    live = inventory.clusters[0]._attempts.by_key[key]
    live.holding = Holding(AttemptKey(key.workload, key.attempt), Standing(5, 0), 0.0, live.holding.placements)
    with pytest.raises(InvariantBroken):
        inventory.check()


def test_rows_and_entries_of_ended_attempts_are_used_again() -> None:
    inventory = RegionCapacity(region(cluster("c", [cpu_machine(f"m{number}") for number in range(40)])))
    everywhere = tuple(tasks_on(f"m{number}", cpus=0.01) for number in range(40))
    for name in range(300):
        hold(inventory, f"w{name}", *everywhere)
        if name >= 100:
            inventory.release(key_of(f"w{name - 100}"))
    inventory.check()
    assert len(inventory.holdings()) == 100
    assert len(inventory.clusters[0].attempts.rows) == 128
    assert len(inventory.clusters[0].attempts.entries) <= 4 * 100 * 40
