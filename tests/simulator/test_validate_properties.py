"""Random legal logs are valid; any one lie in them is found; nothing that a log may hold makes the validator raise."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.events import EventKind, JsonValue
from domain.resources import Quota
from simulator.validate import validate
from simulator.validation.report import Invariant
from tests.examples import examples
from tests.simulator.log_builder import FLEET, TABLES, TENANTS, Json, entries
from tests.simulator.mutations import MUTATIONS
from tests.simulator.reference_run import legal_log

SEEDS = st.integers(0, 2**32)


@given(SEEDS, st.integers(1, 300))
@settings(deadline=None)
def test_never_accuses_a_legal_run(seed: int, steps: int) -> None:
    records = legal_log(seed, steps)
    report = validate(records, FLEET, TENANTS, tables=TABLES, complete=True)
    assert report.violations == 0, str(report)


@given(SEEDS, st.data())
@settings(deadline=None)
def test_never_accuses_the_beginning_of_a_legal_run(seed: int, data: st.DataObject) -> None:
    records = legal_log(seed, 150)
    cut = data.draw(st.integers(1, max(1, len(records))))
    report = validate(records[:cut], FLEET, TENANTS, tables=TABLES, complete=False)
    assert report.violations == 0, str(report)


def test_the_legal_runs_show_something() -> None:
    records = [record for seed in range(20) for record in legal_log(seed, 300)]
    kinds = {str(record["event"]) for record in records}
    assert kinds == {kind.value for kind in EventKind} - {
        "awaiting_data",
        "change_refused",
        "changed",
        "cluster_back",
        "cluster_lost",
        "cluster_reconciled",
        "downgraded",
        "held",
        "loan_short",
        "loaned",
        "machine_moved",
        "mechanism_failed",
        "promoted",
        "reclaimed",
        "released",
        "reservation_ended",
        "reserved",
        "restored",
        "run_ended",
        "table_moved",
        "invariant_broken",
    }
    causes = {record["cause"] for record in records if record["event"] == "evicted"}
    assert causes == {"preempted", "machine_lost", "drained"}


@pytest.mark.parametrize("name", MUTATIONS)
@given(SEEDS)
@settings(deadline=None, max_examples=examples(15))
def test_never_overlooks_a_single_lie(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    records = copy.deepcopy(legal_log(seed, 300))
    expected = MUTATIONS[name](records, rng)
    if expected is None:
        return
    report = validate(records, FLEET, TENANTS, tables=TABLES, complete=True)
    assert expected & set(report.violations_by_invariant), f"{name}: {report}"


def test_every_lie_can_be_told() -> None:
    for name, mutate in MUTATIONS.items():
        reported = [mutate(copy.deepcopy(legal_log(seed, 300)), np.random.default_rng(seed)) for seed in range(20)]
        assert any(found is not None for found in reported), name


@given(SEEDS)
@settings(deadline=None, max_examples=examples(30))
def test_never_overlooks_that_a_quota_was_not_there(seed: int) -> None:
    records = legal_log(seed, 200)
    within = any(
        record["event"] == "dispatched"
        and record["within_quota"]
        and any(entry["gpus"] for entry in entries(record["placement"]))
        for record in records
    )
    poor = [replace(tenant, quota=Quota()) for tenant in TENANTS]
    report = validate(records, FLEET, poor, tables=TABLES, complete=True)
    assert (Invariant.I4 in report.violations_by_invariant) == within


@given(SEEDS)
@settings(deadline=None, max_examples=examples(30))
def test_never_overlooks_that_a_table_was_not_there(seed: int) -> None:
    records = legal_log(seed, 200)
    readers = {record["workload"] for record in records if record["event"] == "submitted" and record["tables"]}
    dispatched = {record["workload"] for record in records if record["event"] == "dispatched"}
    report = validate(records, FLEET, TENANTS, complete=True)
    assert (Invariant.I3 in report.violations_by_invariant) == bool(readers & dispatched)


JSON: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.just(10**400),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=5), values, max_size=3),
    max_leaves=5,
)


@given(SEEDS, st.data())
@settings(deadline=None)
def test_never_raises_for_what_stands_in_a_record(seed: int, data: st.DataObject) -> None:
    records = copy.deepcopy(legal_log(seed % 1000, 60))
    for _ in range(data.draw(st.integers(1, 5))):
        record = records[data.draw(st.integers(0, len(records) - 1))]
        target: Json = record
        placement = record.get("placement")
        if isinstance(placement, list) and placement and isinstance(placement[0], dict) and data.draw(st.booleans()):
            target = placement[0]
        key = data.draw(st.sampled_from(sorted(target)))
        if data.draw(st.booleans()):
            target[key] = data.draw(JSON)
        else:
            del target[key]
    report = validate(records, FLEET, TENANTS, tables=TABLES, complete=True)
    assert report.events == len(records)
    str(report).encode("utf-8")


@given(SEEDS)
@settings(deadline=None, max_examples=examples(10))
def test_the_same_log_gives_the_same_report(seed: int) -> None:
    records = legal_log(seed, 100)[1:]
    first = validate(records, FLEET, TENANTS, tables=TABLES, complete=True)
    assert str(first) == str(validate(records, FLEET, TENANTS, tables=TABLES, complete=True))
