"""What holds under every policy: valid logs, work conserved, the same bytes for the same seed; and how files look."""

from __future__ import annotations

import importlib
import json
import pkgutil

import numpy as np
import pytest

from domain.fleet import Fleet
from domain.identifiers import ANY_GPU_MODEL
from domain.resources import Quota
from domain.tenant import Tenant
from formats.trace import TraceRow
from simulator import baselines
from simulator.baselines import BASELINES
from simulator.engine.settings import FailureSettings, SimulationSettings
from simulator.engine.simulation import simulate
from simulator.engine.simulation_input import SimulationInput
from simulator.policies.policy import Policy
from simulator.results.conservation import check_conservation
from simulator.results.run_record import AttemptEnd, RunRecord, WorkloadEnd
from simulator.validate import validate
from simulator.validation.record_fields import Record
from tests.simulator.baselines.runs import one_machine, region_of, row, run

FLEET = Fleet((region_of("east", 8, 8), region_of("west", 8, 4, 4)))
TROUBLE = SimulationSettings(failures=FailureSettings(machine_mtbf_s=20_000.0, machine_mttr_s=2_000.0))
"""Everything costs what it costs by default, and machines fail now and then."""

PREEMPTS = {
    "mast",
    "federated",
    "federated_stale",
    "random_region",
    "own_region",
    "ideal",
    "srtf",
    "srsf",
    "las",
    "tiresias_las",
    "tiresias_gittins",
    "gandiva",
}


def _rows(count: int = 60) -> list[TraceRow]:
    rng = np.random.default_rng(11)
    submits = np.cumsum(rng.exponential(220.0, count)).round(1)
    gpus = rng.choice([1, 1, 2, 4, 8, 16], count)
    durations = np.clip(rng.lognormal(7.2, 1.0, count), 20, 9_000).round(1)
    tenants = rng.choice(["ads", "research", "vision"], count)
    return [
        row(f"w{n:03}", float(submits[n]), float(durations[n]), int(gpus[n]), tenant=str(tenants[n]))
        for n in range(count)
    ]


def _simulate(policy: Policy, rows: list[TraceRow]) -> tuple[RunRecord, list[Record], list[Tenant]]:
    # Where no scan pass decides, all are at priority 0 and within quota: the tenants must say so too.
    names = sorted({r.tenant for r in rows})
    tenants = [
        Tenant(name, *((rank, Quota.of({ANY_GPU_MODEL: 12})) if policy.scans else (0, Quota.of({ANY_GPU_MODEL: 999}))))
        for rank, name in enumerate(names)
    ]
    events: list[Record] = []
    record = simulate(
        SimulationInput("drawn", rows, FLEET, tenants),
        policy,
        TROUBLE,
        5,
        sink=lambda event: events.append(event.as_json()),
    )
    return record, events, tenants


@pytest.mark.parametrize("policy", BASELINES, ids=lambda policy: policy.name)
def test_a_run_in_trouble_is_valid_and_conserves_work(policy: Policy) -> None:
    rows = _rows()
    record, events, tenants = _simulate(policy, rows)
    report = validate(events, FLEET, tenants, complete=True)
    assert report.valid, str(report)
    check_conservation(record)
    assert (record.workloads.end == WorkloadEnd.COMPLETED).all()
    ends = record.attempts.end
    assert (ends == AttemptEnd.MACHINE_LOST).any(), "no machine failed under an attempt: the run shows too little"
    assert bool((ends == AttemptEnd.PREEMPTED).any()) == (policy.name in PREEMPTS)


@pytest.mark.parametrize("policy", BASELINES, ids=lambda policy: policy.name)
def test_the_same_seed_gives_the_same_log(policy: Policy) -> None:
    rows = _rows(25)
    first, second = (_simulate(policy, given)[1] for given in (rows, rows[::-1]))
    assert len(first) > 3 * len(rows)
    assert json.dumps(first) == json.dumps(second)


def test_yarn_cs_lets_nobody_overtake() -> None:
    rows = [row("runs", 0, 100, 3), row("head", 1, 10, 4), row("small", 2, 10, 1)]
    assert run("yarn_cs", one_machine(4), rows).first_starts == {"runs": 0.0, "head": 100.0, "small": 110.0}
    assert run("fifo", one_machine(4), rows).first_starts == {"runs": 0.0, "head": 100.0, "small": 2.0}


def test_best_effort_takes_gpus_wherever_they_are() -> None:
    fleet = Fleet((region_of("east", 4, 4),))
    rows = [row("a", 0, 100, 2, tasks=1), row("b", 0, 100, 3, tasks=1), row("scattered", 1, 10, 3)]
    assert run("best_effort", fleet, rows).first_starts["scattered"] == 1.0
    assert run("fifo", fleet, rows).first_starts["scattered"] == 100.0


def test_las_lets_who_has_received_little_go_first() -> None:
    rows = [row("long", 0, 10_000, 1), row("new", 5_000, 1_000, 1)]
    done = run("las", one_machine(1), rows)
    # Level 0 ends at 3,200 GPU-seconds.
    assert done.preemptions == [(5000.0, "long", "new")]
    early = [row("long", 0, 10_000, 1), row("new", 3_000, 1_000, 1)]
    assert run("las", one_machine(1), early).preemptions == [(3200.0, "long", "new")]


def test_names_are_unique_and_every_policy_has_a_summary() -> None:
    names = [policy.name for policy in BASELINES]
    assert len(names) == len(set(names)) >= 18
    assert all(policy.summary for policy in BASELINES)


def test_every_file_shows_rule_invariant_and_what_it_ignores() -> None:
    modules = [
        importlib.import_module(f"simulator.baselines.{module.name}")
        for module in pkgutil.iter_modules(baselines.__path__)
    ]
    with_policies = [m for m in modules if any(isinstance(value, Policy) for value in vars(m).values())]
    assert len(with_policies) >= 16
    for module in with_policies:
        for heading in ("\nRule: ", "\nInvariant: ", "\nIgnores: "):
            assert heading in (module.__doc__ or ""), f"{module.__name__} says nothing about {heading.strip()}"
