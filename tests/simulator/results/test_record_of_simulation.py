"""The tables that the simulator fills and those that are made from its log are the same, column by column."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import pairwise
from math import isnan

import numpy as np
import pytest

from domain.events import JsonValue
from domain.fleet import Fleet
from domain.identifiers import ANY_GPU_MODEL, TenantId, WorkloadId
from domain.resources import Quota
from domain.tenant import Tenant
from formats.trace import TraceRow
from simulator.engine.settings import FailureSettings, SimulationSettings
from simulator.engine.simulation import simulate
from simulator.engine.simulation_input import SimulationInput
from simulator.inputs.loans import LoanSchedule, LoanStep
from simulator.policies.registry import policy_called
from simulator.report.overview import broken_off_sentence
from simulator.results.conservation import violated_laws
from simulator.results.figures import figures_of
from simulator.results.record_of_log import record_of_log
from simulator.results.run_record import RunRecord
from tests.simulator.engine.checked_run import Record, machine, region

FLEET = Fleet(
    (
        region("east", *([machine(f"e{rack}{number}", 8) for number in range(2)] for rack in range(2))),
        region("west", [machine("w0", 8), machine("w1", 4), machine("w2", 0)]),
    )
)
TENANTS = tuple(
    Tenant(TenantId(name), priority, Quota.of({ANY_GPU_MODEL: gpus}))
    for name, priority, gpus in (("ads", 0, 16), ("research", 3, 12), ("vision", 2, 12))
)
COUNTED_BY_THE_RUN = {"events", "scan_passes", "plans", "negative_cache_hit_rate"}


def rows_at_random(generator: np.random.Generator, count: int) -> list[TraceRow]:
    submitted = np.cumsum(generator.exponential(250.0, count))
    return [
        TraceRow(
            WorkloadId(f"w{number:04}"),
            TenantId(str(generator.choice(["ads", "research", "vision"]))),
            float(submit_s),
            float(generator.lognormal(7.5, 1.2)),
            int(generator.choice([1, 1, 2, 4, 8, 16])),
        )
        for number, submit_s in enumerate(submitted)
    ]


def simulated(policy: str, settings: SimulationSettings, rows: list[TraceRow]) -> tuple[RunRecord, list[Record]]:
    log: list[Record] = []
    given = SimulationInput("random", rows, FLEET, TENANTS)
    return simulate(given, policy_called(policy), settings, 1, sink=lambda event: log.append(event.as_json())), log


@pytest.mark.parametrize("policy", ["fifo", "mast", "srtf", "las", "tiresias_las"])
@pytest.mark.parametrize(
    "settings",
    [
        SimulationSettings(),
        SimulationSettings(failures=FailureSettings(machine_mtbf_s=40_000.0, rack_mtbf_s=90_000.0)),
        SimulationSettings(stop_after_s=20_000.0),
    ],
    ids=["whole", "failures", "broken-off"],
)
def test_a_log_shows_the_run_that_it_is_of(
    policy: str, settings: SimulationSettings, generator: np.random.Generator
) -> None:
    record, log = simulated(policy, settings, rows_at_random(generator, 150))
    reported = record_of_log(log, FLEET, policy=record.policy, trace=record.trace, seed=record.seed)
    reported = _with_standing_of_those_never_dispatched(reported, record)
    assert violated_laws(record) == violated_laws(reported) == []
    assert len(record.attempts) >= 50
    for name in (
        "started_s",
        "ended_s",
        "broken_off",
        "stalled",
        "not_submitted",
        "regions",
        "region_gpus",
        "machine_down",
    ):
        assert getattr(reported, name) == getattr(record, name), name
    assert _columns(reported.workloads) == _columns(record.workloads)
    assert _attempts(reported) == _attempts(record)
    ours, theirs = _figures(reported), _figures(record)
    assert ours.keys() == theirs.keys()
    for path, value in theirs.items():
        # Sums are added up in another order.
        same = pytest.approx(value, rel=1e-12) if isinstance(value, float) else value
        assert ours[path] == same, path


def test_a_run_in_which_nothing_more_can_happen_was_not_broken_off(generator: np.random.Generator) -> None:
    """What needs all machines of a region waits for good for what was lent: nobody stopped the run."""
    rows = [replace(row, gpus=1, duration_s=600.0) for row in rows_at_random(generator, 5)]
    lender = FLEET.regions[1].clusters[0].cluster
    loans = LoanSchedule((LoanStep(0.0, lender, 3), LoanStep(3_000.0, lender, 0)))
    waits = replace(rows[-1], workload_id=WorkloadId("late"), region=FLEET.regions[1].region, submit_s=40_000.0)
    log: list[Record] = []
    given = SimulationInput("lent", [*rows, waits], FLEET, TENANTS, loans=loans)
    record = simulate(
        given, policy_called("fifo"), SimulationSettings(), 1, sink=lambda event: log.append(event.as_json())
    )
    assert (record.broken_off, record.stalled) == (True, True)
    assert log[-1]["event"] == "run_ended"
    assert log[-1]["stalled"] is True
    assert record_of_log(log, FLEET).stalled
    said = broken_off_sentence("fifo", record, figures_of(record))
    assert "1 workload had not ended when nothing more could happen" in said
    assert "broken off" not in said


def test_a_run_is_broken_off_though_all_that_were_submitted_have_ended(generator: np.random.Generator) -> None:
    rows = [replace(row, gpus=1, duration_s=600.0) for row in rows_at_random(generator, 5)]
    late = replace(rows[-1], workload_id=WorkloadId("late"), submit_s=200_000.0)
    log: list[Record] = []
    record = simulate(
        SimulationInput("late", [*rows, late], FLEET, TENANTS),
        policy_called("fifo"),
        SimulationSettings(stop_after_s=100_000.0),
        1,
        sink=lambda event: log.append(event.as_json()),
    )
    assert (record.broken_off, record.stalled, record.not_submitted) == (True, False, 1)
    assert violated_laws(record) == []
    assert log[-1]["not_submitted"] == 1
    reported = record_of_log(log, FLEET)
    assert (reported.broken_off, reported.not_submitted, reported.ended_s) == (True, 1, record.ended_s)
    said = broken_off_sentence("fifo", record, figures_of(record))
    assert "0 workloads had not ended and 1 had not been submitted" in said


def _with_standing_of_those_never_dispatched(reported: RunRecord, record: RunRecord) -> RunRecord:
    """A log says nothing of the standing of a workload without an attempt, and tenants are not in it."""
    never = np.isin(np.arange(len(record.workloads)), record.attempts.workload, invert=True)
    workloads = replace(
        reported.workloads,
        priority=np.where(never, record.workloads.priority, reported.workloads.priority),
        within_quota=np.where(never, record.workloads.within_quota, reported.workloads.within_quota),
    )
    return replace(reported, workloads=workloads)


def _columns(table: object) -> dict[str, list[object]]:
    """The columns that a log tells to the last digit, None for not a number."""
    found = {}
    for field in fields(table):  # type: ignore[arg-type]  # one of the tables
        value = getattr(table, field.name)
        if value is not None and not field.name.startswith("progress"):
            column = value.tolist() if isinstance(value, np.ndarray) else list(value)
            found[field.name] = [_known(element) for element in column]
    return found


def _known(value: object) -> object:
    return None if isinstance(value, float) and isnan(value) else value


def _attempts(record: RunRecord) -> list[tuple[object, ...]]:
    """One row per attempt with what it held, by (workload, number)."""
    columns, shares = _columns(record.attempts), record.shares
    firsts = columns.pop("first_share")
    held = [
        sorted(zip(shares.machine[first:end].tolist(), shares.gpus[first:end].tolist(), strict=True))
        for first, end in pairwise(record.attempts.first_share.tolist())
    ]
    assert len(firsts) == len(held) + 1
    return sorted(zip(*columns.values(), map(tuple, held), strict=True), key=lambda row: row[:2])


def _figures(record: RunRecord) -> dict[str, JsonValue]:
    """All of them, by their paths."""
    figures = figures_of(record).as_json()
    return {path: value for path, value in _leaves("", figures) if path.split("/")[1] not in COUNTED_BY_THE_RUN}


def _leaves(path: str, value: JsonValue) -> Iterator[tuple[str, JsonValue]]:
    if isinstance(value, dict):
        for name, element in value.items():
            yield from _leaves(f"{path}/{name}", element)
    else:
        yield path, value
