"""Small runs with sensitivity profiles, each checked as a whole before it is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from domain.fleet import Fleet
from domain.identifiers import TenantId, WorkloadId
from domain.sensitivity import SensitivityProfile
from formats.trace import TraceRow
from simulator.engine.settings import SimulationSettings
from simulator.engine.simulation import Simulation
from simulator.engine.simulation_input import SimulationInput
from simulator.inputs.actions import ActionAt
from simulator.policies.policy import Policy
from simulator.results.conservation import check_conservation
from simulator.validate import validate
from simulator.validation.report import Invariant, ValidationReport
from tests.simulator.engine.checked_run import NO_COSTS, Record, machine, region, unlimited

HUNGRY = SensitivityProfile((1.0, 3.0, 12.0), (20.0,), ((1 / 3,), (1.0,), (4.0,)))
"""As fast as it has CPUs, up to 12 for each GPU: 4 times its speed with 3."""
LEAN = SensitivityProfile((1.0,), (20.0,), ((1.0,),))
"""Content with 1 CPU and 20 GiB."""
PROFILES = {"hungry": HUNGRY, "lean": LEAN}


def fleet_of(*gpus: int) -> Fleet:
    """Machines with so many GPUs; for each of these 3 CPUs and 60 GiB."""
    machines = [
        replace(machine(f"m{number}", count), cpus=3.0 * count, memory_gib=60.0 * count)
        for number, count in enumerate(gpus)
    ]
    return Fleet((region("east", machines),))


def unequal_fleet(*machines: tuple[int, float]) -> Fleet:
    """Machines with so many GPUs; for each of these so many CPUs and 60 GiB."""
    made = [
        replace(machine(f"m{number}", gpus), cpus=cpus * gpus, memory_gib=60.0 * gpus)
        for number, (gpus, cpus) in enumerate(machines)
    ]
    return Fleet((region("east", made),))


def trained(name: str, submit_s: float, duration_s: float, model: str, gpus: int = 1) -> TraceRow:
    return TraceRow(WorkloadId(name), TenantId("t"), submit_s, duration_s, gpus, model=model)


@dataclass(frozen=True, slots=True)
class ProfiledRun:
    """When each workload started and ended, what the validator said, and the log."""

    starts: Mapping[str, float]
    ends: Mapping[str, float]
    report: ValidationReport
    log: Sequence[Record]

    def told(self, *kinds: str) -> list[Record]:
        return [record for record in self.log if record["event"] in kinds]


def profiled_run(
    policy: Policy,
    rows: Sequence[TraceRow],
    fleet: Fleet,
    *actions: ActionAt,
    settings: SimulationSettings = NO_COSTS,
    profiles: Mapping[str, SensitivityProfile] = PROFILES,
    valid: bool = True,
) -> ProfiledRun:
    """Runs, and raises where a law or an inventory's books are broken; with `valid` also where an invariant of the log is."""
    log: list[Record] = []
    given = SimulationInput("test", rows, fleet, unlimited(rows), actions=actions, profiles=profiles)
    checking = settings.model_copy(update={"check_every_events": 1})
    simulation = Simulation(given, policy, checking, 1, lambda event: log.append(event.as_json()))
    record = simulation.run()
    for member in simulation.world.regions.members:
        member.inventory.check()
    check_conservation(record)
    report = validate(log, fleet, given.tenants, complete=True, profiles=profiles)
    if valid:
        assert report.valid, str(report)
        assert record.counts.invariants_broken == 0
        assert report.checks[Invariant.I7] > 0 or not any(row.model for row in rows)
    names = [str(name) for name in record.workloads.ids]
    return ProfiledRun(
        dict(zip(names, record.workloads.first_started_s.tolist(), strict=True)),
        dict(zip(names, record.workloads.ended_s.tolist(), strict=True)),
        report,
        log,
    )
