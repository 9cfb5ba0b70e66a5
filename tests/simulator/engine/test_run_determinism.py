"""Same input, same seed: the same bytes, in every process (I12). Another seed: another run, where chance plays a part."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from domain.fleet import Fleet
from domain.identifiers import ANY_GPU_MODEL, TenantId
from domain.resources import Quota
from domain.tenant import Tenant
from formats.trace import TraceRow
from simulator.engine.settings import CostSettings, FailureSettings, SimulationSettings
from simulator.policies.registry import policies
from tests.house.determinism import assert_same_output
from tests.simulator.engine.checked_run import CheckedRun, checked_run, machine, region, row

FAILING = SimulationSettings(
    costs=CostSettings(container_start_s=20.0, checkpoint_save_s=10.0, restore_s=5.0, checkpoint_interval_s=300.0),
    failures=FailureSettings(
        machine_mtbf_s=30_000.0,
        machine_mttr_s=500.0,
        rack_mtbf_s=60_000.0,
        rack_mttr_s=300.0,
        power_domain_mtbf_s=90_000.0,
        power_domain_mttr_s=200.0,
        racks_per_power_domain=2,
    ),
)
NEVER_FAILING = FAILING.model_copy(update={"failures": FailureSettings()})
TENANTS = tuple(
    Tenant(TenantId(name), priority, Quota.of({ANY_GPU_MODEL: 6}))
    for priority, name in enumerate(("ads", "bio", "car"))
)


def busy_fleet() -> Fleet:
    return Fleet(
        tuple(
            region(name, *([machine(f"{name}{rack}{place}", 4) for place in range(2)] for rack in range(2)))
            for name in ("west", "east", "north")
        )
    )


def busy_trace(seed: int = 5, count: int = 80) -> list[TraceRow]:
    rng = np.random.default_rng(seed)
    arrivals_s = np.cumsum(rng.exponential(60.0, count))
    return [
        row(
            f"w{number:03}",
            float(arrivals_s[number]),
            float(rng.exponential(1500.0)) + 1.0,
            int(rng.choice([1, 2, 4, 8])),
            TENANTS[int(rng.integers(3))].tenant,
        )
        for number in range(count)
    ]


def busy_run(policy: str, seed: int, settings: SimulationSettings = FAILING) -> CheckedRun:
    """Three regions, failures of all kinds, more work than room; fewer workloads where each minute has decisions of its own."""
    chosen = policies()[policy]
    trace = busy_trace(count=25 if policy.startswith("gandiva") else 80)
    return checked_run(chosen, trace, busy_fleet(), TENANTS if chosen.scans else None, settings, seed)


def log_of(policy: str, seed: int, settings: SimulationSettings = FAILING) -> str:
    return "\n".join(json.dumps(record) for record in busy_run(policy, seed, settings).log)


@pytest.mark.parametrize("policy", ["mast", "fifo", "las", "random_region"])
def test_the_same_seed_gives_the_same_bytes(policy: str) -> None:
    first = log_of(policy, 7)
    assert "machine_lost" in first, "nothing was lost: the failures had no part in it"
    assert log_of(policy, 7) == first


@pytest.mark.parametrize("policy", ["mast", "fifo", "las"])
def test_another_seed_gives_other_failures(policy: str) -> None:
    assert log_of(policy, 7) != log_of(policy, 8)


def test_another_seed_gives_other_regions_where_they_are_drawn() -> None:
    assert log_of("random_region", 7, NEVER_FAILING) != log_of("random_region", 8, NEVER_FAILING)


@pytest.mark.parametrize("policy", ["mast", "fifo", "las", "gandiva", "easy_backfill", "drf", "federated"])
def test_without_chance_the_seed_changes_nothing(policy: str) -> None:
    assert log_of(policy, 7, NEVER_FAILING) == log_of(policy, 8, NEVER_FAILING)


def test_a_change_in_one_region_does_not_shift_the_failures_of_those_before_it() -> None:
    fleet = busy_fleet()
    more = Fleet((*fleet.regions, region("zulu", [machine("z", 4)])))
    only_machines = FAILING.model_copy(
        update={"failures": FailureSettings(machine_mtbf_s=5_000.0, machine_mttr_s=60.0)}
    )
    fifo = policies()["fifo"]
    bound = [replace(each, region=fleet.regions[0].region) for each in busy_trace() if each.gpus <= 4]
    runs = [checked_run(fifo, bound, chosen, settings=only_machines, seed=3).record for chosen in (fleet, more)]
    down = [[(record.machines.names[number], since_s) for number, since_s, _ in record.machine_down] for record in runs]
    assert len(down[0]) > 20
    assert [each for each in down[1] if each[0] != "z"] == down[0]


SNIPPET = """
import sys
from simulator.policies.registry import policies
from tests.simulator.engine.test_run_determinism import busy_run
import hashlib
for policy in sorted(policies()):
    run = busy_run(policy, 11)
    lines = "\\n".join(map(str, run.log))
    print(policy, hashlib.sha256(lines.encode()).hexdigest(), run.record.workloads.ended_s.sum())
"""


def test_no_process_decides_otherwise() -> None:
    output = assert_same_output(SNIPPET)
    assert len(output.splitlines()) == len(policies())
