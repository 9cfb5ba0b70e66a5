"""What users get wrong is told in their own words: options, files and lines, and what became of each of several."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from google.rpc import error_details_pb2

from services.command_line.commands.changing import change
from services.command_line.commands.drain import drain
from services.command_line.commands.run import run
from services.command_line.option_names import option_name
from tests.client.loopback_server import LoopbackServer
from tests.command_line.conftest import Topmast
from tests.command_line.test_command_changing import WORKLOAD

RUN = ("run", "--tenant", "vision", "--gpus", "1")


def _refuse(server: LoopbackServer, method: str, *problems: tuple[str, str], as_precondition: bool = False) -> None:
    """The next call of the method is refused as the service does."""
    sentence = "; ".join(f"{field}: {description}" for field, description in problems)
    detail: Message
    if as_precondition:
        detail = error_details_pb2.PreconditionFailure(
            violations=[
                error_details_pb2.PreconditionFailure.Violation(
                    type="NO_REGION_CAN_HOST", subject=field, description=f"{field}: {description}"
                )
                for field, description in problems
            ]
        )
    else:
        detail = error_details_pb2.BadRequest(
            field_violations=[
                error_details_pb2.BadRequest.FieldViolation(field=field, description=description)
                for field, description in problems
            ]
        )
    code = grpc.StatusCode.FAILED_PRECONDITION if as_precondition else grpc.StatusCode.INVALID_ARGUMENT
    server.do(lambda: server.topmast.fail(method, code, sentence, detail))


# ---------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("field", "option"),
    [
        ("specification.jobs[0].resources.cpus", "--cpus"),
        ("specification.jobs[0].resources.memory_gib", "--memory-gib"),
        ("specification.jobs[0].resources.gpus", "--gpus"),
        ("specification.jobs[0].resources.gpu_model", "--gpu-model"),
        ("specification.jobs[0].tasks", "--tasks"),
        ("specification.jobs[0].max_tasks", "--max-tasks"),
        ("specification.jobs[0].environment", "--env"),
        ("specification.jobs[0].environment.A", "--env A"),
        ("specification.jobs[0].command.arguments[3]", "COMMAND"),
        ("specification.jobs[0].emulated.duration_s", "--emulate-s"),
        ("specification.jobs[0].profile.skew", "--skew"),
        ("specification.jobs[0].affinity.within", "--within"),
        ("specification.jobs[0].pinned_cell", "--pinned-cell"),
        ("specification.jobs[0].across_clusters", "--across-clusters"),
        ("specification.name", "--name"),
        ("specification.tenant", "--tenant"),
        ("specification.regions[1]", "--region"),
        ("specification.labels.team", "--label team"),
        ("specification.tables[0].table", "--table"),
        ("specification.retry.max_retries", "--max-retries"),
        ("specification.stop_grace_s", "--stop-grace-s"),
        ("specification.priority", "--priority"),
        ("idempotency_key", "--idempotency-key"),
    ],
)
@pytest.mark.parametrize("as_precondition", [False, True])
def test_run_speaks_of_its_options(
    server: LoopbackServer, topmast: Topmast, field: str, option: str, as_precondition: bool
) -> None:
    _refuse(server, "SubmitWorkload", (field, "is odd"), as_precondition=as_precondition)
    refused = topmast(*RUN, "--", "train")
    assert refused.exit_code == 4
    assert refused.stderr == f"topmast: {option}: is odd\n"


def test_a_word_of_the_sentence_is_no_field(server: LoopbackServer, topmast: Topmast) -> None:
    _refuse(server, "GetWorkload", ("workload", "is empty; name a workload"))
    assert topmast("get", "w1").stderr == "topmast: WORKLOAD: is empty; name a workload\n"


def test_the_option_that_was_given_is_meant(server: LoopbackServer, topmast: Topmast) -> None:
    for options, field, option in (
        (("--prefer-within", "rack"), "specification.jobs[0].affinity.within", "--prefer-within"),
        (("--fresh-table", "clicks"), "specification.tables[0].table", "--fresh-table"),
    ):
        _refuse(server, "SubmitWorkload", (field, "is odd"))
        assert f"topmast: {option}: is odd" in topmast(*RUN, *options, "--", "train").stderr


def test_an_absurd_number_is_refused_by_its_option(server: LoopbackServer, topmast: Topmast) -> None:
    for option in ("--tasks", "--max-tasks"):
        refused = topmast(*RUN, option, "1000000000000", "--", "train")
        assert refused.exit_code == 4
        assert refused.stderr.startswith(f"topmast: {option}: is 1000000000000; at most")
    assert topmast(*RUN, "--env", "A=\udc80", "--", "train").exit_code == 4
    assert not server.topmast.calls["SubmitWorkload"]


@pytest.mark.parametrize(
    ("method", "arguments", "field", "option"),
    [
        ("ListWorkloads", ("list", "--name", "x"), "name_contains", "--name"),
        ("ListWorkloads", ("list",), "page_size", "--limit"),
        ("ListWorkloads", ("list", "--submitted-after", "2026-01-01"), "submitted_after_s", "--submitted-after"),
        ("WatchEvents", ("events", "--after", "9"), "after_sequence", "--after"),
        ("WatchEvents", ("events", "--workload", "-"), "workload", "--workload"),
        ("GetWorkload", ("get", "-w"), "workload", "WORKLOAD"),
        ("CancelWorkload", ("cancel", "w1", "--reason", "x"), "reason", "--reason"),
        ("CancelWorkload", ("cancel", "w1"), "workload", "WORKLOAD"),
    ],
)
def test_other_commands_speak_of_theirs(
    server: LoopbackServer, topmast: Topmast, method: str, arguments: tuple[str, ...], field: str, option: str
) -> None:
    _refuse(server, method, (field, "is odd"))
    said = tuple(argument if argument != "-w" else "w1" for argument in arguments)
    refused = topmast(*said)
    assert refused.exit_code == 4
    assert refused.stderr == f"topmast: {option}: is odd\n"


# ---------------------------------------------------------------- files and lines


def test_submit_names_files_lines_and_paths(server: LoopbackServer, topmast: Topmast, tmp_path: Path) -> None:
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    one.write_text(WORKLOAD)
    two.write_text(f"{WORKLOAD}---\n# a remark\n{WORKLOAD}")
    _refuse(
        server,
        "SubmitWorkloads",
        ("requests[0].specification.jobs[0].resources.cpus", "is missing"),
        ("requests[2].specification.tenant", "there is no tenant adds"),
    )
    refused = topmast("submit", "-f", str(one), "-f", str(two))
    lines = WORKLOAD.splitlines()
    resources = next(number for number, line in enumerate(lines, 1) if "resources" in line)
    tenant = next(number for number, line in enumerate(lines, 1) if line.startswith("tenant")) + len(lines) + 2
    assert refused.exit_code == 4
    assert f"{one}: line {resources}, jobs[0].resources.cpus: is missing" in refused.stderr
    assert f"{two} (document 2): line {tenant}, tenant: there is no tenant adds" in refused.stderr
    assert "requests[" not in refused.stderr


def test_what_is_wrong_in_a_later_document_has_its_line(topmast: Topmast, tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(WORKLOAD + "---\n" + WORKLOAD.replace("tasks: 2", "tasks: -2"))
    refused = topmast("submit", "-f", str(file))
    line = len(WORKLOAD.splitlines()) + 1 + 5
    assert f"{file} (document 2): line {line}, jobs[0].tasks: must be" in refused.stderr


@pytest.mark.parametrize(
    ("command", "said", "field", "option"),
    [
        (change, {}, "max_time_s", "--max-time"),
        (drain, {}, "within_s", "--deadline"),
        (drain, {}, "deadline_s", "--deadline"),
        (run, {"function": "a:b"}, "specification.jobs[0].python", "--function"),
        (run, {"python": "/bin/p"}, "specification.jobs[0].runtime.python", "--python"),
        (run, {"no_retry_on": [1]}, "specification.retry.never_on[0]", "--no-retry-on"),
    ],
)
def test_fields_of_other_names_have_their_options(
    command: Callable[..., object], said: dict[str, object], field: str, option: str
) -> None:
    assert option_name(command, said, field) == option


# ---------------------------------------------------------------- several at once


def test_where_one_is_not_there_none_is_cancelled(server: LoopbackServer, topmast: Topmast) -> None:
    for _ in range(2):
        topmast(*RUN, "--", "train")
    refused = topmast("cancel", "w1", "w8", "w2", "w9")
    assert (refused.exit_code, refused.stdout) == (3, "")
    assert refused.stderr == "topmast: there is no workload w8, w9; none of the 4 was cancelled\n"
    assert not server.topmast.calls["CancelWorkload"]


def test_what_became_of_each_is_said(topmast: Topmast) -> None:
    for _ in range(3):
        topmast(*RUN, "--", "train")
    topmast("cancel", "w2")
    several = topmast("cancel", "w1", "w2", "w3", "w1")
    assert several.exit_code == 4
    assert several.stdout == "w1 is cancelled\nw3 is cancelled\n"
    assert several.stderr == "topmast: w2 was not cancelled: it cannot be cancelled; w2: has ended\n"


# ---------------------------------------------------------------- nothing


def test_what_matches_nothing_says_so(topmast: Topmast) -> None:
    topmast(*RUN, "--", "train")
    for arguments, out, err in (
        (("list", "--tenant", "nosuch"), "workloads: none\n", ""),
        (("list", "--tenant", "nosuch", "--json"), "", "workloads: none\n"),
        (("events", "--workload", "nosuch"), "", "events: none\n"),
    ):
        answered = topmast(*arguments)
        assert (answered.exit_code, answered.stdout, answered.stderr) == (0, out, err)
    topmast("cancel", "w1")
    queue = topmast("queue")
    assert (queue.exit_code, queue.stdout) == (0, "queue: none\n")


@pytest.mark.parametrize("command", ["submit", "apply"])
@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_an_empty_file_is_refused(topmast: Topmast, command: str, text: str) -> None:
    refused: Any = topmast(command, "-f", "-", standard_input=text)
    assert refused.exit_code == 4
    assert refused.stdout == ""
    assert refused.stderr.startswith("topmast: standard input: ")


def test_logs_of_what_is_not_there(server: LoopbackServer, topmast: Topmast) -> None:
    topmast(*RUN, "--", "train")
    server.start("eu-1")
    server.do(lambda: server.topmast.dispatch("w1", {"main": "eu-1"}))
    for arguments, sentence in (
        (("--task", "5"), "workload w1 has no task 5; it has task 0 only"),
        (("--job", "nosuch"), "workload w1 has no job nosuch; its jobs: main"),
    ):
        answered = topmast("logs", "w1", *arguments)
        assert answered.exit_code == 3
        assert sentence in answered.stderr
