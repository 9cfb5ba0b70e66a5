"""A local service as `topmast up` starts it: all tiers in one process, which may die, and may be taken down and up again."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest

from domain.workload import Emulated
from formats.fleet_file import dump_fleet
from services.command_line.exit_code import ExitCode
from services.execution.watched_tasks import WatchedTasks
from services.metrics.targets import served_metrics
from services.runtime.executor_kind import ExecutorKind
from services.runtime.home import HomeLayout
from services.runtime.host_options import HostOptions
from services.runtime.local import down, up
from services.runtime.tier_children import TierChildren, TiersNotStarted
from services.runtime.tier_messages import ChildSettings, Surroundings
from services.runtime.tier_place import TierKind, TierPlace, TierProcesses
from services.security.home_tokens import home_token
from services.tiers.free_port import PortNotAvailable
from services.wire.fleets import tenant_to_proto
from services.wire.workloads import specification_to_proto
from tests.live.interrupts import COMMAND_THAT_HEEDS_INTERRUPTS
from tests.live.real_service import PATIENCE_REAL_S, patiently, real_service
from tests.live.real_workloads import CLOCK_SPEED, SMALL_FLEET, TWO_TENANTS, training
from tests.live.world import RANKING, one_job
from topmast import Client

pytestmark = pytest.mark.live

_EAST = ("regional", "east")


def test_tiers_that_share_a_process_survive_its_end_and_tasks_save_before_the_service_is_down() -> None:
    with real_service(SMALL_FLEET, TWO_TENANTS, CLOCK_SPEED, tiers=TierProcesses.SHARED) as service:
        regions, clusters = ("east", "west"), ("east-a", "west-a")
        tiers = [("global", ""), *(("regional", name) for name in regions), *(("cluster", name) for name in clusters)]
        assert len({service.until_held(tier) for tier in tiers}) == 1
        release = service.home / "release"
        workload = training("training", release, function="train_and_save_only_when_told_to_stop")
        (name,) = service.submit([workload])
        reached = service.until_progress(name, 1).progress
        task = service.until_task_process(name)
        # 1. The process of all tiers is killed: another one takes its place, and adopts what runs.
        killed = service.kill(_EAST)
        service.until_held(_EAST, but_not_by=killed)
        service.until_held(("cluster", "east-a"), but_not_by=killed)
        reached = service.until_progress(name, reached + 1).progress
        assert service.task_processes(name) == [task]
        # 2. It has saved nothing yet. Down waits for that, and says so.
        assert service.workload(name).checkpoint_progress == 0
        stages: list[str] = []
        assert down(service.home, progress=stages.append)
        assert any(stage.startswith("1 running task saves its work, 30 s at most") for stage in stages), stages
        assert not list(HomeLayout(service.home).ray_sessions.glob("session_2*")), (
            "sockets and logs of a Ray that is gone"
        )
        assert not WatchedTasks(service.home).folder.exists()
        # 3. It goes on from there.
        assert not up(service.options).was_running
        again = service.until_workload(
            name, lambda now: len(now.attempts) > 1 and now.state.name == "RUNNING", "it runs again"
        )
        assert again.checkpoint_progress >= reached
        service.until_progress(name, again.checkpoint_progress + 1)
        release.touch()
        service.until_all_ended()
        assert patiently(lambda: service.client.get(name)).state.name == "COMPLETED"
        service.check()


def test_an_emulated_service_starts_no_ray() -> None:
    with tempfile.TemporaryDirectory(prefix="topmast-") as folder:
        home = Path(folder)
        (home / "fleet.yaml").write_text(dump_fleet(SMALL_FLEET), encoding="utf-8")
        options = HostOptions(
            home=home, port=0, fleet_file=home / "fleet.yaml", executor=ExecutorKind.EMULATED, clock_speed=CLOCK_SPEED
        )
        try:
            with socket.create_server(("127.0.0.1", 0)) as other:
                taken = options.model_copy(update={"metrics_port": other.getsockname()[1]})
                with pytest.raises(PortNotAvailable, match="name a free one with --metrics-port"):
                    up(taken)
            service = up(options)
            started = psutil.Process(service.process_id).children(recursive=True)
            (tiers,) = (process for process in started if "services.runtime.tier_child" in process.cmdline())
            assert {process.name() for process in started}.isdisjoint({"raylet", "gcs_server"})
            with Client(service.address, token=home_token(home)) as client:
                assert {tier.process_id for tier in client.status().tiers} == {tiers.pid}
                client.apply_tenants([tenant_to_proto(tenant) for tenant in TWO_TENANTS])
                (workload,) = client.submit_many(
                    [specification_to_proto(one_job("short", RANKING, Emulated(60.0, 0.0)))]
                )
                assert client.wait(workload.workload).state.name == "COMPLETED"
            assert not HomeLayout(home).ray_sessions.exists()
            # All tiers of the process say at one address what they did, and Prometheus finds it.
            (address,) = service.metrics
            assert json.loads((home / "metrics" / "tiers.json").read_text(encoding="utf-8"))[0]["targets"] == [address]
            with urlopen(f"http://{address}/metrics") as answer:
                told = answer.read().decode()
            assert 'topmast_calls_total{code="OK",method="SubmitWorkloads",tier="global"} 1.0' in told
            assert 'topmast_attempts_ended_total{end="completed",region="east"} 1.0' in told
            assert re.search(r'topmast_orders_total{cluster="[\w-]+",order="execute"} 1.0', told)
        finally:
            down(home)
        assert served_metrics(home) == ()


def test_who_interrupts_up_is_told_that_it_goes_on() -> None:
    with tempfile.TemporaryDirectory(prefix="topmast-") as folder:
        try:
            with subprocess.Popen(
                [*COMMAND_THAT_HEEDS_INTERRUPTS, "up", "--emulate", "--port", "0", "--home", folder],
                stderr=subprocess.PIPE,
                text=True,
            ) as process:
                assert process.stderr is not None
                said = process.stderr.readline()
                # What the host itself is busy with: it has begun.
                while "the database" not in said:
                    said += process.stderr.readline()
                process.send_signal(signal.SIGINT)
                said += process.stderr.read()
            assert process.returncode == ExitCode.INTERRUPTED
            assert "Topmast goes on starting; 'topmast status' says when it is up, 'topmast down' ends it" in said
        finally:
            assert down(Path(folder))


def test_a_port_that_is_taken_before_the_tier_listens_is_told_at_once(database_url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            children = TierChildren(
                ChildSettings("", tmp_path, ExecutorKind.EMULATED, kernels=True, configuration_file=None), shared=True
            )
            children.prepare()
            children.surround(Surroundings(database_url, ray_address=None))
            try:
                children.start([TierPlace(TierKind.GLOBAL, f"127.0.0.1:{port}")])
                with pytest.raises(PortNotAvailable, match=f"port {port} of 127.0.0.1 is taken by process "):
                    await children.until_listening(PATIENCE_REAL_S)
            finally:
                await children.end()

    asyncio.run(scenario())


def test_settings_that_cannot_be_read_are_told_by_the_process_that_reads_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = ChildSettings(
            "", tmp_path, ExecutorKind.EMULATED, kernels=True, configuration_file=tmp_path / "none.yaml"
        )
        children = TierChildren(settings, shared=True)
        children.prepare()
        try:
            with pytest.raises(TiersNotStarted, match=r"none\.yaml"):
                await children.until_prepared()
        finally:
            await children.end()

    asyncio.run(scenario())
