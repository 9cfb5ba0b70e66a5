"""What must be true at the end of a run, however much was broken in it. Nothing is repaired before it is looked at."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from simulator.validate import validate
from tests.chaos.driver.history import Kind, Operation
from tests.chaos.driver.linearizability import check
from tests.chaos.driver.workloads import Witness
from tests.live.real_service import PATIENCE_REAL_S, RealService, patiently
from tests.live.running import is_end
from topmast import Event

_LOOK_INTERVAL_REAL_S = 0.5
_SHOWN = 5

_PLACEMENT_GROUPS = """
import sys
import ray
from services.runtime.code_on_ray import join_ray
from ray.util import placement_group_table
join_ray(sys.argv[1], namespace="topmast", log_to_driver=False)
left = [group["name"] for group in placement_group_table().values() if group["state"] != "REMOVED"]
print("\\n".join(left))
"""


@dataclass
class Closing:
    """What was found; `problems` is empty after a run that kept all promises."""

    problems: list[str] = field(default_factory=list)
    acknowledged: int = 0
    workloads: int = 0
    """In the log: also those whose submission nobody heard the answer of."""
    ends: dict[str, int] = field(default_factory=dict)
    events: int = 0
    calls: int = 0
    calls_unknown: int = 0
    violations: int = 0
    """That the validator found."""
    not_linearizable: int = 0
    overlaps: int = 0
    real_attempts: int = 0
    lost: int = 0
    ended_twice: int = 0

    def require(self, condition: object, problem: str) -> None:
        if not condition:
            self.problems.append(problem)


def until_all_ended(service: RealService, acknowledged: set[str]) -> list[Event]:
    """The whole log, when everything in it has ended, and all that was acknowledged is in it; or when nothing ends any more."""
    last, since_s = -1, time.monotonic()
    while True:
        events = list(patiently(lambda: tuple(service.client.events())))
        ended = {str(event.workload) for event in events if is_end(event)}
        known = {str(event.workload) for event in events if event.event == "submitted"} | acknowledged
        if known <= ended:
            return events
        if len(ended) != last:
            last, since_s = len(ended), time.monotonic()
        if time.monotonic() - since_s > PATIENCE_REAL_S:
            return events
        time.sleep(_LOOK_INTERVAL_REAL_S)


def check_events(closing: Closing, service: RealService, events: Sequence[Event], acknowledged: set[str]) -> None:
    """Every acknowledged workload, and every other in the log, ended exactly once; the validator finds nothing."""
    ends = Counter(str(event.workload) for event in events if is_end(event))
    known = {str(event.workload) for event in events if event.event == "submitted"}
    lost = sorted((acknowledged | known) - set(ends))
    twice = sorted(name for name, count in ends.items() if count > 1)
    closing.acknowledged, closing.workloads, closing.events = len(acknowledged), len(known), len(events)
    closing.ends = dict(sorted(Counter(event.event for event in events if is_end(event)).items()))
    closing.lost, closing.ended_twice = len(lost), len(twice)
    closing.require(not lost, f"{len(lost)} workloads have not ended, such as {lost[:_SHOWN]}")
    closing.require(not twice, f"{len(twice)} workloads have ended more than once, such as {twice[:_SHOWN]}")
    closing.require(acknowledged <= known, "acknowledged workloads are not in the log")
    report = validate([event.as_json() for event in events], service.fleet, service.tenants, complete=True)
    closing.violations = report.violations
    shown = [str(violation) for violation in report.shown[:_SHOWN]]
    closing.require(report.violations == 0, f"the validator found {report.violations} violations: {shown}")


def check_history(closing: Closing, history: Sequence[Operation]) -> None:
    """What clients saw is what some order of their calls explains, workload by workload."""
    closing.calls = len(history)
    closing.calls_unknown = sum(not one.is_known for one in history)
    found = check(history)
    closing.not_linearizable = len(found)
    closing.require(not found, f"{len(found)} histories make no sense, such as {found[:_SHOWN]}")


def acknowledged_in(history: Sequence[Operation]) -> set[str]:
    return {one.workload for one in history if one.kind is Kind.SUBMIT and one.is_known}


def check_tasks(closing: Closing, witness: Witness) -> None:
    """No attempt of a real workload met another one, or anything that another one had started."""
    begun = [line for line in witness.lines.read_text(encoding="utf-8").splitlines() if line.startswith("begin ")]
    overlaps = witness.overlaps.read_text(encoding="utf-8").splitlines()
    twice = [line for line, count in Counter(begun).items() if count > 1]
    closing.real_attempts, closing.overlaps = len(begun), len(overlaps)
    closing.require(not overlaps, f"attempts overlapped: {overlaps[:_SHOWN]}")
    closing.require(not twice, f"the same attempt began twice: {twice[:_SHOWN]}")


def check_nothing_runs(closing: Closing, service: RealService) -> None:
    """Before the service is taken down: everything has ended, so no task and no placement group is left."""
    deadline_s = time.monotonic() + 30.0
    while left := [one.pid for one in service.processes() if "sleep 10000" in " ".join(one.cmdline())]:
        if time.monotonic() > deadline_s:
            break
        time.sleep(_LOOK_INTERVAL_REAL_S)
    closing.require(not left, f"processes of tasks are left: {left}")
    groups = _placement_groups(service)
    closing.require(not groups, f"placement groups are left: {groups[:_SHOWN]}")


def _placement_groups(service: RealService) -> list[str]:
    deadline_s = time.monotonic() + 30.0
    while True:
        address, environment = _ray(service)
        command = [sys.executable, "-c", _PLACEMENT_GROUPS, address]
        asked = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_REAL_S
        )
        assert asked.returncode == 0, asked.stderr[-3_000:]
        groups = [line for line in asked.stdout.splitlines() if line.strip()]
        if not groups or time.monotonic() > deadline_s:
            return groups
        time.sleep(_LOOK_INTERVAL_REAL_S)


def _ray(service: RealService) -> tuple[str, dict[str, str]]:
    """The address of the GCS, from the command line of a process of Ray, and an environment that may join it."""
    for process in service.processes():
        for argument in process.cmdline():
            if argument.startswith("--gcs-address="):
                return argument.partition("=")[2], process.environ()
    raise AssertionError("the service has no Ray")
