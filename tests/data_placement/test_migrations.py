"""Migrations: never without a complete copy, never over capacity, whatever fails and in whatever order reports come."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_placement.links import Links
from data_placement.migrations.bandwidth import share_out, transfers_of
from data_placement.migrations.decision import BeginCopy, BeginDeletion, GiveUp, Keep, Surroundings, Wait, decide
from data_placement.migrations.life_cycle import (
    TRANSITIONS,
    MigrationHappening,
    MigrationRefused,
    MigrationState,
    next_migration_state,
    states_before_migration,
)
from data_placement.migrations.migration import Migration, switch_problem
from data_placement.migrations.order import Relocation, order_of_moves
from data_placement.migrations.storage import Storage, stored_bytes
from domain.identifiers import RegionId, TableId
from domain.table import Table
from tests.data_placement.migration_worlds import MigrationWorld
from tests.examples import examples

A, B, C = RegionId("a"), RegionId("b"), RegionId("c")
REGIONS = [A, B, C]


def table(name: str, size: int, home: RegionId, *replicas: RegionId) -> Table:
    return Table(TableId(name), size, home, replicas)


def world(
    *tables: Table, capacity: Mapping[RegionId, float] | None = None, links: Links | None = None
) -> MigrationWorld:
    return MigrationWorld({each.table: each for each in tables}, dict(capacity or {}), list(REGIONS), links or Links())


def move(number: int, name: str, leaves: RegionId, target: RegionId, size: int = 10) -> Migration:
    return Migration(number, TableId(name), size, target, leaves)


class HomeMove(TypedDict):
    leaves: RegionId | None
    keeps_old_copy: bool


def home_at_random(data: st.DataObject, home: RegionId) -> HomeMove:
    """What becomes of the home: it stays, it moves, or it moves and a copy stays."""
    moves, keeps = data.draw(st.sampled_from([(False, False), (True, False), (True, True)]), "home")
    return HomeMove(leaves=home if moves else None, keeps_old_copy=keeps)


def copy(number: int, name: str, target: RegionId, size: int = 10, **more: object) -> Migration:
    return replace(Migration(number, TableId(name), size, target, None), **more)  # type: ignore[arg-type]  # fields by name


def finish(world: MigrationWorld) -> None:
    """Carries everything out, one report after the other, until nothing changes."""
    for _ in range(1_000):
        before = dict(world.migrations)
        world.look()
        for number in sorted(world.migrations):
            world.progress(number, fails=False)
        world.now += 1.0
        if world.migrations == before:
            return
    raise AssertionError("migrations go on for ever")


def test_a_move_copies_switches_and_then_deletes() -> None:
    there = world(table("t", 10, A, C))
    there.enqueue(move(1, "t", A, B))
    states = []
    for _ in range(6):
        there.look()
        states.append(there.migrations[1].state.value)
        there.progress(1, fails=False)
        states.append(there.migrations[1].state.value)
    assert [state for state, _ in itertools.groupby(states)] == ["copying", "verifying", "switched", "deleting", "done"]
    assert there.tables[TableId("t")] == table("t", 10, B, C)
    assert sorted(where for _, where in there.complete) == [B, C]


def test_a_copy_ends_when_the_catalog_names_it() -> None:
    there = world(table("t", 10, A))
    there.enqueue(copy(1, "t", C))
    finish(there)
    assert there.migrations[1].state is MigrationState.SWITCHED
    assert there.migrations[1].ended
    assert there.tables[TableId("t")] == table("t", 10, A, C)


def test_a_move_to_a_replica_copies_nothing() -> None:
    there = world(table("t", 10, A, B), capacity={B: 10})
    there.enqueue(move(1, "t", A, B))
    (step,) = there.look()
    assert isinstance(step, BeginCopy)
    assert (step.copy_bytes, step.parts) == (0, ())
    finish(there)
    assert there.tables[TableId("t")] == table("t", 10, B)


def test_a_copy_that_is_behind_is_no_complete_one() -> None:
    behind = replace(table("t", 10, A, B), lags_s=((B, 60.0),))
    there = world(behind)
    there.regions = [A, B, C]
    there.enqueue(copy(1, "t", B))
    (step,) = there.look()
    assert isinstance(step, BeginCopy)
    assert (step.copy_bytes, [part.path for part in step.parts]) == (10, [(A, B)])
    finish(there)
    assert there.tables[TableId("t")] == table("t", 10, A, B)
    there = world(behind)
    there.enqueue(move(1, "t", A, B))
    (step,) = there.look()
    assert isinstance(step, BeginCopy)
    assert step.copy_bytes == 10
    finish(there)
    assert there.tables[TableId("t")] == table("t", 10, B)


def test_nothing_is_copied_from_a_copy_that_is_behind() -> None:
    there = world(replace(table("t", 10, A, B), lags_s=((B, 60.0),)))
    there.links = Links({(B, C): 1.0}, 0.0)
    there.enqueue(copy(1, "t", C))
    (step,) = there.look()
    assert isinstance(step, GiveUp)


def test_full_regions_exchange_tables_through_what_is_free() -> None:
    there = world(table("t", 10, A), table("u", 10, B), table("s", 3, A), capacity={A: 15, B: 20})
    there.enqueue(move(1, "t", A, B))
    there.enqueue(move(2, "u", B, A))
    finish(there)
    assert {each.table: each.home for each in there.tables.values()} == {"t": B, "u": A, "s": A}


def test_a_circle_of_full_regions_says_what_waits_for_what() -> None:
    there = world(table("t", 10, A), table("u", 10, B), capacity={A: 15, B: 15})
    there.enqueue(move(1, "t", A, B))
    there.enqueue(move(2, "u", B, A))
    finish(there)
    steps = {step.migration.number: step for step in there.steps()}
    assert all(isinstance(step, Wait) for step in steps.values())
    assert "5 bytes are missing, and it waits for u to leave" in steps[1].reason  # type: ignore[union-attr]  # it waits


def test_a_table_is_moved_once_at_a_time() -> None:
    there = world(table("t", 10, A))
    there.enqueue(copy(1, "t", C))
    there.enqueue(move(2, "t", A, B))
    begun, waits = there.look()[::-1]
    assert isinstance(begun, BeginCopy)
    assert isinstance(waits, Wait)
    assert waits.reason == "migration 1 of the same table comes first"
    finish(there)
    assert there.tables[TableId("t")] == table("t", 10, B, C)


def test_a_dropped_table_and_a_lost_region_end_what_is_under_way() -> None:
    there = world(table("t", 10, A), table("u", 10, A))
    there.enqueue(move(1, "t", A, B))
    there.enqueue(move(2, "u", A, C))
    there.look()
    del there.tables[TableId("t")]
    there.regions.remove(C)
    finish(there)
    assert [each.state for each in there.migrations.values()] == [MigrationState.ABANDONED] * 2
    assert there.migrations[1].reason == "table t is not in the catalog any more"
    assert there.migrations[2].reason == "region c is not in the fleet any more"
    assert there.tables[TableId("u")].home == A
    assert (TableId("u"), A) in there.complete


def test_a_copy_from_a_region_that_is_gone_is_routed_anew() -> None:
    there = world(table("t", 10, A, C), links=Links({(A, B): 1.0}))
    there.enqueue(copy(1, "t", B))
    there.look()
    assert there.migrations[1].parts[0].path == (C, B)
    there.regions.remove(C)
    there.look()
    there.look()
    assert there.migrations[1].parts[0].path == (A, B)
    finish(there)
    assert there.migrations[1].state is MigrationState.SWITCHED


def test_what_fits_no_more_is_given_up_the_least_urgent_first() -> None:
    there = world(*(table(name, 10, A) for name in "tuv"), capacity={B: 30})
    for number, (name, priority) in enumerate(zip("tuv", (2, 0, 1), strict=True)):
        there.enqueue(copy(number, name, B, deadline_s=9.0, priority=priority))
    there.look()
    there.capacity[B] = 15
    steps = {step.migration.number: step for step in there.look()}
    assert all(isinstance(step, GiveUp) for step in steps.values())
    assert {number: step.reason for number, step in steps.items() if isinstance(step, GiveUp)} == {
        0: "region b stores 15 bytes at most by now: with what is there, and what is being copied to it, 15 bytes too many",
        2: "region b stores 15 bytes at most by now: with what is there, and what is being copied to it, 5 bytes too many",
    }
    there.look()
    assert there.migrations[1].state is MigrationState.COPYING
    finish(there)
    assert [there.migrations[number].state.value for number in range(3)] == ["abandoned", "switched", "abandoned"]


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_never_a_reservation_that_is_stuck_where_storage_was_made_less(data: st.DataObject) -> None:
    tables = [table(f"t{number}", data.draw(st.integers(1, 8)), REGIONS[number % 3]) for number in range(6)]
    there = world(*tables)
    there.capacity = {region: there.stored(region) + data.draw(st.integers(0, 30), "room") for region in REGIONS}
    for number, each in enumerate(tables):
        target = data.draw(st.sampled_from([region for region in REGIONS if region != each.home]), "target")
        there.enqueue(Migration(number, each.table, each.size_bytes, target, **home_at_random(data, each.home)))
    for _ in range(data.draw(st.integers(1, 12), "events")):
        happens_at_random(data, there)
    less = data.draw(st.sampled_from(REGIONS), "less")
    there.capacity[less] = data.draw(st.integers(0, int(there.capacity[less])), "capacity")
    there.now += 10_000.0
    there.look()
    for migration in there.migrations.values():
        if migration.state in (MigrationState.COPYING, MigrationState.VERIFYING, MigrationState.FAILED):
            free = Storage(there.capacity, stored_bytes(there.tables.values())).free_bytes(
                [other for other in there.migrations.values() if other.state not in _GIVES_BACK]
            )
            assert free[less] >= 0 or not migration.reserved().get(less)
    finish_with_pauses(there)
    for each in there.tables.values():
        assert any((each.table, region) in there.complete for region in each.regions)
    assert not any(each.reserved() for each in there.migrations.values() if not each.ended)


_GIVES_BACK = (MigrationState.WITHDRAWN, MigrationState.DELETING)


def test_tries_are_bounded_and_what_was_written_goes() -> None:
    there = world(table("t", 10, A))
    there.enqueue(move(1, "t", A, B))
    for _ in range(50):
        there.look()
        there.progress(1, fails=True)
        there.now += 60.0
    assert there.migrations[1].state is MigrationState.ABANDONED
    assert there.migrations[1].reason == "given up after 3 tries; the last: disk full"
    assert not there.partial


def test_a_copy_that_workloads_still_read_is_not_deleted() -> None:
    done = replace(move(1, "t", A, B), state=MigrationState.SWITCHED)
    there = {TableId("t"): table("t", 10, B)}
    around = Surroundings(0.0, there.get, REGIONS, Links(), Storage(), read_in=lambda _table, region: region == A)
    (step,) = decide([done], around)
    assert isinstance(step, Wait)
    (step,) = decide([done], replace(around, read_in=lambda _table, _region: False))
    assert isinstance(step, BeginDeletion)
    there[TableId("t")] = table("t", 10, B, A)
    (step,) = decide([done], around)
    assert isinstance(step, Keep)


def test_a_copy_that_nobody_waits_for_is_given_up_before_the_switch_only() -> None:
    there = world(table("t", 10, A))
    there.enqueue(copy(1, "t", B, on_demand=True, deadline_s=5.0))
    there.look()
    there.wanted = lambda _migration: False
    (step,) = there.look()
    assert isinstance(step, GiveUp)
    assert step.reason == "no workload waits for it any more"


def test_urgent_copies_begin_first_and_the_quota_of_the_day_holds() -> None:
    there = world(*(table(name, 10, A) for name in "tuv"))
    there.quota_left = 20.0
    there.enqueue(copy(1, "t", B))
    there.enqueue(copy(2, "u", B, deadline_s=50.0, priority=2))
    there.enqueue(copy(3, "v", B, deadline_s=90.0, priority=1))
    steps = there.look()
    assert [step.migration.number for step in steps] == [3, 2, 1]
    assert [type(step) for step in steps] == [BeginCopy, BeginCopy, Wait]
    assert steps[2].reason == "waits for tomorrow: 0 bytes may still be copied today"  # type: ignore[union-attr]  # it waits


def test_five_hundred_tables_over_one_link_all_arrive_the_urgent_ones_first_within_its_bandwidth() -> None:
    count, link = 500, 100.0
    names = [f"t{place:03d}" for place in range(count)]
    there = world(*(table(name, 10, A) for name in names), links=Links({(A, B): link}, 0.0), capacity={B: 10.0 * count})
    for place, name in enumerate(names):
        there.enqueue(copy(place + 1, name, B, deadline_s=50.0, priority=place % 3))
    begun: list[int] = []
    while any(migration.state is MigrationState.PLANNED for migration in there.migrations.values()):
        begun += [step.migration.priority for step in there.look() if isinstance(step, BeginCopy)]
        under_way = [each for each in there.migrations.values() if each.state is MigrationState.COPYING]
        assert 0 < len(under_way) <= count // 10
        assert sum(share_out(transfers_of(under_way), there.links).values()) == pytest.approx(link)
        for migration in under_way:
            there.progress(migration.number, fails=False)
            there.progress(migration.number, fails=False)
    assert begun == sorted(begun)
    assert len(begun) == count
    assert all(B in each.regions for each in there.tables.values())


def test_no_link_is_a_sentence() -> None:
    there = world(table("t", 10, A), links=Links(otherwise_bytes_per_s=0.0))
    there.enqueue(move(1, "t", A, B))
    (step,) = there.look()
    assert isinstance(step, GiveUp)
    assert step.reason == "no link with any bandwidth leads from a to b, neither directly nor over another region"


def test_every_row_of_the_table_of_states() -> None:
    for (state, happening), after in TRANSITIONS.items():
        assert next_migration_state(1, state, happening) is after
        assert state in states_before_migration(happening)
    with pytest.raises(MigrationRefused, match="migration 7 is done: 'verified' cannot happen to it"):
        next_migration_state(7, MigrationState.DONE, MigrationHappening.VERIFIED)


def test_what_a_switch_looks_at() -> None:
    each = move(1, "t", A, B)
    assert not switch_problem(table("t", 10, A), each)
    assert switch_problem(None, each) == "table t is not in the catalog any more"
    assert switch_problem(table("t", 10, C), each) == "the home of t is c by now, not a"
    assert switch_problem(table("t", 12, A), each) == "t has 12 bytes by now, not 10"


def brute_force(relocations: Sequence[Relocation], free: Mapping[RegionId, float]) -> int:
    """How many fit one after the other at most, by trying all orders."""
    best = 0
    for order in itertools.permutations(relocations):
        left, count = dict(free), 0
        for each in order:
            if each.needed_bytes > left[each.target]:
                continue
            left[each.target] -= each.needed_bytes
            if each.leaves is not None:
                left[each.leaves] += each.freed_bytes
            count += 1
        best = max(best, count)
    return best


relocations = st.builds(
    lambda target, hop, size: (REGIONS[target], REGIONS[(target + hop) % 3] if hop else None, size),
    st.integers(0, 2),
    st.integers(0, 2),
    st.integers(0, 5),
)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(relocations, max_size=6), st.tuples(*[st.integers(0, 6)] * 3))
def test_never_a_worse_order_than_by_trying_all(
    drawn: list[tuple[RegionId, RegionId | None, int]], room: tuple[int, ...]
) -> None:
    free = dict(zip(REGIONS, map(float, room), strict=True))
    moves = [Relocation(number, target, size, leaves, size) for number, (target, leaves, size) in enumerate(drawn)]
    found = order_of_moves(moves, free)
    assert len(found.order) == brute_force(moves, free)
    assert sorted([*found.order, *(each.number for each in found.waiting)]) == list(range(len(moves)))
    left = dict(free)
    for number in found.order:
        each = moves[number]
        left[each.target] -= each.needed_bytes
        assert left[each.target] >= 0
        if each.leaves is not None:
            left[each.leaves] += each.freed_bytes


@settings(max_examples=examples(80), deadline=None)
@given(st.data())
def test_never_without_a_complete_copy_and_never_over_capacity(data: st.DataObject) -> None:
    names = [TableId(f"t{index}") for index in range(data.draw(st.integers(1, 5), "tables"))]
    tables = [
        Table(
            name,
            data.draw(st.integers(0, 8), "size"),
            home := data.draw(st.sampled_from(REGIONS), "home"),
            tuple(sorted({*data.draw(st.lists(st.sampled_from(REGIONS), max_size=1), "replicas")} - {home})),
        )
        for name in names
    ]
    there = world(*tables)
    for region in REGIONS:
        if data.draw(st.booleans(), "limited"):
            there.capacity[region] = there.stored(region) + data.draw(st.integers(0, 10), "room")
    for number in range(data.draw(st.integers(1, 7), "migrations")):
        each = data.draw(st.sampled_from(tables), "table")
        target = data.draw(st.sampled_from([region for region in REGIONS if region != each.home]), "target")
        of_home = home_at_random(data, each.home)
        deadline = data.draw(st.sampled_from([None, 10.0, 20.0]), "deadline")
        there.enqueue(Migration(number, each.table, each.size_bytes, target, deadline_s=deadline, **of_home))
    for _ in range(data.draw(st.integers(5, 25), "events")):
        happens_at_random(data, there)
        check(there)
    there.now += 10_000.0
    finish_with_pauses(there)
    check(there)


def happens_at_random(data: st.DataObject, there: MigrationWorld) -> None:
    """One look, of which a part may be written only; a report; a failure; a crash; or a region or table goes."""
    event = data.draw(st.sampled_from(["look", "look", "part", "report", "report", "report", "fail", "crash", "lose"]))
    numbers = sorted(there.migrations)
    if event == "look":
        there.look()
    elif event == "part":
        steps = there.steps()
        for step in steps[: data.draw(st.integers(0, len(steps)))]:
            there.write(step)
    elif event in ("report", "fail"):
        there.progress(data.draw(st.sampled_from(numbers)), fails=event == "fail")
    elif event == "crash":
        there.crash(data.draw(st.sampled_from(numbers)))
    elif data.draw(st.booleans()) and len(there.tables) > 1:
        # A table is dropped: its copies are nobody's business any more.
        name = data.draw(st.sampled_from(sorted(there.tables)))
        del there.tables[name]
        for key in [key for key in there.complete if key[0] == name]:
            if not any(
                each.table == name and each.leaves == key[1] and not each.ended for each in there.migrations.values()
            ):
                del there.complete[key]
    there.now += 40.0


def check(there: MigrationWorld) -> None:
    for each in there.tables.values():
        for region in each.regions:
            assert there.complete.get((each.table, region)) == each.size_bytes, f"{region} has no complete {each.table}"
    for region, capacity in there.capacity.items():
        assert there.stored(region) <= capacity, f"{region} holds more than it can"


def finish_with_pauses(there: MigrationWorld) -> None:
    """To the end; every migration ends, or says why it waits."""
    for _ in range(40):
        there.look()
        for number in sorted(there.migrations):
            there.progress(number, fails=False)
        there.now += 10_000.0
    waits = {step.migration.number for step in there.steps() if isinstance(step, Wait)}
    assert {number for number, each in there.migrations.items() if not each.ended} == waits


def test_a_home_moves_and_its_old_copy_stays() -> None:
    there = world(table("t", 10, A), capacity={A: 10, B: 10})
    there.enqueue(replace(move(1, "t", A, B), keeps_old_copy=True))
    finish(there)
    assert there.tables[TableId("t")] == table("t", 10, B, A)
    assert there.complete == {(TableId("t"), A): 10, (TableId("t"), B): 10}
    assert there.migrations[1].state is MigrationState.SWITCHED
    assert there.migrations[1].reserved() == {}
