"""Snapshot files: what is written is read again to the last bit, and what is wrong is named with its field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.problems import FormatError
from formats.snapshot_file import (
    dump_snapshot,
    packed_snapshot,
    parse_snapshot,
    read_snapshot,
    snapshot_document,
)
from tests.simulator.contract.test_snapshots import random_snapshot


@settings(max_examples=20)
@given(st.integers(0, 2**32))
def test_never_another_snapshot_than_was_written(seed: int) -> None:
    snapshot = random_snapshot(seed)
    assert parse_snapshot(dump_snapshot(snapshot)) == snapshot


@pytest.mark.parametrize("name", ["now.json", "now.json.gz"])
def test_files_are_packed_by_their_name(tmp_path: Path, name: str) -> None:
    snapshot = random_snapshot(3)
    (tmp_path / name).write_bytes(
        packed_snapshot(snapshot) if name.endswith(".gz") else dump_snapshot(snapshot).encode()
    )
    assert read_snapshot(tmp_path / name) == snapshot
    (tmp_path / "streamed").write_bytes(packed_snapshot(snapshot))
    assert read_snapshot(tmp_path / "streamed") == snapshot


def _document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(snapshot_document(random_snapshot(3))))
    assert document["queue"]
    assert document["running"]
    return document


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (("topmast_snapshot",), 2, "topmast_snapshot: must be 1, the version of the layout"),
        (("taken_s",), "noon", "taken_s: must be a number"),
        (("queue", 0, "state"), "RUNNING", r"queue\[0\].state: is RUNNING; one that waits is"),
        (("queue", 0, "state"), "RUNING", r"queue\[0\].state: is 'RUNING', which does not exist; did you mean"),
        (("running", 0, "region"), "mars", r"running\[0\].region: there is no region mars"),
        (("running", 0, "priority"), 7, r"running\[0\].priority: must be at most 6"),
        (("running", 0, "placements"), [], r"running\[0\].placements: is empty"),
        (("running", 0, "placements", 0, "machine"), "m9", r"placements\[0\].machine: there is no machine m9"),
        (("running", 0, "specification", "tenant"), "nobody", r"running\[0\]: tenant nobody is not among the tenants"),
        (("queue", 0, "submitted_s"), 1e12, r"queue\[0\]: is submitted after the snapshot was taken"),
        (("machine_states",), {"m9": "down"}, r"machine_states.m9: is not a machine of the fleet"),
        (("extra",), 1, "extra: is not a field that exists here"),
    ],
)
def test_what_is_wrong_is_named(path: tuple[str | int, ...], value: object, problem: str) -> None:
    document = _document()
    place: Any = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(FormatError, match=problem):
        parse_snapshot(json.dumps(document), "now.json")


def test_what_is_no_json_says_what_a_snapshot_is() -> None:
    with pytest.raises(FormatError, match=r"is no JSON: .*; a snapshot is what 'topmast snapshot save' wrote"):
        parse_snapshot("regions: []")
