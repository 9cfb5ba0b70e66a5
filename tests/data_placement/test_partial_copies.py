"""Copies of the newest partitions alone: what they bring, what they take, and how they become complete."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from data_placement.catalog import Catalog
from data_placement.links import Links
from data_placement.migrations.decision import BeginCopy, GiveUp, Wait
from data_placement.migrations.life_cycle import MigrationState
from data_placement.migrations.migration import Migration
from data_placement.migrations.storage import stored_bytes
from data_placement.move_kinds import COPY
from data_placement.objective.goals import V2
from data_placement.on_demand import (
    AwaitingWorkload,
    Chosen,
    DataSurroundings,
    PossibleRegion,
    choose_copies,
    on_the_way,
)
from data_placement.placement_plan import plan_placement
from data_placement.plan_document import proposed_moves
from data_placement.replicas import ReplicaPolicy
from data_placement.solvers.hill_climbing import HillClimbing
from data_placement.solvers.plan import MoveLimits
from domain.identifiers import RegionId, TableId, WorkloadId
from domain.table import Table
from domain.table_partitions import TablePartition, TablePartitions
from domain.workload import TableInput
from tests.data_placement.migration_worlds import MigrationWorld
from tests.data_placement.warehouses import small_warehouse
from tests.examples import examples

A, B, C = RegionId("a"), RegionId("b"), RegionId("c")
REGIONS = [A, B, C]
T = TableId("t")


def partitions(*sizes: int, held: dict[RegionId, frozenset[str]] | None = None) -> TablePartitions:
    """p0 is the newest."""
    return TablePartitions(tuple(TablePartition(f"p{place}", size) for place, size in enumerate(sizes)), held or {})


def world(*sizes: int, capacity: dict[RegionId, float] | None = None, **more: object) -> MigrationWorld:
    """A table at home in A, of partitions of these sizes."""
    table = replace(Table(T, sum(sizes), A), **more)  # type: ignore[arg-type]  # fields by name
    return MigrationWorld({T: table}, capacity or {}, list(REGIONS), partitions={T: partitions(*sizes)})


def copy_of_newest(number: int, newest: int | None, target: RegionId, size: int) -> Migration:
    return Migration(number, T, size, target, None, newest_partitions=newest)


def to_the_end(there: MigrationWorld) -> None:
    for _ in range(30):
        there.look()
        for number in sorted(there.migrations):
            there.progress(number, fails=False)
        there.now += 10_000.0


def test_the_newest_are_copied_and_then_the_rest() -> None:
    there = world(1, 2, 4, 8, capacity={B: 15})
    there.enqueue(copy_of_newest(1, 2, B, 15))
    (step,) = there.look()
    assert isinstance(step, BeginCopy)
    assert (step.copy_bytes, step.partitions, sum(part.bytes for part in step.parts)) == (3, ("p0", "p1"), 3)
    to_the_end(there)
    assert there.tables[T] == Table(T, 15, A, newest_held=((B, 2),))
    assert stored_bytes(there.tables.values(), there.partitions) == {A: 15, B: 3}
    there.enqueue(copy_of_newest(2, None, B, 15))
    (step,) = there.look()
    assert isinstance(step, BeginCopy)
    assert (step.copy_bytes, step.partitions) == (12, ())
    to_the_end(there)
    assert there.tables[T] == Table(T, 15, A, (B,))
    assert stored_bytes(there.tables.values(), there.partitions) == {A: 15, B: 15}


def test_a_copy_of_all_partitions_is_a_complete_one() -> None:
    there = world(1, 2)
    there.enqueue(copy_of_newest(1, 5, B, 3))
    to_the_end(there)
    assert there.tables[T] == Table(T, 3, A, (B,))


def test_a_copy_that_is_behind_takes_what_it_lacks() -> None:
    there = world(1, 2, 4, capacity={B: 7}, replicas=(B,), lags_s=((B, 60.0),))
    there.partitions[T] = partitions(1, 2, 4, held={B: frozenset({"p2", "p1"})})
    assert stored_bytes(there.tables.values(), there.partitions) == {A: 7, B: 6}
    # Asked for the newest alone, it is brought up to date all the same.
    there.enqueue(copy_of_newest(1, 1, B, 7))
    (step,) = there.look()
    assert isinstance(step, BeginCopy)
    assert (step.copy_bytes, step.partitions) == (1, ())
    to_the_end(there)
    assert there.tables[T] == Table(T, 7, A, (B,))


def test_a_home_moves_to_where_a_part_is_and_takes_the_rest() -> None:
    there = world(1, 2, 4, capacity={B: 7}, newest_held=((B, 1),))
    there.partitions[T] = partitions(1, 2, 4, held={B: frozenset({"p0"})})
    there.held[T, B] = frozenset({"p0"})
    there.enqueue(Migration(1, T, 7, B, A))
    (step,) = there.look()
    assert isinstance(step, BeginCopy)
    assert step.copy_bytes == 6
    to_the_end(there)
    assert there.tables[T] == Table(T, 7, B)
    assert (T, A) not in there.complete


def test_nothing_is_copied_from_a_part_and_what_is_held_is_not_copied_again() -> None:
    there = world(1, 2, newest_held=((B, 1),))
    there.partitions[T] = partitions(1, 2, held={B: frozenset({"p0"})})
    there.links = Links({(B, C): 1.0}, 0.0)
    there.enqueue(copy_of_newest(1, 1, C, 3))
    there.enqueue(copy_of_newest(2, 1, B, 3))
    held, unreachable = sorted(there.look(), key=lambda step: -step.migration.number)
    assert isinstance(unreachable, GiveUp)
    assert isinstance(held, GiveUp)
    assert held.reason == "b holds the 1 newest partitions of t already"


def test_a_table_that_grew_meanwhile_is_copied_again() -> None:
    there = world(1, 2)
    there.enqueue(copy_of_newest(1, 1, B, 3))
    there.look()
    there.progress(1, fails=False)
    there.tables[T] = replace(there.tables[T], size_bytes=8)
    there.complete[T, A] = 8
    there.partitions[T] = TablePartitions((TablePartition("p9", 5), *partitions(1, 2).newest_first))
    to_the_end(there)
    assert there.migrations[1].partitions == ("p9",)
    assert there.tables[T].newest_held == ((B, 1),)


def test_a_directory_answers_by_what_is_read() -> None:
    known = Catalog([Table(T, 10, A, (C,), newest_held=((B, 3),))])
    assert known.missing_tables(B, [TableInput(T, newest_partitions=3)]) == ()
    assert known.missing_tables(B, [TableInput(T, newest_partitions=4)]) == (T,)
    assert known.missing_tables(B, [TableInput(T)]) == (T,)
    assert known.missing_tables(B, [TableInput(T, fresh=True, newest_partitions=1)]) == (T,)
    assert known.regions_holding(TableInput(T, max_age_s=0.0, newest_partitions=1)) == (A, C, B)
    known.enter(T, 10, A, (C,))
    assert known.missing_tables(B, [TableInput(T, newest_partitions=1)]) == (T,)


def choice(newest: int | None, *migrations: Migration, free: float = 100.0) -> Chosen:
    table = Table(T, 15, A)
    catalog, parts = Catalog([table]), partitions(1, 2, 4, 8)
    waiting = AwaitingWorkload(WorkloadId("w"), 0, (TableInput(T, newest_partitions=newest),), (PossibleRegion(B),))
    around = DataSurroundings(
        0.0,
        catalog.table,
        catalog.regions_holding,
        REGIONS,
        Links(),
        {B: free},
        on_the_way(migrations),
        lambda _table: parts,
    )
    (found,) = choose_copies([waiting], around)
    assert isinstance(found, Chosen), found
    return found


def test_workloads_get_the_partitions_that_they_read() -> None:
    (copy,) = choice(2, free=3.0).copies
    assert (copy.size_bytes, copy.newest_partitions) == (3, 2)
    (copy,) = choice(None).copies
    assert (copy.size_bytes, copy.newest_partitions) == (15, None)
    assert not choice(2, copy_of_newest(1, 3, B, 15)).copies
    (copy,) = choice(4, copy_of_newest(1, 3, B, 15)).copies
    assert copy.newest_partitions == 4
    # More than what is just being copied can be asked for when that is there.
    assert not choice(4, replace(copy_of_newest(1, 3, B, 15), state=MigrationState.COPYING)).copies


def test_a_plan_proposes_the_parts_that_jobs_read() -> None:
    warehouse = small_warehouse(11, tables=12, jobs=14, roomy=True)
    shares = np.random.default_rng(1).uniform(0.1, 0.6, len(warehouse.jobs.tables))
    warehouse = replace(warehouse, jobs=replace(warehouse.jobs, newest_share=shares))
    policy = ReplicaPolicy(against_disasters=False, hot_storage_share=0.0, partitions=True)
    found = plan_placement(warehouse, V2, HillClimbing(), MoveLimits(), policy, np.random.default_rng(1))
    proposed = [move for move in proposed_moves(warehouse, found) if move.newest_share is not None]
    assert proposed
    names, tables, parts = warehouse.regions.names, list(warehouse.tables.names), found.replicas.parts
    assert parts is not None
    assert len(proposed) == (parts.held > 0.0).sum()
    for move in proposed:
        place, region = tables.index(move.table), names.index(move.target)
        share = move.newest_share or 0.0
        assert (move.kind, share) == (COPY, parts.held[place, region])
        assert move.size_bytes == math.ceil(share * int(warehouse.tables.size_bytes[place]))
        assert found.solution.home[place] != region
        assert not found.replicas.masks[place] >> region & 1


def test_a_share_is_the_least_number_of_partitions() -> None:
    parts = partitions(1, 2, 4, 3)
    assert [parts.newest_of_share(share) for share in (0.05, 0.1, 0.3, 0.31, 1.0)] == [1, 1, 2, 3, 4]


@settings(max_examples=examples(80), deadline=None)
@given(st.data())
def test_never_without_a_complete_copy_and_never_over_capacity(data: st.DataObject) -> None:
    sizes = {
        TableId(f"t{number}"): data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=4), "sizes")
        for number in range(data.draw(st.integers(1, 3), "tables"))
    }
    tables = {name: Table(name, sum(each), data.draw(st.sampled_from(REGIONS), "home")) for name, each in sizes.items()}
    there = MigrationWorld(
        tables, {}, list(REGIONS), partitions={name: partitions(*each) for name, each in sizes.items()}
    )
    for region in REGIONS:
        if data.draw(st.booleans(), "limited"):
            there.capacity[region] = there.stored(region) + data.draw(st.integers(0, 8), "room")
    for number in range(data.draw(st.integers(1, 7), "migrations")):
        each = data.draw(st.sampled_from(sorted(tables.values(), key=lambda table: table.table)), "table")
        target = data.draw(st.sampled_from([region for region in REGIONS if region != each.home]), "target")
        leaves = data.draw(st.sampled_from([None, None, each.home]), "leaves")
        newest = None if leaves else data.draw(st.sampled_from([None, 1, 2, 3]), "newest")
        there.enqueue(Migration(number, each.table, each.size_bytes, target, leaves, newest_partitions=newest))
    for _ in range(data.draw(st.integers(5, 25), "events")):
        event = data.draw(st.sampled_from(["look", "look", "report", "report", "report", "fail", "crash"]))
        number = data.draw(st.sampled_from(sorted(there.migrations)))
        if event == "look":
            there.look()
        elif event == "crash":
            there.crash(number)
        else:
            there.progress(number, fails=event == "fail")
        there.now += 40.0
        check(there)
    to_the_end(there)
    check(there)
    waits = {step.migration.number for step in there.steps() if isinstance(step, Wait)}
    assert {number for number, each in there.migrations.items() if not each.ended} == waits


def check(there: MigrationWorld) -> None:
    for each in there.tables.values():
        for region in each.regions:
            assert there.complete.get((each.table, region)) == each.size_bytes, f"{region} has no complete {each.table}"
        for region, count in each.newest_held:
            newest = {partition.name for partition in there.partitions[each.table].newest(count)}
            assert newest <= there.held[each.table, region], f"{region} lacks newest partitions of {each.table}"
    for region, capacity in there.capacity.items():
        assert there.stored(region) <= capacity, f"{region} holds more than it can"
    said = stored_bytes(there.tables.values(), there.partitions)
    for region in REGIONS:
        writing = sum(size for where, size in there.partial.values() if where == region)
        leaving = sum(
            size
            for (name, where), size in there.complete.items()
            if where == region and where not in there.tables[name].regions
        )
        assert said.get(region, 0) == there.stored(region) - writing - leaving
