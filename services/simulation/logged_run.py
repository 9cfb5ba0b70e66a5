"""A run whose event log is written, checked, or both; never from the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from domain.events import Event
from formats.atomic_file import atomic_file
from formats.event_log import open_event_log
from formats.fleet_file import dump_fleet
from formats.tenants_file import dump_tenants
from services.simulation.run import FinishedRun, compared, measured_run
from simulator.engine.event_log import EventSink
from simulator.engine.settings import SimulationSettings
from simulator.engine.simulation import ProgressWatcher
from simulator.engine.simulation_input import SimulationInput
from simulator.inputs.private_clusters import private_inputs
from simulator.policies.policy import Policy
from simulator.results.run_record import RunRecord, WorkloadEnd
from simulator.validation.log_checker import LogChecker
from simulator.validation.report import ValidationReport


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """A run, and what its log is worth."""

    run: FinishedRun
    validation: ValidationReport | None
    """None: not asked for."""


@dataclass(frozen=True, slots=True)
class LogFiles:
    """An event log, and what one must know to check it, beside it."""

    events: Path

    @property
    def fleet(self) -> Path:
        return self._beside("fleet.yaml")

    @property
    def tenants(self) -> Path:
        return self._beside("tenants.yaml")

    def _beside(self, ending: str) -> Path:
        stem = self.events.name.removesuffix(".gz").removesuffix(".jsonl")
        return self.events.with_name(f"{stem}.{ending}")


def logged_run(
    given: SimulationInput,
    policy: Policy,
    settings: SimulationSettings,
    seed: int,
    *,
    files: LogFiles | None,
    validate: bool,
    against_private: bool = False,
    watcher: ProgressWatcher | None = None,
) -> LoggedRun:
    """The run; with `files` all three of them are there at the end, also of a run that was broken off.

    A log of a run in which every workload ended is checked as a whole run. `against_private`: each tenant that owns cells
    is run alone, too, without a log, unless the run was broken off.
    """
    checker: LogChecker | None = None
    if validate:
        checker = LogChecker(
            given.fleet,
            given.tenants,
            given.catalog,
            rule=settings.eviction.rule(policy.eviction),
            profiles=given.profiles,
        )
    with ExitStack() as stack:
        sinks: list[EventSink] = []
        if files is not None:
            stack.enter_context(_written(files.fleet, lambda: dump_fleet(given.fleet, given.catalog)))
            stack.enter_context(_written(files.tenants, lambda: dump_tenants(given.tenants)))
            log = stack.enter_context(atomic_file(files.events))
            sinks.append(stack.enter_context(open_event_log(log)).write)
        if checker is not None:
            sinks.append(_checked(checker))
        run = measured_run(given, policy, settings, seed, sink=_all(sinks), watcher=watcher)
    if against_private and not run.record.broken_off:
        alone = private_inputs(given).items()
        run = compared(run, {tenant: measured_run(private, policy, settings, seed) for tenant, private in alone})
    report = checker.report(complete=_all_ended(run.record)) if checker is not None else None
    return LoggedRun(run, report)


@contextmanager
def _written(path: Path, text: Callable[[], str]) -> Iterator[None]:
    """A file beside the log, written first: what cannot be written there stops the run before it begins."""
    with atomic_file(path) as part:
        part.write_text(text(), encoding="utf-8")
        yield


def _checked(checker: LogChecker) -> EventSink:
    line = 0

    def check(event: Event) -> None:
        nonlocal line
        line += 1
        checker.feed(line, event.as_json())

    return check


def _all(sinks: list[EventSink]) -> EventSink:
    if len(sinks) == 1:
        return sinks[0]

    def say(event: Event) -> None:
        for sink in sinks:
            sink(event)

    return say


def _all_ended(record: RunRecord) -> bool:
    """Also the trace's last workload came: what is not submitted yet is in no table."""
    return not record.broken_off and not bool(
        np.isin(record.workloads.end, (WorkloadEnd.QUEUED, WorkloadEnd.RUNNING)).any()
    )
