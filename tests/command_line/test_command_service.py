"""Commands that bring something up: their options, and the database that is really there."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner, Result

from services.command_line.main import app
from services.database.embedded import is_running
from services.runtime.handed_options import handed_over
from services.runtime.home import HomeLayout
from services.runtime.host_lock import HOME_TAKEN, HostLockTaken, host_lock, host_lock_is_held
from services.runtime.host_options import HostOptions
from services.runtime.host_record import HostRecord, HostState
from services.runtime.option_differences import digests_of
from services.runtime.process_identity import ProcessIdentity
from topmast_server.processes import module_command


def topmast(*arguments: str, **environment: str) -> Result:
    return CliRunner(env={"TOPMAST_DATABASE_URL": "", **environment}).invoke(app, list(arguments))


@pytest.mark.parametrize(
    "command",
    [
        "up",
        "down",
        "clean",
        "demo",
        "serve global",
        "serve regional",
        "serve cluster",
        "db upgrade",
        "db downgrade",
        "version",
    ],
)
def test_every_command_explains_itself(command: str) -> None:
    result = topmast(*command.split(), "--help")
    assert result.exit_code == 0
    assert f"{command} [OPTIONS]" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("serve", "cluster", "--region", "eu", "--cluster", "eu-1", "--executor", "slurm"), "slurm"),
        (("serve", "cluster", "--region", "eu"), "--cluster"),
        (("serve", "regional"), "--region"),
        (("up", "--port", "70000"), "--port"),
        (("up", "--clock-speed", "0"), "--clock-speed"),
        (("up", "--fleet", "nowhere/fleet.yaml"), "nowhere/fleet.yaml"),
        (("demo", "--trace", "nowhere/trace.csv"), "nowhere/trace.csv"),
    ],
)
def test_wrong_usage_is_reported(arguments: tuple[str, ...], sentence: str) -> None:
    result = topmast(*arguments)
    assert result.exit_code == 2
    assert sentence in result.stderr


@pytest.mark.parametrize(
    ("option", "content", "sentence"),
    [
        ("--config", "priorities:\n  2: {ordering: nonsense}\n", "priorities[2].ordering: there is no policy nonsense"),
        ("--config", "priorities:\n  2: {ordering: srsf}\n", "set 'estimates: true'"),
        ("--config", "scan: {period: 5}\n", "scan.period: is not a field that exists here"),
        ("--fleet", "regions: east\n", "regions: must be a list"),
        ("--tenants", "tenants:\n  - {tenant: ads, priority: 9}\n", "tenants[0].priority: must be at most 6, not 9"),
    ],
)
def test_up_starts_nothing_with_a_wrong_file(tmp_path: Path, option: str, content: str, sentence: str) -> None:
    file, home = tmp_path / "wrong.yaml", tmp_path / "home"
    file.write_text(content)
    refused = topmast("up", option, str(file), "--home", str(home))
    assert refused.exit_code == 4
    assert refused.stderr.startswith(f"topmast: {file}: ")
    assert sentence in refused.stderr
    assert not home.exists()


@pytest.mark.parametrize("option", ["--config", "--fleet", "--tenants"])
def test_up_reads_pipes_as_files(tmp_path: Path, option: str) -> None:
    """Its host reads them again, in a process of its own."""
    pipe, home = tmp_path / "pipe", tmp_path / "home"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("surprise: 1\n",), daemon=True)
    writer.start()
    refused = topmast("up", option, str(pipe), "--home", str(home))
    assert refused.exit_code == 4
    assert "surprise: is not a field that exists here" in refused.stderr
    assert not home.exists()


def test_up_says_which_options_of_a_running_service_differ_and_what_to_do(tmp_path: Path) -> None:
    fleet, tenants, settings = (tmp_path / name for name in ("fleet.yaml", "tenants.yaml", "scheduler.yaml"))
    fleet.write_text("regions:\n  - {region: east, clusters: []}\n")
    tenants.write_text("tenants:\n  - {tenant: ads, priority: 1}\n")
    settings.write_text("scan: {period_real_s: 1}\n")
    started = HostOptions(home=tmp_path, port=7000, fleet_file=fleet, configuration_file=settings)
    process = psutil.Process()
    HostRecord(
        process.pid,
        process.create_time(),
        HostState.READY,
        address="127.0.0.1:7000",
        options=started.model_dump(mode="json"),
        digests=digests_of(started),
    ).write(HomeLayout(tmp_path).host_record)
    home = ("--home", str(tmp_path))
    same = topmast("up", *home, "--fleet", str(fleet), "--config", str(settings), "--port", "7000")
    assert (same.exit_code, same.stderr) == (0, "")
    settings.write_text("scan: {period_real_s: 2}\n")
    others = (
        "--tenants",
        str(tenants),
        "--config",
        str(settings),
        "--port",
        "7460",
        "--clock-speed",
        "20",
        "--emulate",
    )
    left = topmast("up", *home, *others)
    assert left.exit_code == 0, left.stderr
    restart = "take the service down (topmast down) and bring it up with it"
    without = "was not taken over: the service was started without it;"
    with_former = f"was not taken over: the service was started with {settings} as it was then;"
    assert left.stderr.splitlines() == [
        f"--tenants {tenants} {without} topmast apply -f FILE applies it to what is up",
        f"--config {settings} {with_former} settings are read at the start: {restart}",
        f"--port 7460 was not taken over: the service was started with 7000; {restart}",
        f"--clock-speed 20.0 {without} the clock is kept from the first start of a home on: take another home (--home)",
        f"--emulate {without} {restart}",
    ]
    told = json.loads(topmast("up", *home, *others, "--json").stdout)
    assert [one["option"] for one in told["not_taken_over"]] == [
        *("--tenants", "--config", "--port", "--clock-speed", "--emulate")
    ]


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (
            HostState.STARTING,
            "is starting the service of {home} already (busy with Ray); wait until it is up, or end it",
        ),
        (HostState.STOPPING, "is stopping the service of {home}; try again when it has ended"),
        (None, "is just beginning to start the service of {home}; wait until it is up"),
    ],
)
def test_up_leaves_a_home_alone_that_somebody_else_starts_or_stops(
    tmp_path: Path, state: HostState | None, sentence: str
) -> None:
    process, layout = psutil.Process(), HomeLayout(tmp_path)
    if state is not None:
        HostRecord(process.pid, process.create_time(), state, "Ray").write(layout.host_record)
    with host_lock(layout.host_lock):
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        refused = topmast("up", "--home", str(tmp_path), "--port", "0")
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert refused.exit_code == 5
    assert sentence.format(home=tmp_path) in refused.stderr
    assert f"process {process.pid} is " in refused.stderr


def test_up_knows_a_host_that_lives_from_one_that_has_ended(tmp_path: Path) -> None:
    layout = HomeLayout(tmp_path)

    def up_of_a_record(record: HostRecord) -> tuple[int, str]:
        record.write(layout.host_record)
        with socket.create_server(("127.0.0.1", 0)) as other:
            tried = topmast("up", "--home", str(tmp_path), "--port", str(other.getsockname()[1]))
        return tried.exit_code, tried.stdout + tried.stderr

    ours, an_hour_s = ProcessIdentity.of(psutil.Process()), 3600.0
    # The clock of the machine was set back meanwhile: what is made of it says that the process began at another time.
    jumped = HostRecord(
        ours.process_id,
        ours.started_s + an_hour_s,
        HostState.READY,
        address="127.0.0.1:7000",
        process_started_ticks=ours.started_ticks,
    )
    code, said = up_of_a_record(jumped)
    assert (code, "Topmast was already up at 127.0.0.1:7000" in said) == (0, True), said
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        ended = ProcessIdentity.of(psutil.Process(process.pid))
        process.kill()
        # Nobody has looked at its end yet.
        while psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE:
            os.sched_yield()
        zombie = HostRecord(ended.process_id, ended.started_s, HostState.READY, address="127.0.0.1:7000")
        code, said = up_of_a_record(zombie)
    assert (code, "is taken by process" in said) == (4, True), said


def test_a_home_in_which_nothing_can_be_written_is_refused_in_one_sentence() -> None:
    # Nobody can write there, root included.
    home = "/proc/topmast/home"
    refused = topmast("up", "--home", home, "--port", "0")
    assert (refused.exit_code, refused.stdout) == (4, "")
    (sentence,) = refused.stderr.splitlines()
    assert sentence.startswith("topmast: nothing can be written in /proc (")
    assert sentence.endswith(
        f"so that there can be no service in {home}: make it writable, or name another folder with --home or TOPMAST_HOME"
    )


def test_a_second_host_of_a_home_ends_before_it_has_done_anything(tmp_path: Path) -> None:
    layout = HomeLayout(tmp_path)
    with host_lock(layout.host_lock), pytest.raises(HostLockTaken), host_lock(layout.host_lock):
        raise AssertionError("the lock was given twice")
    with host_lock(layout.host_lock), handed_over(HostOptions(home=tmp_path).model_dump_json()) as descriptor:
        command = module_command("services.runtime.host", str(descriptor))
        assert subprocess.run(command, check=False, pass_fds=(descriptor,)).returncode == HOME_TAKEN
        assert not layout.host_record.exists()
        assert not is_running(tmp_path)
    assert not host_lock_is_held(layout.host_lock)


def test_up_on_a_port_that_another_process_has_starts_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    other = (
        "import socket, sys; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1]); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", other], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        run = "from services.command_line.main import main; main()"
        command = [sys.executable, "-c", run, "up", "--port", port, "--home", str(home)]
        up = subprocess.run(command, capture_output=True, text=True, check=False)
        process.communicate()
    assert up.returncode == 4
    assert f"topmast: port {port} of 127.0.0.1 is taken by process {process.pid} ({sys.executable} -c " in up.stderr
    assert up.stderr.endswith("; name a free one with --port, or --port 0 for any\n")
    assert "Traceback" not in up.stderr
    assert not home.exists()
    assert not [one for one in psutil.process_iter(["cmdline"]) if str(home) in " ".join(one.info["cmdline"] or ())]


def test_down_without_a_service_is_no_error(tmp_path: Path) -> None:
    assert topmast("down", "--home", str(tmp_path)).stdout == f"no Topmast was up from {tmp_path}\n"
    assert json.loads(topmast("down", "--json", TOPMAST_HOME=str(tmp_path)).stdout) == {"was_running": False}


def test_a_database_that_does_not_answer_is_unavailable(tmp_path: Path) -> None:
    away = "postgresql://nobody@127.0.0.1:1/nothing"
    result = topmast("db", "upgrade", "--home", str(tmp_path), "--database-url", away)
    assert result.exit_code == 5
    assert result.stderr.startswith("topmast: no database answers at TOPMAST_DATABASE_URL")
    assert topmast("db", "upgrade", "--database-url", "mysql://x").exit_code == 4


@pytest.mark.live
def test_a_cluster_manager_without_its_ray_says_so_at_once(database_url: str, tmp_path: Path) -> None:
    configuration = tmp_path / "scheduler.yaml"
    configuration.write_text("tasks: {allow_root: true}\n")
    serve = (
        *("serve", "cluster", "--region", "east", "--cluster", "east-a", "--config", str(configuration)),
        *("--home", str(tmp_path), "--database-url", database_url),
    )
    command = [sys.executable, "-c", "from services.command_line.main import main; main()", *serve]
    environment = {**os.environ, "RAY_ADDRESS": "127.0.0.1:1"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 5, ended.stderr
    assert "topmast: no Ray answers at 127.0.0.1:1 (" in ended.stderr
    assert ended.stderr.endswith("start its head there with 'ray start --head', or correct RAY_ADDRESS\n")
    assert "Traceback" not in ended.stderr


@pytest.mark.live
def test_the_tables_of_the_embedded_database_go_up_and_down(tmp_path: Path) -> None:
    home = ("--home", str(tmp_path))
    upgraded = topmast("db", "upgrade", *home)
    assert upgraded.exit_code == 0, upgraded.stderr
    assert "(before: empty)" in upgraded.stdout
    result = json.loads(topmast("db", "current", *home, "--json").stdout)
    assert result["current"] == result["newest"]
    refused = topmast("db", "upgrade", *home, "--revision", "no-such")
    assert refused.exit_code == 4
    assert "no-such" in refused.stderr
    assert topmast("db", "downgrade", *home, "base").stdout == "the database is empty\n"
    assert not is_running(tmp_path), "a command that starts the server stops it again"
