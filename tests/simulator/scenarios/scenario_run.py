"""Runs a scenario and writes down what came of it, in the words of its expectation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from domain.fleet import Fleet
from domain.identifiers import ANY_GPU_MODEL, TenantId
from domain.resources import Quota
from domain.tenant import Tenant
from simulator.engine.failures import FailureDomain, Failures, failure_domains
from simulator.engine.settings import FailureSettings, settings_from
from simulator.policies.registry import policy_called
from simulator.results.run_record import AttemptEnd, RunRecord, WorkloadEnd
from tests.simulator.engine.checked_run import UNLIMITED, checked_run
from tests.simulator.scenarios.scenario_text import Scenario, ScriptedFailure

BARE = ("scan_period_s=0", *(f"costs.{cost}_s=0" for cost in ("container_start", "checkpoint_save", "restore")))
NOBODY_SAVES = "costs.checkpoint_interval_s=0"
NEVER_S = 1e15


class ScriptedFailures(Failures):
    """Fails when the script says so, and is repaired when it says so."""

    def __init__(self, domains: Sequence[FailureDomain], script: Sequence[ScriptedFailure]) -> None:
        super().__init__(domains, 0)
        self._script = sorted(script, key=lambda failure: failure.at_s)

    def next_failure_s(self, domain: int, now: float) -> float:
        times = [failure.at_s for failure in self._of(domain) if failure.at_s >= now]
        return min(times, default=NEVER_S)

    def next_repair_s(self, domain: int, now: float) -> float:
        return next(failure.at_s + failure.for_s for failure in self._of(domain) if failure.at_s == now)

    def _of(self, domain: int) -> list[ScriptedFailure]:
        what = self.domains[domain].what
        return [failure for failure in self._script if failure.what == what]


def outcome_of(scenario: Scenario) -> list[str]:
    """A line for each workload, in the order of the scenario's table of jobs."""
    fleet = scenario.fleet()
    tenants = scenario.tenants or [Tenant(TenantId("t"), 0, Quota.of({ANY_GPU_MODEL: UNLIMITED}))]
    run = checked_run(
        policy_called(scenario.policy),
        scenario.rows,
        fleet,
        tenants,
        settings_from(None, [*BARE, NOBODY_SAVES, *scenario.changes], scenario.name),
        failures=scripted(fleet, scenario.failures) if scenario.failures else None,
        tables=scenario.tables,
    )
    return [_line(run.record, str(row.workload_id)) for row in scenario.rows]


def scripted(fleet: Fleet, script: Sequence[ScriptedFailure]) -> ScriptedFailures:
    """The machines and racks of the fleet, failing by script."""
    names = [str(machine.machine) for region in fleet.regions for machine in region.machines()]
    domains = failure_domains(fleet, FailureSettings(machine_mtbf_s=1.0, rack_mtbf_s=1.0))
    named = [
        FailureDomain(f"machine {names[number]}" if number < len(names) else domain.what, domain.members, 1.0, 1.0)
        for number, domain in enumerate(domains)
    ]
    unknown = {failure.what for failure in script} - {domain.what for domain in named}
    if unknown:
        raise ValueError(f"there is no {', '.join(sorted(unknown))} in the fleet")
    return ScriptedFailures(named, script)


def _line(record: RunRecord, name: str) -> str:
    if name not in record.workloads.ids:
        return f"{name} not submitted"
    workload = record.workloads.ids.index(name)
    rows = np.flatnonzero(record.attempts.workload == workload).tolist()
    end = WorkloadEnd(int(record.workloads.end[workload]))
    said = [_attempt(record, row) for row in rows]
    if end is WorkloadEnd.REFUSED or end is WorkloadEnd.QUEUED:
        said.append(end.name.lower())
    return f"{name} {' | '.join(said)}"


def _attempt(record: RunRecord, row: int) -> str:
    attempts = record.attempts
    dispatched_s, started_s, ended_s = (
        float(column[row]) for column in (attempts.dispatched_s, attempts.started_s, attempts.ended_s)
    )
    begins = _shown(dispatched_s) if started_s == dispatched_s else f"{_shown(dispatched_s)}>{_shown(started_s)}"
    held = range(int(attempts.first_share[row]), int(attempts.first_share[row + 1]))
    machines = [f"{record.machines.names[record.shares.machine[at]]}:{record.shares.gpus[at]}" for at in held]
    words = [f"{begins}-{_shown(ended_s)}", *sorted(machines), *_end(record, row)]
    return " ".join(words)


def _end(record: RunRecord, row: int) -> list[str]:
    attempts = record.attempts
    end = AttemptEnd(int(attempts.end[row]))
    if end is AttemptEnd.COMPLETED:
        return []
    if end is AttemptEnd.RUNNING:
        return ["running"]
    reached, kept = float(attempts.progress_at_end[row]), float(attempts.progress_kept[row])
    work = f"kept {_shown(kept)}" if kept == reached else f"kept {_shown(kept)} of {_shown(reached)}"
    evictor = int(attempts.evicted_by[row])
    by = f" by {record.workloads.ids[evictor]}" if evictor >= 0 else ""
    return [f"{end.name.lower()}{by}", work]


def _shown(number: float) -> str:
    return "" if np.isnan(number) else f"{number:g}" if abs(number) < 1e5 else f"{number:.3f}".rstrip("0").rstrip(".")
