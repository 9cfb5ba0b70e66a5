"""Inference clusters lend machines to training and take them back, in a live service."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import psycopg
import pytest

from domain.fleet import Fleet, Region
from domain.identifiers import ANY_GPU_MODEL, GpuModel, JobName
from domain.inference import InferenceSide
from domain.resources import Quota, TaskResources
from domain.tenant import Tenant
from domain.workload import Command, Emulated, JobSpecification, WorkloadSpecification
from services.database.embedded import EmbeddedLayout
from services.runtime.tier_place import TierProcesses
from tests.live.real_service import RealService, patiently, real_service
from tests.live.running import LiveRun, in_live_service
from tests.live.scripted_inference import ScriptedInference
from tests.live.world import A100, EAST, RANKING, V100, gpu_cluster, one_job
from topmast import ClusterLoans, WorkloadState

pytestmark = pytest.mark.live

_LONG = Emulated(1e6, 60.0)
_PATIENCE_REAL_S = 240.0


def fleet_with(inference: ScriptedInference, machines: int = 4, model: GpuModel = A100) -> Fleet:
    """A machine for training, of that model, beside a few that serve inference."""
    side = InferenceSide(inference.address, headroom=0.0, look_every_s=10.0, forecast="persistence")
    serving = replace(gpu_cluster("serving", A100, machines), inference=side)
    return Fleet((Region(EAST, (gpu_cluster("east-a", model, 1), serving)),))


def whole_machine(name: str, *, grace_s: float = 30.0) -> WorkloadSpecification:
    return replace(one_job(name, RANKING, _LONG, gpus=8, model=A100), stop_grace_s=grace_s)


async def until_loans(run: LiveRun, condition: Callable[[ClusterLoans], bool], what: str) -> ClusterLoans:
    loans: tuple[ClusterLoans, ...] = ()
    try:
        async with asyncio.timeout(_PATIENCE_REAL_S):
            while True:
                loans = await run.client.loans()
                if loans and condition(loans[0]):
                    return loans[0]
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"{what}: {loans}") from None


async def begin(run: LiveRun, inference: ScriptedInference, lent: int, grace_s: float = 30.0) -> list[str]:
    """So many machines are lent, and each machine for training has a workload that takes all of it."""
    inference.needs(4 - lent)
    await until_loans(run, lambda loans: loans.on_loan == lent, f"{lent} are lent")
    workloads = await run.submit([whole_machine(f"w{number}", grace_s=grace_s) for number in range(lent + 1)])
    await until_started(run, workloads)
    return workloads


async def until_started(run: LiveRun, workloads: list[str]) -> None:
    """In whatever order."""
    while not set(workloads) <= {event.workload for event in run.events if event.event == "started"}:
        await run.follow(until=lambda event: event.event == "started")


async def end(run: LiveRun, inference: ScriptedInference, workloads: list[str]) -> None:
    """All are cancelled, and the log is in order."""
    for workload in workloads:
        await run.client.cancel(workload)
    await run.follow()
    run.check(fleet_with(inference), tables=())


def in_lending_service(
    database_url: str, home: Path, scenario: Callable[[LiveRun, ScriptedInference], Awaitable[None]]
) -> None:
    with ScriptedInference(home) as inference:
        inference.needs(4)
        in_live_service(database_url, home, lambda run: scenario(run, inference), fleet=fleet_with(inference))


def test_training_gets_what_inference_does_not_need_and_gives_it_back(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun, inference: ScriptedInference) -> None:
        await until_loans(run, lambda loans: loans.answered_s is not None, "asked")
        workloads = await run.submit([whole_machine(f"w{number}") for number in range(3)])
        inference.needs(2)
        await until_loans(run, lambda loans: loans.on_loan == 2, "two are lent")
        await until_started(run, workloads)
        # More than there are: all go back, and the rest is a shortfall.
        inference.needs(5)
        loans = await until_loans(run, lambda loans: loans.on_loan == 0 and not loans.returning, "all are back")
        assert (loans.shortfall, loans.wanted_on_loan, loans.forecast) == (1, 0, 1.0)
        await end(run, inference, workloads)
        assert run.count("evicted", cause="reclaimed") == 2
        assert (run.count("loaned"), run.count("reclaimed")) == (2, 2)

    in_lending_service(database_url, tmp_path, scenario)


def test_who_does_not_answer_lends_nothing_more_and_what_returns_goes_on(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun, inference: ScriptedInference) -> None:
        workloads = await begin(run, inference, 2)
        inference.needs(3)
        await until_loans(run, lambda loans: loans.wanted_on_loan == 1, "one is asked back")
        inference.says_nothing()
        silent = await until_loans(run, lambda loans: bool(loans.problem) and not loans.returning, "silence")
        assert silent.on_loan == 1
        assert "does not answer (UNAVAILABLE: it says nothing)" in silent.problem
        asked_s = silent.asked_s or 0.0
        await until_loans(run, lambda loans: (loans.asked_s or 0.0) > asked_s + 20.0, "asked again and again")
        (loans,) = await run.client.loans(cluster="serving")
        assert loans.on_loan == 1
        inference.needs(0)
        await until_loans(run, lambda loans: loans.on_loan == 4 and not loans.problem, "answers again")
        await end(run, inference, workloads)

    in_lending_service(database_url, tmp_path, scenario)


def test_never_on_two_sides_when_inference_wants_something_else_at_every_look(
    database_url: str, tmp_path: Path
) -> None:
    async def scenario(run: LiveRun, inference: ScriptedInference) -> None:
        workloads = await begin(run, inference, 2)
        for lent in (0, 3, 1, 4, 0, 2, 0, 4):
            inference.needs(4 - lent)
            await until_loans(run, lambda loans, lent=lent: loans.wanted_on_loan == lent, f"{lent} are to be lent")  # type: ignore[misc]  # bound now
        inference.needs(4)
        await until_loans(run, lambda loans: loans.on_loan == 0 and not loans.returning, "all are back")
        await end(run, inference, workloads)
        assert run.count("loaned") == run.count("reclaimed")

    in_lending_service(database_url, tmp_path, scenario)


def test_a_loan_of_more_machines_than_there_are_is_refused(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun, inference: ScriptedInference) -> None:
        workloads = await begin(run, inference, 1)
        inference.needs(0, lends=5)
        refused = await until_loans(run, lambda loans: bool(loans.problem), "refused")
        assert refused.problem == "it lends 5 machines, but the cluster has 4; it may lend 0 to 4"
        assert refused.on_loan == 1
        inference.needs(0, lends=3)
        await until_loans(run, lambda loans: loans.on_loan == 3 and not loans.problem, "no more than it lends")
        await end(run, inference, workloads)

    in_lending_service(database_url, tmp_path, scenario)


def test_what_is_overdue_is_ended(tmp_path: Path) -> None:
    """A process that does not stop has a grace of ten minutes, but the machine must be back within a second."""
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(1e6)"
    job = JobSpecification(
        JobName("main"), 1, TaskResources(gpus=8, gpu_model=A100), Command((sys.executable, "-c", stubborn))
    )
    specification = WorkloadSpecification("stubborn", RANKING, (job,), stop_grace_s=600.0)
    with ScriptedInference(tmp_path) as inference, ExitStack() as stack:
        fleet = fleet_with(inference, model=V100)
        service = stack.enter_context(real_service(fleet, (Tenant(RANKING, 1, Quota.of({ANY_GPU_MODEL: 40})),), 60.0))
        (workload,) = service.submit([specification])
        service.until_task_process(workload)
        inference.needs(4, within_s=60.0)
        until_answered(service, 4)
        assert service.task_processes(workload) == []
        patiently(partial(service.client.cancel, workload))
        service.until_all_ended()
        service.check()


@pytest.mark.nightly
def test_nothing_more_is_lent_while_the_inference_side_is_stopped_or_dead(tmp_path: Path) -> None:
    """A process that hangs answers nothing, and nobody refuses the connection; one that is killed is not there at all."""
    with ScriptedInference(tmp_path) as inference, ExitStack() as stack:
        inference.needs(2)
        service = stack.enter_context(
            real_service(fleet_with(inference), (Tenant(RANKING, 1, Quota.of({ANY_GPU_MODEL: 40})),), 60.0)
        )
        until_answered(service, 2)
        workloads = service.submit([whole_machine(f"w{number}") for number in range(3)])
        until_running(service, workloads)
        inference.needs(3)
        until_loans_of(service, lambda loans: loans.wanted_on_loan == 1, "one is asked back")
        inference.stop()
        silent = until_loans_of(service, lambda loans: bool(loans.problem) and not loans.returning, "hangs")
        # What was asked back has gone back although nobody answers; what is on loan stays.
        assert (silent.on_loan, silent.needed_machines) == (1, 3)
        assert "does not answer (DEADLINE_EXCEEDED" in silent.problem
        inference.needs(0)
        asked_s = silent.asked_s or 0.0
        silent = until_loans_of(service, lambda loans: (loans.asked_s or 0.0) > asked_s, "asked again")
        assert silent.on_loan == 1
        inference.go_on()
        until_answered(service, 0)
        inference.kill()
        silent = until_loans_of(service, lambda loans: "UNAVAILABLE" in loans.problem, "is dead")
        assert silent.on_loan == 4
        shown = topmast(service, "loans")
        assert shown.returncode == 0
        assert "serving lends no more: the inference scheduler at" in " ".join(shown.stderr.split())
        (line,) = [line.split() for line in shown.stdout.splitlines() if "serving" in line]
        # Cluster, region, machines, on loan, returning, wanted, needed.
        assert line[:7] == ["serving", "east", "4", "4", "0", "4", "0"]
        (told,) = topmast(service, "loans", "--json").stdout.splitlines()
        assert (json.loads(told)["on_loan"], json.loads(told)["cluster"]) == (4, "serving")
        unknown = topmast(service, "loans", "--cluster", "nowhere")
        assert (unknown.returncode, unknown.stdout) == (3, "")
        assert "there is no inference cluster nowhere" in unknown.stderr
        for workload in workloads:
            patiently(partial(service.client.cancel, workload))
        service.until_all_ended()
        service.check()


@pytest.mark.nightly
def test_never_on_two_sides_whenever_the_region_is_killed(tmp_path: Path) -> None:
    """Inference wants more and less of its machines in turn, and the region's process is killed in the middle of it."""
    rng = np.random.default_rng(11)
    with ScriptedInference(tmp_path) as inference, ExitStack() as stack:
        inference.needs(4)
        fleet = fleet_with(inference)
        service = stack.enter_context(
            real_service(
                fleet, (Tenant(RANKING, 1, Quota.of({ANY_GPU_MODEL: 40})),), 60.0, tiers=TierProcesses.SEPARATE
            )
        )
        watch = stack.enter_context(watching_sides(EmbeddedLayout.of(service.home).url()))
        workloads = service.submit([whole_machine(f"w{number}") for number in range(6)])
        for needed in (0, 3, 1, 4):
            inference.needs(needed, within_s=float(rng.choice([0.0, 60.0, 600.0])))
            time.sleep(float(rng.uniform(0.0, 0.4)))
            killed = service.kill(("regional", "east"))
            service.until_held(("regional", "east"), but_not_by=killed)
            until_answered(service, needed)
        for workload in workloads:
            patiently(partial(service.client.cancel, workload))
        service.until_all_ended()
        service.check()
        assert watch.looks > 10
        assert not watch.found


def until_running(service: RealService, workloads: list[str]) -> None:
    for workload in workloads:
        service.until_workload(workload, lambda shown: shown.state is WorkloadState.RUNNING, "runs")


def until_loans_of(service: RealService, condition: Callable[[ClusterLoans], bool], what: str) -> ClusterLoans:
    deadline_s = time.monotonic() + _PATIENCE_REAL_S
    while True:
        (loans,) = patiently(service.client.loans)
        if condition(loans):
            return loans
        assert time.monotonic() < deadline_s, f"{what}: {loans}"
        time.sleep(0.05)


def topmast(service: RealService, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, told where the service is."""
    program = "from services.command_line.main import main; main()"
    address = (service.home / "address").read_text(encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=os.environ | {"TOPMAST_ADDRESS": address, "COLUMNS": "200", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def until_answered(service: RealService, needed: int) -> None:
    """Waits until so many machines are on loan as inference leaves."""
    deadline_s = time.monotonic() + _PATIENCE_REAL_S
    while True:
        (loans,) = patiently(service.client.loans)
        if (loans.on_loan, loans.returning, loans.needed_machines) == (4 - needed, (), needed):
            return
        assert time.monotonic() < deadline_s, loans
        time.sleep(0.05)


@dataclass
class Sides:
    """What was seen of machines that inference and training would have had at once."""

    looks: int = 0
    found: list[str] = field(default_factory=list)


@contextmanager
def watching_sides(url: str) -> Iterator[Sides]:
    """Looks again and again, each time at one moment of the database."""
    sides, ended = Sides(), threading.Event()

    def look() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            while not ended.is_set():
                rows = connection.execute(
                    """SELECT p.machine FROM placements p JOIN attempts a USING (workload, attempt)
                         JOIN machines m USING (machine)
                        WHERE a.ended_s IS NULL AND m.state IN ('serving', 'serving_down')"""
                ).fetchall()
                sides.looks += 1
                sides.found += [str(machine) for (machine,) in rows]

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield sides
    finally:
        ended.set()
        looking.join()


@pytest.mark.chaos
def test_never_on_two_sides_whenever_the_database_is_killed(tmp_path: Path) -> None:
    """The same, and it is PostgreSQL that is killed, at random points of the transactions that move machines."""
    rng = np.random.default_rng(12)
    with ScriptedInference(tmp_path) as inference, ExitStack() as stack:
        inference.needs(4)
        fleet = fleet_with(inference)
        service = stack.enter_context(real_service(fleet, (Tenant(RANKING, 1, Quota.of({ANY_GPU_MODEL: 40})),), 60.0))
        workloads = service.submit([whole_machine(f"w{number}") for number in range(6)])
        url = EmbeddedLayout.of(service.home).url()
        for needed in (0, 3):
            inference.needs(needed, within_s=float(rng.choice([0.0, 60.0, 600.0])))
            time.sleep(float(rng.uniform(0.0, 0.4)))
            service.until_postgres_replaced(service.kill_postgres())
            with watching_sides(url) as watch:
                until_answered(service, needed)
            assert watch.looks > 0
            assert not watch.found
        for workload in workloads:
            patiently(partial(service.client.cancel, workload))
        service.until_all_ended()
        service.check()
