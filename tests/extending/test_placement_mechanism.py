"""The mechanism of docs/extending.md, as an installed package brings it: planned with, simulated, and live."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from domain.events import Event
from domain.fleet import Fleet
from domain.identifiers import ANY_GPU_MODEL, JobName, TenantId
from domain.plan import Plan
from domain.rank import Standing
from domain.resources import Quota, TaskResources
from domain.tenant import Tenant
from domain.workload import Emulated, JobSpecification
from formats.fleet_file import parse_fleet_file
from formats.problems import FormatError
from regional_scheduler.planner import plan_workload
from regional_scheduler.region_capacity import RegionCapacity
from simulator.engine.simulation import simulate
from simulator.engine.simulation_input import SimulationInput
from simulator.policies.registry import policy_called
from tests.cluster_manager.fleets import cluster, gpu_machine, region
from tests.cluster_manager.inventory_worlds import workload_of
from tests.extending.packages import ExamplePackage, package_of
from tests.live.real_service import real_service
from tests.live.world import one_job
from tests.simulator.baselines.runs import FREE, row

Install = Callable[[ExamplePackage], None]

EVERYONE = cluster("everyone", [gpu_machine("e0", 4)])
RESERVED = replace(cluster("reserved", [gpu_machine("r0", 8)]), mechanism="guaranteed_only")
OWNER, GUEST = TenantId("owner"), TenantId("guest")
TENANTS = (
    Tenant(OWNER, 2, Quota.of({ANY_GPU_MODEL: 8})),
    Tenant(GUEST, 2, Quota.of({ANY_GPU_MODEL: 0})),
)
ONE_CLUSTER = """
regions:
  - region: east
    clusters:
      - {cluster: reserved, mechanism: NAME, racks: [{rack: r, machines: [{machine: m, cpus: 8, memory_gib: 64}]}]}
"""


def example() -> ExamplePackage:
    return package_of("A placement mechanism")


def test_the_example_takes_guaranteed_work_beside_packing(install: Install) -> None:
    install(example())
    capacity = RegionCapacity(region(EVERYONE, RESERVED))
    small, large = (
        workload_of("w", JobSpecification(JobName("job"), 1, TaskResources(gpus=gpus), Emulated(1.0)))
        for gpus in (4, 8)
    )
    best = Standing(0, 0)
    guaranteed = plan_workload(capacity, large, best, 0.0, within_quota=True)
    assert isinstance(guaranteed, Plan)
    assert {placement.machine for placement in guaranteed.placements} == {"r0"}
    assert not isinstance(plan_workload(capacity, large, best, 0.0, within_quota=False), Plan)
    opportunistic = plan_workload(capacity, small, best, 0.0, within_quota=False)
    assert isinstance(opportunistic, Plan)
    assert {placement.machine for placement in opportunistic.placements} == {"e0"}


def test_the_example_is_simulated(install: Install) -> None:
    """Both guests would fit on `r0` together; they go to `e0`, one after the other, and the owner has `r0` at once."""
    install(example())
    rows = [
        row("first", 0.0, 100.0, 4, tenant="guest"),
        row("second", 1.0, 100.0, 4, tenant="guest"),
        row("owns", 2.0, 100.0, 8, tenant="owner"),
    ]
    events: list[Event] = []
    given = SimulationInput("example", rows, Fleet((region(EVERYONE, RESERVED),)), TENANTS)
    simulate(given, policy_called("mast"), FREE, seed=1, sink=events.append)
    started = {str(event.workload): (event.t, _machines(event.details)) for event in events if event.event == "started"}
    assert started == {"first": (0.0, ["e0"]), "second": (100.0, ["e0"]), "owns": (2.0, ["r0"])}


@pytest.mark.live
def test_the_example_places_in_a_live_service(install: Install) -> None:
    """PostgreSQL, Ray and a process for each tier; the fleet is applied to it by the name of the mechanism."""
    install(example())
    with real_service(Fleet((region(EVERYONE, RESERVED),)), TENANTS, 60.0) as service:
        wanted = (("first", GUEST, 4), ("second", GUEST, 4), ("owns", OWNER, 8))
        work = [one_job(name, tenant, Emulated(60.0), gpus=gpus) for name, tenant, gpus in wanted]
        names = dict(zip(service.submit(work), (name for name, _, _ in wanted), strict=True))
        service.until_all_ended()
        started = [event for event in service.events if event.event == "started"]
        assert {names[str(event.workload)]: _machines(event.details) for event in started} == {
            "first": ["e0"],
            "second": ["e0"],
            "owns": ["r0"],
        }
        service.check()


def example_that_fails() -> ExamplePackage:
    package = example()
    fails = """

def fail(self, query, view):
    raise RuntimeError("no licence")


GuaranteedOnly.find = fail
"""
    return replace(package, modules={name: code + fails for name, code in package.modules.items()})


def failures_in(events: list[Event]) -> list[tuple[object, ...]]:
    failed = [event for event in events if event.event == "mechanism_failed"]
    return [(event.cluster, *(event.details[name] for name in ("mechanism", "asked", "error"))) for event in failed]


FAILED = ("reserved", "guaranteed_only", "find", "RuntimeError: no licence")


def test_work_goes_to_other_clusters_when_it_fails_and_the_log_says_so(install: Install) -> None:
    install(example_that_fails())
    rows = [row("first", 0.0, 100.0, 4, tenant="guest"), row("owns", 2.0, 100.0, 4, tenant="owner")]
    events: list[Event] = []
    given = SimulationInput("example", rows, Fleet((region(EVERYONE, RESERVED),)), TENANTS)
    simulate(given, policy_called("mast"), FREE, seed=1, sink=events.append)
    places = [_machines(event.details) for event in events if event.event == "started"]
    assert places
    assert all(machines == ["e0"] for machines in places)
    assert failures_in(events) == [FAILED]


@pytest.mark.live
@pytest.mark.nightly
def test_a_live_region_goes_on_when_it_fails(install: Install) -> None:
    install(example_that_fails())
    with real_service(Fleet((region(EVERYONE, RESERVED),)), TENANTS, 60.0) as service:
        service.submit([one_job(name, OWNER, Emulated(60.0), gpus=4) for name in ("first", "second")])
        service.until_all_ended()
        started = [event for event in service.events if event.event == "started"]
        assert [_machines(event.details) for event in started] == [["e0"], ["e0"]]
        failed = [event for event in service.events if event.event == "mechanism_failed"]
        assert [(str(event.cluster), event.details["error"]) for event in failed] == [(FAILED[0], FAILED[-1])]
        service.check()


def _machines(details: object) -> list[object]:
    """Of a `started` event."""
    assert isinstance(details, dict)
    return sorted({placed["machine"] for placed in details["placement"]})


def test_a_fleet_file_names_it_once_it_is_installed(install: Install) -> None:
    with pytest.raises(FormatError, match=r"there is no placement mechanism guaranteed_only; .*packing"):
        parse_fleet_file(ONE_CLUSTER.replace("NAME", "guaranteed_only"))
    install(example())
    (east,) = parse_fleet_file(ONE_CLUSTER.replace("NAME", "guaranteed_only")).fleet.regions
    assert east.clusters[0].mechanism == "guaranteed_only"
    with pytest.raises(FormatError, match=r"there is no placement mechanism guaranted_only; .*guaranteed_only"):
        parse_fleet_file(ONE_CLUSTER.replace("NAME", "guaranted_only"))


def test_it_is_listed(install: Install) -> None:
    install(example())
    topmast = [sys.executable, "-c", "from services.command_line.main import main; main()"]
    done = subprocess.run([*topmast, "mechanisms", "--json"], check=True, capture_output=True, text=True)
    assert [(entry["mechanism"], entry["built_in"]) for entry in json.loads(done.stdout)] == [
        ("cells", True),
        ("guaranteed_only", False),
        ("packing", True),
    ]


@pytest.mark.parametrize(
    ("name", "value", "code", "told"),
    [
        (
            "broken",
            "broken_module:ENTRY",
            "raise RuntimeError('no licence')",
            "cannot be loaded: RuntimeError: no licence",
        ),
        ("broken", "broken_module:ENTRY", "import no_such_module", "cannot be loaded: No module named"),
        ("broken", "broken_module:ENTRY", "ENTRY = 3", "must be a placement mechanism"),
        ("broken", "broken_module:ENTRY", "raise SystemExit(3)", "cannot be loaded: SystemExit: 3"),
        (
            "broken",
            "broken_module:entry",
            "def entry(cluster): ...",
            "should make a placement mechanism without arguments, but failed: TypeError: entry() missing 1 required",
        ),
        (
            "broken",
            "broken_module:entry",
            "class entry:\n    name = 'no_maker'",
            "brings a entry; it must be a placement mechanism",
        ),
        (
            "broken",
            "broken_module:ENTRY",
            "from cluster_manager.mechanisms import MechanismEntry\nENTRY = MechanismEntry('two words', '', print)",
            "brings a placement mechanism called 'two words'; files can only name",
        ),
        (
            "twice",
            "guaranteed_only:GUARANTEED_ONLY",
            "",
            "brings a placement mechanism guaranteed_only, but there is one of that name, of package guaranteed-only",
        ),
    ],
)
def test_a_package_that_brings_no_new_mechanism_is_named(
    install: Install, name: str, value: str, code: str, told: str
) -> None:
    install(example())
    group = {"topmast.placement_mechanisms": {name: value}}
    install(ExamplePackage("other-package", group, {"broken_module": code} if code else {}))
    with pytest.raises(FormatError) as refused:
        parse_fleet_file(ONE_CLUSTER.replace("NAME", "another"))
    assert told in str(refused.value)
    assert f"{name} = {value} (package other-package)" in str(refused.value)
