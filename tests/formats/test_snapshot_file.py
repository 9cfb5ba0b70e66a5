"""Snapshot files: what is written is read again to the last bit, and what is wrong is named with its field."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.identifiers import GpuModel, JobName, TenantId
from domain.iteration_times import RanOn, Sums
from domain.snapshot import CompletedService
from formats.problems import FormatError
from formats.snapshot_file import (
    dump_snapshot,
    packed_snapshot,
    parse_snapshot,
    read_snapshot,
    snapshot_document,
)
from tests.examples import examples
from tests.simulator.contract.test_snapshots import random_snapshot


@settings(max_examples=examples(20))
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


def test_what_was_learnt_is_read_again() -> None:
    ran = RanOn(TenantId("a"), "vgg", JobName("train"), 2, 1, GpuModel("V100"), spread=True)
    learnt = replace(
        random_snapshot(3),
        completed_service=(CompletedService(TenantId("b"), 7.5), CompletedService(TenantId("a"), 0.1)),
        iteration_times=((ran._replace(spread=False), Sums(0.7, 2, 3.0)), (ran, Sums(0.7, 1, 2.0))),
    )
    assert parse_snapshot(dump_snapshot(learnt)) == learnt
    old = json.loads(dump_snapshot(learnt))
    del old["completed_service"], old["iteration_times"]
    assert parse_snapshot(json.dumps(old)) == random_snapshot(3)


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
        (("running", 0, "placements", 0, "job"), "nope", r"running\[0\].placements: w\d+ has no job nope"),
        (("running", 0, "placements", 0, "task"), 7, r"running\[0\].placements: task 0 of job main is a base task"),
        (
            ("running", 0, "placements", 0, "gpus"),
            [],
            r"running\[0\].placements: task 0 of job main needs \d GPUs, not 0",
        ),
        (("running", 0, "placements", 0, "millicpus"), 10**30, r"placements\[0\].millicpus: must be at most"),
        (
            ("running", 0, "dispatched_s"),
            1e9,
            r"running\[0\].dispatched_s: was dispatched after the snapshot was taken",
        ),
        (("running", 0, "started_s"), 1e9, r"running\[0\].started_s: started after the snapshot was taken"),
        (("running", 0, "started_s"), -1.0, r"running\[0\].started_s: must not be before its dispatch"),
        (("running", 0, "progress_at_start"), 1e9, r"running\[0\].progress_at_start: is 1000000000.0, more than"),
        (("running", 0, "attempt"), 10**12, r"running\[0\].attempt: must be at most"),
        (("running", 0, "level"), 10**9, r"running\[0\].level: must be at most 32767"),
        (("queue", 0, "queued_since_s"), 1e9, r"queue\[0\].queued_since_s: waits after the snapshot was taken"),
        (("queue", 0, "not_before_s"), 1e300, r"queue\[0\].not_before_s: must be at most 1000000000000.0"),
        (("completed_service", "tenant"), [0], "completed_service.tenant: has 1 elements, but gpu_s has 0; give both"),
        (
            ("completed_service",),
            {"tenants": ["a"], "tenant": [1], "gpu_s": [2.0]},
            "completed_service.tenant: has position 1, but there are 1 tenants",
        ),
        (("completed_service", "gpu_s"), [0.0], r"completed_service.gpu_s\[0\]: must be greater than 0"),
        (("use", 0, "end_s"), 1e9, r"use\[0\].end_s: ends after the snapshot was taken"),
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


def test_an_attempt_does_not_run_on_a_machine_that_is_down() -> None:
    document = _document()
    attempt = next(entry for entry in document["running"] if entry["state"] == "RUNNING")
    machine = attempt["placements"][0]["machine"]
    document["machine_states"] = {machine: "down"}
    path = rf"running\[{document['running'].index(attempt)}\].placements\[0\].machine"
    with pytest.raises(FormatError, match=rf"{path}: {machine} is down, and nothing runs there; say that"):
        parse_snapshot(json.dumps(document))


def test_an_attempt_does_not_leave_for_itself_nor_change_before_its_start() -> None:
    document = _document()
    attempt = next(entry for entry in document["running"] if entry["state"] == "RUNNING")
    attempt["changed"] = {"to_s": attempt["started_s"] - 1.0, "progress": 0.0, "gpu_s": 0.0}
    attempt["state"] = "PREEMPTING"
    by = {"by": attempt["workload"], "by_attempt": attempt["attempt"], "by_priority": 0, "by_level": 0}
    attempt["leaving"] = {"cause": "preempted", **by}
    with pytest.raises(FormatError) as refused:
        parse_snapshot(json.dumps(document))
    path = f"running[{document['running'].index(attempt)}]"
    assert [problem.field for problem in refused.value.problems] == [f"{path}.leaving.by", f"{path}.changed.to_s"]


def test_a_number_too_long_for_python_is_a_problem_of_the_file() -> None:
    text = json.dumps(_document()).replace('"attempt": 1', f'"attempt": {"1" * 5000}', 1)
    with pytest.raises(FormatError, match="is no JSON: Exceeds the limit"):
        parse_snapshot(text)


def test_what_is_no_json_says_what_a_snapshot_is() -> None:
    with pytest.raises(FormatError, match=r"is no JSON: .*; a snapshot is what 'topmast snapshot save' wrote"):
        parse_snapshot("regions: []")
