"""Commands that change something: submit, run, apply, cancel."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from formats.workload_file import parse_workloads
from services.wire.workloads import specification_from_proto
from tests.client.loopback_server import LoopbackServer
from tests.command_line.conftest import Topmast
from topmast.v1 import workload_pb2

REFUSAL = (grpc.StatusCode.FAILED_PRECONDITION, "no more today", ())

WORKLOAD = """\
name: click-model
tenant: ads
jobs:
  - name: trainer
    tasks: 2
    resources: {gpus: 8, gpu_model: A100}
    command: [python, train.py]
"""

FLEET = """\
regions:
  - region: east
    clusters:
      - cluster: east-a
        machine_groups:
          - {count: 2, gpu_model: A100, gpus: 8, cpus: 96, memory_gib: 1152}
"""

TENANTS = """\
tenants:
  - {tenant: ads, priority: 1, quota: {gpus: {A100: 8}, cpus: 256}}
  - {tenant: vision, priority: 2, quota: {gpus: 16}}
"""


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that submit pack the folder in which they are typed."""
    folder = tmp_path / "typed-here"
    folder.mkdir()
    monkeypatch.chdir(folder)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "workload.yaml").write_text(WORKLOAD)
    (tmp_path / "fleet.yaml").write_text(FLEET)
    (tmp_path / "tenants.yaml").write_text(TENANTS)
    return tmp_path


# ---------------------------------------------------------------- submit


def test_submit_prints_the_names_of_the_workloads(server: LoopbackServer, topmast: Topmast, files: Path) -> None:
    two = WORKLOAD + "---\n" + WORKLOAD.replace("click-model", "second")
    submitted = topmast("submit", "-f", str(files / "workload.yaml"), "-f", "-", standard_input=two)
    assert submitted.exit_code == 0, submitted.stderr
    assert submitted.stdout == "w1\nw2\nw3\n"
    sent = specification_from_proto(server.topmast.workloads["w1"].specification)
    assert (replace(sent, package=""),) == parse_workloads(WORKLOAD)
    assert server.topmast.workloads["w3"].specification.name == "second"


def test_submit_again_with_the_same_key_is_harmless(topmast: Topmast, files: Path) -> None:
    arguments = ("submit", "-f", str(files / "workload.yaml"), "--idempotency-key", "nightly", "--json")
    assert json.loads(topmast(*arguments).stdout) == {"workload": "w1", "existed": False, "remarks": []}
    assert json.loads(topmast(*arguments).stdout) == {"workload": "w1", "existed": True, "remarks": []}


@pytest.mark.parametrize(("state", "code"), [("COMPLETED", 0), ("FAILED", 1), ("CANCELLED", 1)])
def test_submit_may_wait_for_the_end(
    server: LoopbackServer, topmast: Topmast, files: Path, state: str, code: int
) -> None:
    arguments = ("submit", "-f", str(files / "workload.yaml"), "--idempotency-key", "k")
    topmast(*arguments)
    ended = workload_pb2.WorkloadState.Value(f"WORKLOAD_STATE_{state}")
    server.do(lambda: server.topmast.move("w1", ended))
    waited = topmast(*arguments, "--wait")
    assert waited.exit_code == code
    assert waited.stdout == "w1\n"
    assert f"w1 {state}" in waited.stderr


def test_submit_names_what_is_wrong_in_the_file(topmast: Topmast, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(WORKLOAD.replace("tasks: 2", "tasks: none"))
    refused = topmast("submit", "-f", str(bad))
    assert refused.exit_code == 4
    assert f"{bad}: line 5, jobs[0].tasks" in refused.stderr
    assert refused.stdout == ""


def test_submit_shows_what_was_accepted_before_a_refusal(
    server: LoopbackServer, topmast: Topmast, tmp_path: Path
) -> None:
    many = tmp_path / "many.yaml"
    many.write_text("---\n".join([WORKLOAD] * 1_001))
    server.do(lambda: server.topmast.failures.update(SubmitWorkloads=[None, REFUSAL]))
    refused = topmast("submit", "-f", str(many))
    assert refused.exit_code == 4
    assert refused.stdout.splitlines() == [f"w{number + 1}" for number in range(1_000)]
    assert refused.stderr == "topmast: no more today (the first 1000 workloads were accepted)\n"


# ---------------------------------------------------------------- run


def test_run_submits_a_workload_with_one_job(server: LoopbackServer, topmast: Topmast) -> None:
    ran = topmast(
        *("run", "--tenant", "vision", "--gpus", "8", "--tasks", "2", "--max-tasks", "4", "--gpu-model", "A100"),
        *("--cpus", "12.5", "--memory-gib", "100", "--region", "eu", "--region", "us", "--table", "clicks"),
        *(
            "--fresh-table",
            "users",
            "--env",
            "SEED=1=2",
            "--env",
            "NO_COLOR",
            "--label",
            "team=x",
            "--max-retries",
            "2",
        ),
        *(
            "--stop-grace-s",
            "5",
            "--consolidate",
            "--skew",
            "0.7",
            "--",
            "python",
            "train.py",
            "--epochs",
            "3",
            "--json",
        ),
    )
    assert ran.exit_code == 0, ran.stderr
    assert ran.stdout == "w1\n"
    sent = server.topmast.workloads["w1"].specification
    (job,) = sent.jobs
    assert (sent.name, sent.tenant, list(sent.regions)) == ("train", "vision", ["eu", "us"])
    assert list(job.command.arguments) == ["python", "train.py", "--epochs", "3", "--json"]
    assert (job.tasks, job.max_tasks, job.consolidate, job.profile.skew) == (2, 4, True, 0.7)
    assert (job.resources.gpus, job.resources.cpus, job.resources.memory_gib) == (8, 12.5, 100.0)
    assert dict(job.environment) == {"SEED": "1=2", "NO_COLOR": "1"}
    assert not job.across_clusters
    assert [(table.table, table.fresh) for table in sent.tables] == [("clicks", False), ("users", True)]
    assert (dict(sent.labels), sent.retry.max_retries, sent.stop_grace_s) == ({"team": "x"}, 2, 5.0)


def test_run_says_how_close_together_tasks_are_to_be(server: LoopbackServer, topmast: Topmast) -> None:
    job = ("--gpus", "1", "--tasks", "4", "--function", "jobs:train")
    topmast("run", "--tenant", "vision", "--within", "rack", "--pinned-cell", "corner", "--yields-to-downgrade", *job)
    topmast("run", "--tenant", "vision", "--prefer-within", "machine", *job)
    first, second = (server.topmast.workloads[name].specification.jobs[0] for name in ("w1", "w2"))
    assert (first.affinity.within, first.affinity.preferred) == ("rack", False)
    assert (first.pinned_cell, first.yields_to_downgrade) == ("corner", True)
    assert (second.affinity.within, second.affinity.preferred, second.pinned_cell) == ("machine", True, "")
    both = topmast("run", "--tenant", "vision", "--within", "rack", "--prefer-within", "machine", *job)
    assert both.exit_code == 2
    assert "not both" in both.stderr


def test_run_says_that_tasks_may_be_in_several_clusters(server: LoopbackServer, topmast: Topmast) -> None:
    topmast("run", "--tenant", "vision", "--gpus", "8", "--tasks", "9", "--across-clusters", "--function", "jobs:train")
    assert server.topmast.workloads["w1"].specification.jobs[0].across_clusters


def test_run_needs_no_dashes_before_the_program(server: LoopbackServer, topmast: Topmast) -> None:
    topmast("run", "--tenant", "vision", "--gpus", "1", "python", "train.py", "--gpus", "5")
    (job,) = server.topmast.workloads["w1"].specification.jobs
    assert list(job.command.arguments) == ["python", "train.py", "--gpus", "5"]
    assert job.resources.gpus == 1


def test_run_takes_other_entry_points(server: LoopbackServer, topmast: Topmast) -> None:
    topmast("run", "--tenant", "vision", "--gpus", "1", "--function", "jobs:train", "--name", "n")
    topmast("run", "--tenant", "vision", "--gpus", "1", "--emulate-s", "60")
    assert server.topmast.workloads["w1"].specification.jobs[0].python.target == "jobs:train"
    assert server.topmast.workloads["w2"].specification.jobs[0].emulated.duration_s == 60.0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "say what to run"),
        (("--emulate-s", "0"), "is 0; work takes more than 0 seconds"),
        (("--function", "a:b", "--", "python"), "only one of them"),
        (("--env", "NOT_SET_ANYWHERE", "--", "python"), "does not read NAME=VALUE; it is not set here"),
        (("--label", "x", "--", "python"), "'x' does not read NAME=VALUE"),
        (("--gpus", "-1", "--", "python"), "greater than or equal to 0"),
    ],
)
def test_run_says_how_it_is_used(topmast: Topmast, arguments: tuple[str, ...], sentence: str) -> None:
    refused = topmast("run", "--tenant", "vision", *arguments)
    assert refused.exit_code == 2
    assert sentence in refused.stderr


def test_run_follows_logs_to_the_end(server: LoopbackServer, topmast: Topmast) -> None:
    arguments = ("run", "--tenant", "vision", "--gpus", "1", "--idempotency-key", "k", "--follow", "--", "train")
    server.start("eu-1")
    prepare = topmast(*arguments[:7], "--", "train")
    assert prepare.stdout == "w1\n"
    server.do(lambda: server.topmast.dispatch("w1", {"main": "eu-1"}))
    server.do(lambda: server.topmast.print_line("eu-1", "step 1\n"))
    server.do(lambda: server.topmast.end_log("eu-1"))
    server.do(lambda: server.topmast.move("w1", workload_pb2.WORKLOAD_STATE_FAILED, "exit code 3"))
    followed = topmast(*arguments)
    assert followed.exit_code == 1
    assert followed.stdout == "w1\nstep 1\n"
    assert "w1 FAILED in eu attempt 1; exit code 3" in followed.stderr


def test_run_follows_what_is_cancelled_before_it_ran(server: LoopbackServer, topmast: Topmast) -> None:
    arguments = ("run", "--tenant", "vision", "--gpus", "1", "--idempotency-key", "k")
    topmast(*arguments, "--", "train")
    server.do(lambda: server.topmast.move("w1", workload_pb2.WORKLOAD_STATE_CANCELLED, "not wanted"))
    followed = topmast(*arguments, "--follow", "--", "train")
    assert followed.exit_code == 1
    assert "w1 CANCELLED" in followed.stderr


# ---------------------------------------------------------------- apply and cancel


def test_apply_recognises_files_by_their_content(server: LoopbackServer, topmast: Topmast, files: Path) -> None:
    # In whichever order they come: both are applied in one call.
    applied = topmast("apply", "-f", str(files / "tenants.yaml"), "-f", str(files / "fleet.yaml"))
    assert applied.exit_code == 0, applied.stderr
    assert applied.stdout == "fleet applied: 1 region, 1 cluster, 2 machines, 16 GPUs\ntenants applied: 2\n"
    assert server.topmast.fleet.tenants.tenants[1].gpu_quota["any"] == 16
    as_json = json.loads(topmast("apply", "-f", str(files / "tenants.yaml"), "--json").stdout)
    assert as_json == {"tenants": 2}


def test_apply_takes_both_from_one_stream(topmast: Topmast) -> None:
    applied = topmast("apply", "-f", "-", "--json", standard_input=f"{FLEET}---\n{TENANTS}")
    assert json.loads(applied.stdout) == {
        "fleet": {"regions": 1, "clusters": 1, "machines": 2, "gpus": 16},
        "tenants": 2,
    }


def test_apply_takes_quotas_by_priority_as_the_documents_write_them(server: LoopbackServer, topmast: Topmast) -> None:
    tenants = "tenants:\n  - tenant: ads\n    priority: 1\n    quota: {gpus: 3}\n    quotas:\n      2: {gpus: 8}\n"
    applied = topmast("apply", "-f", "-", standard_input=tenants)
    assert applied.exit_code == 0, applied.stderr
    [ads] = server.topmast.tenants.tenants
    assert {priority: dict(quota.gpu_quota) for priority, quota in ads.further_quotas.items()} == {2: {"any": 8}}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (WORKLOAD, "has neither 'regions' (a fleet) nor 'tenants' at its top level; a workload is submitted"),
        ("just text", "has neither 'regions' (a fleet) nor 'tenants'"),
        (f"{FLEET}---\n{FLEET}", "is a second fleet"),
        (f"{FLEET}---\n{TENANTS.replace('A100', 'H100')}", "H100"),
        (FLEET.replace("count: 2", "count: -2"), "count"),
        ("regions: [", "standard input"),
        ("# nothing yet", "is empty; it must have 'regions' (a fleet) or 'tenants'"),
    ],
    ids=["workload", "text", "two_fleets", "unknown_model", "bad_count", "no_yaml", "empty"],
)
def test_apply_applies_nothing_when_something_is_wrong(
    server: LoopbackServer, topmast: Topmast, text: str, sentence: str
) -> None:
    refused = topmast("apply", "-f", "-", standard_input=text)
    assert refused.exit_code == 4
    assert sentence in refused.stderr
    assert not server.topmast.calls


def test_cancel_shows_what_happened_to_each(topmast: Topmast, files: Path) -> None:
    topmast("submit", "-f", str(files / "workload.yaml"))
    topmast("submit", "-f", str(files / "workload.yaml"))
    cancelled = topmast("cancel", "w1", "w2", "--reason", "a mistake")
    assert cancelled.stdout == "w1 is cancelled\nw2 is cancelled\n"
    again = topmast("cancel", "w1", "--json")
    assert again.exit_code == 4
    assert again.stderr == "topmast: it cannot be cancelled; w1: has ended\n"
