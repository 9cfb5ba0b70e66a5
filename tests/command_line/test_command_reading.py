"""Reading commands: plain columns, JSON with stable keys, exit codes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from formats.event_log import read_records
from services.command_line.exit_code import ExitCode
from tests.client.loopback_server import LoopbackServer
from tests.command_line.conftest import Topmast
from topmast import Client, Emulated, JobSpecification, WorkloadSpecification
from topmast.v1 import workload_pb2


@pytest.fixture(autouse=True)
def workloads(server: LoopbackServer) -> None:
    """w1 runs in eu, w2 waits."""
    train = JobSpecification(name="train", tasks=2, gpus=8, gpu_model="A100", command=["python", "train.py"])
    emulated = JobSpecification(gpus=1, emulated=Emulated(duration_s=90.0))
    with Client(server.address) as client:
        client.submit(WorkloadSpecification(tenant="vision", name="resnet", jobs=[train], labels={"team": "x"}))
        client.submit(WorkloadSpecification(tenant="ads", name="[bold]ranker", jobs=[emulated]))
    server.do(lambda: server.topmast.dispatch("w1", {"train": "eu-1"}))


def test_list_shows_the_newest_first_in_plain_columns(topmast: Topmast) -> None:
    listed = topmast("list")
    assert listed.exit_code == 0
    head, newest, oldest = listed.stdout.splitlines()
    assert head.split() == ["WORKLOAD", "NAME", "TENANT", "STATE", "REGION", "GPUS", "SUBMITTED", "REASON"]
    assert newest.split() == ["w2", "[bold]ranker", "ads", "PENDING", "-", "1", "1970-01-01", "00:16:41", "UTC", "-"]
    assert oldest.split() == ["w1", "resnet", "vision", "RUNNING", "eu", "16", "1970-01-01", "00:16:40", "UTC", "-"]


def test_list_filters_and_pages(topmast: Topmast) -> None:
    assert names(topmast("list", "--tenant", "ads", "--json").stdout) == ["w2"]
    assert names(topmast("list", "--state", "running", "--json").stdout) == ["w1"]
    assert names(topmast("list", "--region", "eu", "--name", "res", "--json").stdout) == ["w1"]
    assert names(topmast("list", "--submitted-after", "1970-01-01T00:16:40", "--json").stdout) == ["w2"]
    assert names(topmast("list", "--submitted-before", "1000.5", "--json").stdout) == ["w1"]
    first = topmast("list", "--limit", "1", "--json")
    assert names(first.stdout) == ["w2"]
    assert "--page-token 1" in first.stderr
    assert names(topmast("list", "--limit", "1", "--page-token", "1", "--json").stdout) == ["w1"]
    assert names(topmast("list", "--limit", "1", "--all", "--json").stdout) == ["w2", "w1"]


def names(lines: str) -> list[str]:
    return [json.loads(line)["workload"] for line in lines.splitlines()]


def test_json_of_a_workload_keeps_its_keys(topmast: Topmast) -> None:
    result = json.loads(topmast("get", "w1", "--json").stdout)
    assert list(result) == [
        "workload",
        "specification",
        "state",
        "submitted_s",
        "ended_s",
        "region",
        "progress",
        "checkpoint_progress",
        "throughput",
        "failures",
        "reason",
        "cancel_requested",
        "queue_position",
        "attempts",
        "consolidations",
        "region_diagnoses",
        "remarks",
        "held_by",
        "requeue_requested",
        "revision",
        "waits_for",
        "array",
        "array_index",
        "elements",
        "notification",
    ]
    assert result["state"] == "RUNNING"
    assert result["ended_s"] is None
    assert result["specification"]["jobs"][0]["command"] == ["python", "train.py"]
    assert result["attempts"][0]["placements"][0]["gpu_indices"] == [0, 1]


def test_get_shows_what_it_is_and_where(topmast: Topmast) -> None:
    result = topmast("get", "w1").stdout
    for part in ("resnet", "RUNNING", "2 tasks of 8 A100 GPUs: python train.py", "team=x", "eu-1-m1", "0,1", "64 GiB"):
        assert part in result
    assert "emulated for 1m 30s" in topmast("get", "w2").stdout
    assert "rank 2, priority 2, level 0, over quota" in topmast("get", "w2").stdout


def test_queue_shows_the_order_and_how_many(topmast: Topmast) -> None:
    result = topmast("queue")
    assert result.stdout.splitlines()[1].split()[:8] == ["2", "w2", "[bold]ranker", "ads", "PENDING", "2", "0", "0.500"]
    assert "1 of 1 queued, as of scan pass 7" in result.stderr
    as_json = json.loads(topmast("queue", "--json", "--tenant", "ads").stdout)
    assert as_json["queued"] == 1
    assert as_json["entries"][0]["position"]["rank"] == 2


def test_queue_shows_for_whom_machines_are_kept(server: LoopbackServer, topmast: Topmast) -> None:
    server.do(lambda: server.topmast.keep("w2", ["eu-1-m1", "eu-1-m2"]))
    _, _, empty, head, kept = topmast("queue", "--limit", "1").stdout.splitlines()
    assert (empty, head.split()[-4:]) == ("", ["KEPT", "SINCE", "EXPECTED", "START"])
    assert kept.split()[:8] == ["w2", "[bold]ranker", "ads", "3", "16", "eu", "eu-1", "2"]
    assert kept.split()[8:] == ["1970-01-01", "00:18:20", "UTC", "1970-01-01", "01:18:20", "UTC"]
    (as_json,) = json.loads(topmast("queue", "--json").stdout)["reservations"]
    assert (as_json["machines"], as_json["expected_start_s"]) == (["eu-1-m1", "eu-1-m2"], 4_700.0)
    assert "KEPT" not in topmast("queue", "--tenant", "vision").stdout


def test_status_shows_tiers_regions_and_workloads(topmast: Topmast) -> None:
    result = topmast("status")
    assert result.exit_code == 0
    for part in ("regional  eu    dead", "PENDING", "RUNNING", "GPUS IN USE", "VIOLATIONS", "1970-01-01 00:20:00"):
        assert part in result.stdout
    as_json = json.loads(topmast("status", "--json").stdout)
    assert as_json["workloads"] == {"PENDING": 1, "RUNNING": 1}
    assert as_json["tiers"][0]["tier"] == "global"
    assert as_json["regions"][0]["invariant_violations"] == 41


def test_loans_say_nothing_of_what_inference_needs_before_it_has_answered(topmast: Topmast) -> None:
    shown = topmast("loans")
    head, serving, silent = shown.stdout.splitlines()
    assert head.split()[-4:] == ["NEEDED", "FORECAST", "SHORTFALL", "ANSWERED"]
    assert serving.split()[-6:] == ["1", "25.0%", "0", "1970-01-01", "00:16:40", "UTC"]
    assert silent.split()[-4:] == ["-", "-", "0", "-"]
    assert "eu-silent lends no more: it does not answer" in shown.stderr


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("loans", "there is no inference cluster eu-1; "),
        ("loans", "eu-serving"),
        ("virtual-clusters", "there is no cluster with cells eu-9; did you mean eu-1?"),
    ],
)
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_of_a_cluster_that_is_not_there_it_is_said_which_are(
    topmast: Topmast, command: str, sentence: str, more: tuple[str, ...]
) -> None:
    result = topmast(command, "--cluster", "eu-9" if command == "virtual-clusters" else "eu-1", *more)
    assert (result.exit_code, result.stdout) == (ExitCode.NOT_FOUND, "")
    assert sentence in result.stderr


def test_virtual_clusters_are_shown_with_their_cells_and_gpus(topmast: Topmast) -> None:
    lines = topmast("virtual-clusters").stdout.splitlines()
    shown = [line.split() for line in lines if line]
    assert ["eu-1", "eu", "16", "8", "0", "4", "4"] in shown
    assert ["vision", "eu-1", "16", "8", "0", "3", "0", "4"] in shown
    assert ["vision", "eu-1", "a100", "machine", "-", "8", "2", "1", "1", "0"] in shown
    as_json = json.loads(topmast("virtual-clusters", "--json").stdout)
    assert as_json["levels"][0]["owned"] == 2
    assert (
        "there is no cluster with cells us-1; did you mean eu-1?"
        in topmast("virtual-clusters", "--cluster", "us-1").stderr
    )


def test_get_shows_cells_and_whether_they_are_lost(server: LoopbackServer, topmast: Topmast) -> None:
    def lose() -> None:
        server.topmast.workloads["w1"].attempts[0].cells.add(
            job="train", virtual_cluster="vision", hierarchy="a100", levels=["machine", "machine"], downgraded=True
        )

    server.do(lose)
    line = topmast("get", "w1").stdout.splitlines()[-1]
    assert line.split() == ["train", "vision", "a100", "2", "in", "machine", "-", "downgraded"]
    (cells,) = json.loads(topmast("get", "w1", "--json").stdout)["attempts"][0]["cells"]
    assert cells["downgraded"] is True


def test_watch_shows_each_change_once(server: LoopbackServer, topmast: Topmast) -> None:
    server.do(lambda: server.topmast.move("w1", workload_pb2.WORKLOAD_STATE_COMPLETED, "all tasks ended well"))
    watched = topmast("watch", "w1")
    assert watched.exit_code == 0
    assert watched.stdout == "w1 COMPLETED in eu attempt 1; all tasks ended well\n"
    assert json.loads(topmast("watch", "w1", "--json").stdout)["state"] == "COMPLETED"


def test_watch_says_by_its_exit_code_that_it_failed(server: LoopbackServer, topmast: Topmast) -> None:
    server.do(lambda: server.topmast.move("w1", workload_pb2.WORKLOAD_STATE_FAILED, "exit code 3"))
    watched = topmast("watch", "w1")
    assert watched.exit_code == 1
    assert "FAILED" in watched.stdout
    assert "exit code 3" in watched.stdout


# ---------------------------------------------------------------- logs


@pytest.fixture
def printed(server: LoopbackServer) -> None:
    server.start("eu-1")
    server.do(lambda: server.topmast.print_line("eu-1", "step 1\nst", job="train"))
    server.do(lambda: server.topmast.print_line("eu-1", "ep 2\nlast", job="train"))


@pytest.mark.usefixtures("printed")
def test_logs_of_several_tasks_are_whole_lines_with_their_task(topmast: Topmast) -> None:
    assert topmast("logs", "w1").stdout == "[train/0] step 1\n[train/0] step 2\n[train/0] last\n"
    lines = [json.loads(line) for line in topmast("logs", "w1", "--json").stdout.splitlines()]
    assert lines[1] == {"cluster": "eu-1", "attempt": 1, "job": "train", "task": 0, "line": "step 2"}


@pytest.mark.usefixtures("printed")
def test_logs_of_one_task_are_its_bytes(topmast: Topmast) -> None:
    assert topmast("logs", "w1", "--job", "train", "--task", "0").stdout == "step 1\nstep 2\nlast"


def test_logs_of_what_was_not_placed_say_why(server: LoopbackServer, topmast: Topmast) -> None:
    server.do(lambda: server.topmast.move("w2", workload_pb2.WORKLOAD_STATE_WAITING, "no GPUs are free"))
    result = topmast("logs", "w2")
    assert (result.exit_code, result.stdout) == (0, "")
    why = "workload w2 has not been placed yet, it is WAITING: no GPUs are free"
    assert result.stderr == f"nothing is printed yet: {why}; --follow waits for the first line\n"
    server.do(lambda: server.topmast.move("w2", workload_pb2.WORKLOAD_STATE_CANCELLED, "wrong data"))
    never = topmast("logs", "w2")
    assert (never.exit_code, never.stderr) == (
        3,
        "topmast: workload w2 was never placed, it is CANCELLED: wrong data\n",
    )


# ---------------------------------------------------------------- events


@pytest.fixture
def started(server: LoopbackServer) -> None:
    placement = [{"job": "train", "machine": "eu-1-m1", "gpus": [0, 1], "cpus": 8.5, "memory_gib": 64}]
    server.do(
        lambda: server.topmast.add_event(
            t=1_501.25,
            event="started",
            workload="w1",
            attempt=1,
            tenant="vision",
            region="eu",
            details={"within_quota": True, "placement": placement},
        )
    )


@pytest.mark.usefixtures("started")
def test_events_are_reported_as_in_the_log(topmast: Topmast) -> None:
    (line,) = topmast("events", "--json", "--event", "started").stdout.splitlines()
    assert line == (
        '{"t":1501.25,"event":"started","workload":"w1","attempt":1,"tenant":"vision","region":"eu",'
        '"placement":[{"cpus":8.5,"gpus":[0,1],"job":"train","machine":"eu-1-m1","memory_gib":64}],"within_quota":true}'
    )


@pytest.mark.usefixtures("started")
def test_events_are_readable_too(topmast: Topmast) -> None:
    lines = topmast("events").stdout.splitlines()
    assert len(lines) == 3
    assert lines[2].startswith("1970-01-01 00:25:01 UTC  started          w1#1  vision  eu  placement=[")
    assert topmast("events", "--workload", "w2").stdout.count("\n") == 1
    assert topmast("events", "--after", "30").stdout == ""


@pytest.mark.usefixtures("started")
@pytest.mark.parametrize("name", ["events.jsonl", "events.jsonl.gz"])
def test_events_are_written_to_a_file_that_formats_reads(topmast: Topmast, tmp_path: Path, name: str) -> None:
    log = tmp_path / name
    written = topmast("events", "--output", str(log))
    assert written.exit_code == 0
    assert written.stdout == ""
    assert "3 events written" in written.stderr
    assert [record["event"] for record in read_records(log)] == ["submitted", "submitted", "started"]
    packed = log.read_bytes()
    text = gzip.decompress(packed) if name.endswith(".gz") else packed
    assert text.decode() == topmast("events", "--json").stdout
