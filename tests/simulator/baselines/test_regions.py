"""Where workloads go: early binding in three ways, and the search over all regions at once."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.fleet import Fleet
from domain.identifiers import GpuModel
from formats.trace import TraceRow
from simulator.baselines.federated import LeastLoaded
from simulator.engine.binding import Bindings
from simulator.policies.registry import policy_called
from tests.examples import examples
from tests.simulator.baselines.runs import FREE, one_machine, region_of, row, run

EAST_4_WEST_8 = Fleet((region_of("east", 4), region_of("west", 8)))
TWO_OF_4 = Fleet((region_of("east", 4), region_of("west", 4)))
TWO_OF_8 = Fleet((region_of("east", 8), region_of("west", 8)))
ROAMING = FREE.model_copy(update={"trace_regions_bind": False})
"""The regions of the trace merely say where a workload came from."""


def test_federated_binds_to_the_least_demand_over_supply() -> None:
    rows = [row(f"w{n}", n, 100, 2) for n in range(5)]
    # Demand over supply as each comes: 0 0 | 1/2 0 | 1/2 1/4 | 1/2 1/2 | 1 1/2.
    regions = run("federated", EAST_4_WEST_8, rows).regions
    assert regions == {"w0": "east", "w1": "west", "w2": "west", "w3": "east", "w4": "west"}


def test_federated_forgets_what_has_ended() -> None:
    rows = [row("w0", 0, 5, 4), row("w1", 1, 100, 4), row("w2", 10, 100, 4)]
    # When w2 comes, w0 is over: nothing is asked of east.
    assert run("federated", EAST_4_WEST_8, rows).regions == {"w0": "east", "w1": "west", "w2": "east"}


def test_federated_stays_where_it_is_bound_while_another_region_idles() -> None:
    rows = [row("short", 0, 10, 4), row("long", 1, 100, 4), row("bound", 2, 10, 4)]
    fleet = Fleet((region_of("east", 4), region_of("west", 4)))
    # Both regions have 4 of 4 asked for; the tie goes to east, which is free at 10.
    assert run("federated", fleet, rows).first_starts["bound"] == 10.0
    later = [row("long", 0, 100, 4), row("short", 1, 10, 4), row("bound", 2, 10, 4)]
    assert run("federated", fleet, later).first_starts["bound"] == 100.0
    assert run("mast", fleet, later).first_starts["bound"] == 11.0


def test_stale_federation_goes_by_what_was_asked_for_at_the_last_five_minutes() -> None:
    rows = [row(f"w{n}", 100.0 * n, 100_000, 1) for n in range(1, 8)]
    # w1 and w2 come before anything is known, w3 to w5 know w1 and w2 in east, w6 and w7 also those three in west.
    regions = run("federated_stale", TWO_OF_8, rows).regions
    assert regions == {"w1": "east", "w2": "east", "w3": "west", "w4": "west", "w5": "west", "w6": "east", "w7": "east"}
    # Exact information spreads them evenly.
    assert [*run("federated", TWO_OF_8, rows).regions.values()].count("east") == 4


def test_what_ends_is_known_to_stale_federation_with_the_next_five_minutes() -> None:
    rows = [row("w0", 0, 50, 4), row("w1", 10, 1_000, 2), row("w2", 299, 1_000, 1), row("w3", 300, 1_000, 1)]
    # Nothing is known of w0 and w1 at 299; at 300 w0 has ended, and w1 and w2 are in east.
    assert run("federated_stale", TWO_OF_8, rows).regions == {"w0": "east", "w1": "east", "w2": "east", "w3": "west"}


def test_federated_looks_at_the_model_that_is_asked_for() -> None:
    fleet = Fleet((region_of("east", 4, 4, gpu_model="V100"), region_of("west", 4, gpu_model="V100")))
    assert Bindings(fleet, LeastLoaded(), np.random.default_rng(1)).loads(GpuModel("A100")).supply_gpus.tolist() == [
        0,
        0,
    ]
    mixed = Fleet((region_of("east", 4), region_of("west", 4, gpu_model="A100"), region_of("north", 4)))
    rows = [row("a", 0, 9, 4, gpu_model="V100"), row("b", 0, 9, 4, gpu_model="V100"), row("c", 1, 9, 4)]
    assert run("federated", mixed, rows).regions == {"a": "east", "b": "north", "c": "west"}


def test_a_random_region_depends_on_the_seed_alone() -> None:
    rows = [row(f"w{n:02}", n, 10, 1) for n in range(40)]
    first = run("random_region", TWO_OF_4, rows, seed=1).regions
    assert first == run("random_region", TWO_OF_4, rows, seed=1).regions
    assert first != run("random_region", TWO_OF_4, rows, seed=2).regions
    assert set(first.values()) == {"east", "west"}


def test_a_random_region_is_one_that_can_host() -> None:
    rows = [row(f"w{n:02}", n, 10, 8, tasks=1) for n in range(12)]
    assert set(run("random_region", EAST_4_WEST_8, rows).regions.values()) == {"west"}


def test_own_region_stays_at_home() -> None:
    rows = [row("w0", 0, 100, 4, region="west"), row("w1", 1, 100, 4, region="west"), row("w2", 2, 100, 4)]
    done = run("own_region", TWO_OF_4, rows, settings=ROAMING)
    assert done.regions == {"w0": "west", "w1": "west", "w2": "east"}
    assert done.first_starts["w1"] == 100.0
    # MAST may use the other one, unless the trace binds.
    assert run("mast", TWO_OF_4, rows, settings=ROAMING).first_starts["w1"] == 1.0
    assert run("mast", TWO_OF_4, rows).first_starts["w1"] == 100.0


def test_own_region_goes_elsewhere_when_home_cannot_host_it() -> None:
    rows = [row("w0", 0, 10, 8, tasks=1, region="east"), row("w1", 0, 10, 1, region="nowhere")]
    assert run("own_region", EAST_4_WEST_8, rows, settings=ROAMING).regions == {"w0": "west", "w1": "east"}


def test_ideal_places_what_one_at_a_time_cannot() -> None:
    """MAST §4.1: it may place workload 1 in region Y and leave region X to workload 2."""
    rows = [row("w1", 0, 100, 4), row("w2", 0, 100, 4, region="east")]
    one_at_a_time = run("mast", TWO_OF_4, rows)
    assert one_at_a_time.first_starts == {"w1": 0.0, "w2": 100.0}
    jointly = run("ideal", TWO_OF_4, rows)
    assert jointly.first_starts == {"w1": 0.0, "w2": 0.0}
    assert jointly.regions == {"w1": "west", "w2": "east"}


def test_ideal_lets_nobody_give_way_to_many() -> None:
    rows = [row("w1", 0, 100, 4), *(row(f"x{n}", 0, 100, 1) for n in range(4))]
    starts = run("ideal", one_machine(4), rows).first_starts
    assert starts["w1"] == 0.0
    assert all(starts[f"x{n}"] == 100.0 for n in range(4))


def test_ideal_evicts_for_a_better_priority_like_mast() -> None:
    rows = [row("low", 0, 100, 4, tenant="b"), row("high", 10, 10, 4, tenant="a")]
    for policy in ("mast", "ideal"):
        done = run(policy, one_machine(4), rows, priorities={"a": 0, "b": 3})
        assert done.preemptions == [(10.0, "low", "high")]


_ASKS = st.lists(st.tuples(st.integers(1, 4), st.sampled_from([None, "east", "west", "north"])), min_size=2, max_size=6)


@given(_ASKS, st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(4, 4)))
@settings(max_examples=examples(60))
def test_never_does_the_joint_search_miss_a_better_set(
    asks: list[tuple[int, str | None]], sizes: tuple[int, int, int]
) -> None:
    names = ("east", "west", "north")
    capacity = dict(zip(names, sizes, strict=True))
    fleet = Fleet(tuple(region_of(name, gpus) for name, gpus in capacity.items()))
    rows = [
        row(f"w{n}", 0, 100, gpus, tasks=1, region=region if region and capacity[region] >= gpus else None)
        for n, (gpus, region) in enumerate(asks)
    ]
    starts = run("ideal", fleet, rows).first_starts
    placed = tuple(starts[r.workload_id] == 0.0 for r in rows)
    assert placed == _best_set(rows, capacity)


def _best_set(rows: list[TraceRow], capacity: dict[str, int]) -> tuple[bool, ...]:
    """By trying every assignment."""
    choices = [[None, *([r.region] if r.region else capacity)] for r in rows]
    best: tuple[bool, ...] = (False,) * len(rows)
    for assignment in product(*choices):
        held = {
            name: sum(r.gpus for r, where in zip(rows, assignment, strict=True) if where == name) for name in capacity
        }
        if all(held[name] <= capacity[name] for name in capacity):
            best = max(best, tuple(where is not None for where in assignment))
    return best


def test_policies_of_regions_are_mast_in_everything_else() -> None:
    mast = policy_called("mast")
    for name in ("federated", "random_region", "own_region", "ideal"):
        policy = policy_called(name)
        assert policy.scans
        assert type(policy.ordering) is type(mast.ordering)
        assert policy.levels == mast.levels
