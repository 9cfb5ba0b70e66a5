"""hold, release, requeue, change and cancel -l, against a service that answers: what they say, and what they refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.command_line.exit_code import ExitCode
from tests.command_line.conftest import Topmast
from tests.global_scheduler_service.service import service_in_background

RUN = ("run", "--tenant", "ads", "--gpus", "1", "--emulate-s", "60")


@pytest.fixture
def topmast(database_url: str) -> Iterator[Topmast]:
    """A global scheduler without regions: what is submitted waits."""
    with service_in_background(database_url) as address:
        yield Topmast({"TOPMAST_ADDRESS": address, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})


def submitted(topmast: Topmast, *options: str) -> str:
    result = topmast(*RUN, *options)
    assert result.exit_code == ExitCode.OK, result.stderr
    return result.stdout.splitlines()[-1]


def workload(topmast: Topmast, name: str) -> dict[str, object]:
    line = next(line for line in topmast("get", name, "--json").stdout.splitlines() if line.startswith("{"))
    found = json.loads(line)
    assert isinstance(found, dict)
    return found


def test_a_day_of_a_workload(topmast: Topmast) -> None:
    first, second = submitted(topmast, "--hold", "--max-time", "1h30m"), submitted(topmast, "--label", "sweep=a")
    assert "held by its user, as submitted" in topmast("get", first).stdout
    assert "1h 30m for each attempt" in topmast("get", first).stdout
    held = topmast("hold", second, "--reason", "no data yet")
    assert held.stdout.splitlines()[-1] == f"{second} is held"
    assert str(workload(topmast, second)["reason"]).endswith(": no data yet")
    released = topmast("release", first, second)
    assert released.stdout.splitlines()[-2:] == [f"{first} is released", f"{second} is released"]

    changed = topmast(
        "change", second, "--region", "coast", "--label", "note=x", "--label", "sweep-", "--max-time", "2h",
        "--priority-class", "high",
    )  # fmt: skip
    assert changed.stdout.splitlines()[-1] == f"{second} is changed (PENDING)"
    said = workload(topmast, second)["specification"]
    assert isinstance(said, dict)
    assert (said["regions"], said["labels"], said["max_time_s"]) == (["coast"], {"note": "x"}, 7_200.0)
    assert said["priority_class"] == "high"

    again = topmast("requeue", second)
    assert again.stdout.splitlines()[-1] == f"{second} waits in the queue already"
    assert topmast("cancel", second).exit_code == ExitCode.OK
    anew = topmast("requeue", second).stdout.splitlines()[-1]
    new = anew.rpartition(" ")[2]
    assert anew == f"{second} has ended (CANCELLED); it is submitted anew as {new}"
    assert workload(topmast, new)["state"] == "PENDING"


def test_what_is_for_one_task_asks_for_an_element_of_an_array(topmast: Topmast) -> None:
    array = submitted(topmast, "--array", "0-1")
    for command in (("exec", array, "--", "ls"), ("port-forward", array, "8080"), ("logs", array)):
        refused = topmast(*command)
        assert refused.exit_code == ExitCode.REFUSED
        assert f"{array} is an array; name one element of it: {array}[INDEX]" in refused.stderr


def test_an_array_that_there_is_not_is_not_an_empty_list(topmast: Topmast) -> None:
    for options in ((), ("--json",), ("--all",)):
        nothing = topmast("list", "--array", "nope", *options)
        assert nothing.exit_code == ExitCode.NOT_FOUND
        assert "there is no array 'nope'" in nothing.stderr


def test_labels_choose_what_is_listed_and_cancelled(topmast: Topmast) -> None:
    names = {submitted(topmast, "--label", f"sweep={value}") for value in ("a", "b", "b")}
    chosen = topmast("list", "-l", "sweep=b", "--json")
    listed = {json.loads(line)["workload"] for line in chosen.stdout.splitlines() if line.startswith("{")}
    assert len(listed) == 2
    assert listed < names
    asked = topmast("cancel", "-l", "sweep=b", "--tenant", "ads")
    assert asked.exit_code == ExitCode.NOT_WELL
    assert "cancel 2 workloads (" in asked.stderr
    assert "repeat it with --yes" in asked.stderr
    assert {workload(topmast, name)["state"] for name in listed} == {"PENDING"}
    done = topmast("cancel", "-l", "sweep=b", "--tenant", "ads", "--yes", "--reason", "enough")
    assert done.exit_code == ExitCode.OK
    assert {workload(topmast, name)["state"] for name in listed} == {"CANCELLED"}
    nothing = topmast("cancel", "-l", "sweep=b", "--yes")
    assert nothing.exit_code == ExitCode.NOT_FOUND
    told = topmast("events", "-l", "sweep=a", "--event", "submitted", "--json")
    (event,) = [json.loads(line) for line in told.stdout.splitlines() if line.startswith("{")]
    assert {event["workload"]} == names - listed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "--tenant", "ads", "--cpus", "1", "--max-time", "90", "--", "true"), "write 90s, 30m, 2h"),
        (("run", "--tenant", "ads", "--cpus", "1", "--no-retry-on", "3", "--", "true"), "say --max-retries as well"),
        (("change", "w-1"), "say what is to be different"),
        (("change", "w-1", "--priority", "9"), "is no priority; give 0 (the highest) to 6, or tenant"),
        (("change", "w-1", "--region", "east", "--anywhere"), "give --region or --anywhere, not both"),
        (("change", "w-1", "--label", "note"), "reads neither NAME=VALUE nor NAME-"),
        (("list", "-l", "=b"), "write key=value, key!=value, key or !key"),
        (("cancel",), "name workloads, or choose them with --label and --tenant"),
        (("cancel", "w-1", "--tenant", "ads"), "one of the two"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_asked(arguments: tuple[str, ...], words: str) -> None:
    result = Topmast({"TOPMAST_ADDRESS": "127.0.0.1:1", "COLUMNS": "300", "NO_COLOR": "1", "TERM": "dumb"})(*arguments)
    assert result.exit_code == ExitCode.USAGE
    assert words in " ".join(result.stderr.split())


def test_a_day_of_an_array(topmast: Topmast) -> None:
    array = submitted(topmast, "--array", "0-9%2", "--name", "sweep")
    listed = topmast("list").stdout
    assert listed.count("sweep") == 1
    assert "10 elements: 10 pending" in listed
    assert (
        topmast("list", "--expand").stdout.count("sweep")
        == topmast("list", "--array", array).stdout.count("sweep")
        == 10
    )
    whole = topmast("get", array).stdout
    assert "0-9%2; 8 elements not in the queue before others have ended" in whole
    assert f"element 3 of {array}" in topmast("get", f"{array}[3]").stdout
    elements = workload(topmast, array)["elements"]
    assert isinstance(elements, dict)
    assert (elements["size"], elements["at_most"], elements["states"]) == (10, 2, {"PENDING": 10})
    assert workload(topmast, f"{array}[3]")["array_index"] == 3
    assert topmast("hold", array).stdout.splitlines()[-1] == f"{array}: 10 elements held"
    assert topmast("release", array).stdout.splitlines()[-1] == f"{array}: 10 elements released"
    assert "is an array" in topmast("change", array, "--label", "a=b").stderr
    logs = topmast("logs", array)
    assert logs.exit_code != ExitCode.OK
    assert f"{array}[INDEX]" in logs.stderr
    assert topmast("cancel", f"{array}[3]").stdout.splitlines()[-1] == f"{array}[3] is cancelled"
    assert topmast("cancel", array).stdout.splitlines()[-1] == f"{array} is cancelled"
    assert "10 elements: 10 cancelled" in topmast("list").stdout


def test_a_bad_array_is_refused_by_its_option_and_in_a_file(topmast: Topmast, tmp_path: Path) -> None:
    bad = {"5-3": "goes backwards", "0-9%0": "1 or more", "a-b": "no index", "0-1e9": "no index", "1,1": "twice"}
    for written, words in bad.items():
        file = tmp_path / "sweep.yaml"
        file.write_text(
            f"name: sweep\ntenant: ads\narray: {written}\n"
            "jobs: [{name: main, tasks: 1, resources: {gpus: 1}, emulated: {duration_s: 9}}]\n"
        )
        for command in (
            RUN,
            (*RUN, "--dry-run"),
            ("submit", "-f", str(file)),
            ("submit", "--dry-run", "-f", str(file)),
        ):
            refused = topmast(*command, *(("--array", written) if command[0] == "run" else ()))
            said = " ".join(refused.stderr.split())
            assert refused.exit_code != ExitCode.OK
            assert "array" in said
            assert words in said
    assert "workloads: none" in topmast("list", "--json").stderr
