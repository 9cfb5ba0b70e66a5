"""Which mechanisms acted in a run, told from its log."""

from __future__ import annotations

import pytest

from services.demo.mechanisms import MECHANISMS, Record, every_mechanism, mechanisms_of

PLACED = [{"job": "main", "task": 0, "gpus": [0]}, {"job": "main", "task": 1, "gpus": [1]}]


def of(event: str, **details: object) -> Record:
    common = {"t": 1.0, "event": event, "workload": "w-1", "attempt": 1, "region": "east"}
    return {**common, **details}  # type: ignore[dict-item]  # what a log may hold


@pytest.mark.parametrize(
    ("record", "name", "sentence"),
    [
        (of("dispatched", virtual_cluster="ads"), "cells bound", "w-1#1 to cells of ads in east"),
        (of("tuned", speed=1.25), "CPUs retuned", "w-1#1 in east, now × 1.25 as fast as asked for"),
        (of("resized", placement=PLACED), "workers scaled", "w-1#1 in east to 2 tasks"),
        (of("loaned", machine="m", cluster="serving", reason="idle"), "machines lent", "m of serving: idle"),
        (of("reclaimed", machine="m", cluster="serving", reason="busy"), "machines reclaimed", "m of serving: busy"),
        (
            of("table_moved", table="clicks", source="west", kind="copy"),
            "tables moved",
            "clicks from west to east (copy)",
        ),
        (of("reserved", machines=["a", "b"]), "gangs reserved", "2 machines in east kept for w-1"),
        (of("evicted", cause="migrated", room_for="w-9"), "jobs moved together", "w-1#1 made room in east for w-9"),
        (
            of("evicted", cause="preempted", by="w-9", by_priority=0),
            "workloads preempted",
            "w-1#1 in east by w-9 of priority 0",
        ),
    ],
)
def test_each_mechanism_is_told_with_its_first_instance(record: Record, name: str, sentence: str) -> None:
    acted = mechanisms_of([record, record])
    assert {one: (found.count, found.first) for one, found in acted.items()} == {name: (2, sentence)}
    assert name in MECHANISMS


def test_a_mechanism_that_did_not_act_has_its_place_too() -> None:
    acted = every_mechanism([of("tuned", speed=1.25)])
    assert tuple(acted) == MECHANISMS
    assert {name for name, found in acted.items() if found.count} == {"CPUs retuned"}
    assert {
        "levels demoted",
        "cells bound",
        "CPUs retuned",
        "workers scaled",
        "machines lent",
        "machines reclaimed",
        "tables moved",
        "gangs reserved",
        "jobs moved together",
    } <= set(MECHANISMS)


def test_only_a_worse_level_of_the_same_priority_is_a_demotion() -> None:
    ranked = [(3, 0), (3, 0), (6, 2), (3, 1), (3, 0), (3, 2)]
    acted = mechanisms_of([of("ranked", priority=priority, level=level) for priority, level in ranked])
    assert {one: (found.count, found.first) for one, found in acted.items()} == {
        "levels demoted": (2, "w-1 from level 0 to 1 of priority 3")
    }


@pytest.mark.parametrize(
    "record",
    [of("dispatched"), of("evicted", cause="drained"), of("evicted", cause="migrated"), of("completed"), of("started")],
)
def test_what_shows_no_mechanism_is_left_out(record: Record) -> None:
    assert mechanisms_of([record]) == {}
