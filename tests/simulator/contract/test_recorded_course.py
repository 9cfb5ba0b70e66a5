"""One recorded run of the live service, fed to both drivers: at every scan pass of the run they decide the same.

The course of the run is the recorded one throughout: after each pass both drivers take in what really happened next.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence

import pytest

from domain.events import Event, EventKind
from domain.identifiers import WorkloadId
from formats.event_log import read_records
from global_scheduler.scan_settings import ScanSettings
from simulator.validate import validate
from tests.simulator.contract.decisions import Decisions, DispatchDecision, Driver, ordered
from tests.simulator.contract.live_driver import LiveDriver
from tests.simulator.contract.recorded_run import (
    CREDIT,
    EVENTS,
    RecordedRun,
    key_of,
    placements_of,
    read_recorded_run,
    region_of,
    victims_of,
)
from tests.simulator.contract.simulated_driver import SimulatedDriver

WINDOWS = (1, 8, 64)

MAKES_ROOM = frozenset({EventKind.COMPLETED, EventKind.EVICTED, EventKind.MACHINE_UP})


@pytest.fixture(scope="module")
def run() -> RecordedRun:
    return read_recorded_run()


@pytest.fixture(scope="module")
def simulated(run: RecordedRun) -> tuple[Decisions, ...]:
    """What the simulator decides at each scan pass."""
    return tuple(course(run, SimulatedDriver(run)))


def course(run: RecordedRun, driver: Driver) -> Iterator[Decisions]:
    """What the driver decides at each scan pass of the run, given all that had happened until then."""
    taken = 0
    for now in run.passes_s:
        while taken < len(run.events) and run.events[taken].t <= now:
            driver.take(run.events[taken])
            taken += 1
        yield driver.decide(now)


def test_the_recorded_run_is_worth_comparing(run: RecordedRun, simulated: Sequence[Decisions]) -> None:
    report = validate(read_records(EVENTS), run.fleet, run.tenants, tables=run.tables, complete=True)
    assert report.violations == 0
    dispatched = [one for decisions in simulated for one in decisions.dispatched]
    assert len(simulated) >= 200
    assert len(dispatched) >= 100
    assert sum(bool(one.evictions) for one in dispatched) >= 10
    assert len({one.region for one in dispatched}) == len(run.fleet.regions) >= 3
    assert sum(len({placement.machine for placement in one.placements}) > 1 for one in dispatched) >= 10
    assert sum(len(decisions.reclassified) for decisions in simulated) >= 20
    assert sum(len(decisions.waiting) for decisions in simulated) >= 1_000
    assert max(len(decisions.queue) for decisions in simulated) >= 20
    assert len({position.standing.priority for decisions in simulated for position in decisions.queue}) == 5
    assert report.events_by_kind["machine_draining"] > 0
    assert any(workload.specification.tables for workload in run.workloads)
    assert any(len(workload.specification.jobs) > 1 for workload in run.workloads)


@pytest.mark.parametrize("window", WINDOWS)
def test_both_drivers_decide_the_same(run: RecordedRun, simulated: Sequence[Decisions], window: int) -> None:
    """Ranks with their credits to the last bit, re-classifications, regions, machines, GPUs, victims, what waits."""
    driver = LiveDriver(run, window, ScanSettings(CREDIT))
    for number, (live, ours) in enumerate(zip(course(run, driver), simulated, strict=True)):
        logged = f"scan pass {number + 1} of the recorded run, at {run.passes_s[number]}, window {window}"
        assert live.queue == ours.queue, logged
        assert live.reclassified == ours.reclassified, logged
        assert live.dispatched == ours.dispatched, logged
        assert live.waiting == ours.waiting, logged
    lots = sum(len(decisions.queue) for decisions in simulated)
    assert (driver.rounds == lots) if window == 1 else (driver.rounds < lots / 3), "windows are put to use"


def test_ranks_are_those_that_the_service_told(run: RecordedRun, simulated: Sequence[Decisions]) -> None:
    """Every `ranked` of the log, credit and all, and every `reclassified`.

    An end is told at the time at which it happened, and is in the database a moment later: a pass of the service that
    falls between does not know of it. In the recording that is kept here none did.
    """
    ranked: list[bool] = []
    reclassified: list[bool] = []
    for event in run.events:
        if event.event not in (EventKind.RANKED, EventKind.RECLASSIFIED):
            continue
        decisions = simulated[_pass_before(run, event)]
        stands = (event.priority, event.level), event.details["within_quota"]
        if event.event is EventKind.RANKED:
            (position,) = (one for one in decisions.queue if one.workload == event.workload)
            logged = (*stands, event.details["credit"])
            ranked.append((position.standing, position.within_quota, position.credit) == logged)
        else:
            changes = [one for one in decisions.reclassified if one.key == key_of(event)]
            reclassified.append([(change.standing, change.within_quota) for change in changes] == [stands])
    assert len(ranked) > 200
    assert len(reclassified) > 40
    assert sum(ranked) >= 0.98 * len(ranked)
    assert sum(reclassified) >= 0.95 * len(reclassified)


def test_dispatches_are_those_that_the_service_made_unless_room_was_made_meanwhile(
    run: RecordedRun, simulated: Sequence[Decisions]
) -> None:
    """The service's rounds are held a moment after the pass: they may use what has become free since."""
    same = others = 0
    for event in run.events:
        if event.event is not EventKind.DISPATCHED:
            continue
        number = _pass_before(run, event)
        ours = _by_workload(simulated[number].dispatched).get(key_of(event).workload)
        theirs = DispatchDecision(
            key_of(event).workload, region_of(event), ordered(placements_of(event)), victims_of(event)
        )
        if ours == theirs:
            same += 1
        else:
            others += 1
            since_s = run.passes_s[number]
            assert any(one.event in MAKES_ROOM and since_s < one.t <= event.t for one in run.events), event
    assert same >= 150
    assert others <= 0.06 * (same + others)


def test_the_service_dispatched_all_that_we_would(run: RecordedRun, simulated: Sequence[Decisions]) -> None:
    """Nothing is dispatched here that the service let wait."""
    logged: dict[int, set[WorkloadId]] = {}
    for event in run.events:
        if event.event is EventKind.DISPATCHED:
            logged.setdefault(_pass_before(run, event), set()).add(key_of(event).workload)
    for number, decisions in enumerate(simulated):
        assert _by_workload(decisions.dispatched).keys() <= logged.get(number, set())


def _pass_before(run: RecordedRun, event: Event) -> int:
    return bisect_right(run.passes_s, event.t) - 1


def _by_workload(dispatched: Sequence[DispatchDecision]) -> Mapping[WorkloadId, DispatchDecision]:
    return {one.workload: one for one in dispatched}
