"""Runs the demo: brings a service up, submits, watches, takes it down, and gives an account that can be checked."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import psutil
from rich.console import Console

from domain.events import JsonValue
from domain.fleet import Fleet
from domain.table import Table
from domain.tenant import Tenant
from domain.workload import WorkloadSpecification
from formats.event_log import read_records
from formats.fleet_file import read_fleet_file
from formats.tenants_file import read_tenants
from services.demo.account import account_of
from services.demo.live_view import LineView, TerminalView, View
from services.demo.options import DemoOptions
from services.demo.real_training import (
    PROGRESS_BEFORE_PREEMPTION,
    preemptor,
    training_stories,
    training_workloads,
)
from services.demo.report import print_report
from services.demo.slice import TraceSlice, make_slice
from services.runtime.host_options import HostOptions
from services.runtime.local import RunningService, down, up
from services.wire.workloads import specification_to_proto
from simulator.validate import validate_log
from topmast import Client, Event
from topmast.v1 import workload_pb2

_LOOK_EVERY_REAL_S = 0.2
_ENDED = ("COMPLETED", "FAILED", "CANCELLED")
_TRAINING_PATIENCE_REAL_S = 45.0


@dataclass(frozen=True, slots=True)
class _Stage:
    """What the demo plays on."""

    fleet: Fleet
    tables: tuple[Table, ...]
    tenants: tuple[Tenant, ...]
    fleet_file: Path
    tenants_file: Path
    home: Path


def run_demo(options: DemoOptions) -> int:
    """Runs it; returns the exit code: 0 when everything ended and no invariant was violated."""
    console = Console(stderr=True)
    began = time.monotonic()
    with _stage(options) as stage, _view(options, console) as view:
        trace_slice = make_slice(options, stage.fleet, stage.tables, stage.tenants)
        speed = (trace_slice.span_s + trace_slice.longest_s) / options.running_real_s
        view.stage("starting PostgreSQL, Ray and ten tiers")
        service = up(
            HostOptions(
                home=stage.home,
                port=0,
                fleet_file=stage.fleet_file,
                tenants_file=stage.tenants_file,
                clock_speed=speed,
            ),
            progress=lambda busy_with: view.stage(f"starting {busy_with}"),
        )
        try:
            summary = _play(options, stage, trace_slice, speed, service, view, began)
        finally:
            down(stage.home)
        summary["wall_s"] = round(time.monotonic() - began, 1)
    if options.json:
        print(json.dumps(summary, indent=2))
    else:
        print_report(Console(), summary)
    return 0 if summary["violations"] == 0 and summary["unfinished"] == 0 else 1


@contextmanager
def _stage(options: DemoOptions) -> Iterator[_Stage]:
    """Files and a home; the home goes away at the end unless it is to be kept."""
    examples = Path(str(files("services.demo"))) / "fleet_and_tenants"
    fleet_file, tenants_file = examples / "fleet.yaml", examples / "tenants.yaml"
    home = options.keep or Path(tempfile.mkdtemp(prefix="topmast-demo-"))
    home = home.expanduser().resolve()
    home.mkdir(parents=True, exist_ok=True)
    try:
        described, tenants = read_fleet_file(fleet_file), tuple(read_tenants(tenants_file))
        yield _Stage(described.fleet, described.tables, tenants, fleet_file, tenants_file, home)
    finally:
        if options.keep is None:
            shutil.rmtree(home, ignore_errors=True)


def _view(options: DemoOptions, console: Console) -> View:
    return TerminalView(console) if console.is_terminal and not options.json else LineView(console)


def _play(
    options: DemoOptions,
    stage: _Stage,
    trace_slice: TraceSlice,
    speed: float,
    service: RunningService,
    view: View,
    began: float,
) -> dict[str, JsonValue]:
    with Client(service.address) as client:
        started = time.monotonic()
        trainings = [client.submit(_message(workload)).workload for workload in training_workloads()]
        peak_mib = _Peak(service.process_id)
        total = len(trace_slice.submissions) + len(trainings) + 1
        replay = _Replay(client, trace_slice, speed, trainings)
        followed = 0
        while True:
            elapsed = time.monotonic() - started
            replay.step(elapsed)
            status = client.status()
            for event in client.events(after_sequence=followed):
                followed = event.sequence
                view.happened(event)
            view.update(status, replay.submitted + len(trainings), total, time.monotonic() - began)
            peak_mib.look()
            ended = sum(status.workloads.get(state, 0) for state in _ENDED)
            if (replay.done and ended >= total) or elapsed > options.limit_real_s:
                break
            time.sleep(_LOOK_EVERY_REAL_S)
        log = stage.home / "events.jsonl"
        _write_log(client.events(), log)
        complete = elapsed <= options.limit_real_s
        report = validate_log(log, stage.fleet, stage.tenants, tables=stage.tables, complete=complete)
        gpus = sum(machine.gpus for region in stage.fleet.regions for machine in region.machines())
        account = account_of(read_records(log), gpus)
        summary: dict[str, JsonValue] = {
            **account.as_json(),
            "violations": report.violations,
            "validation": report.as_json(),
            "real_training": [story.as_json() for story in training_stories(client, trainings)],
            "trace": {
                "source": trace_slice.source,
                "workloads": len(trace_slice.submissions),
                "left_out": trace_slice.left_out,
                "durations_cut": trace_slice.durations_cut,
                "duration_cap_s": options.duration_cap_s,
                "arrivals_scaled_by": trace_slice.arrivals_scaled_by,
            },
            "clock_speed": speed,
            "running_real_s": round(elapsed, 1),
            "peak_memory_mib": round(peak_mib.mib),
            "seed": options.seed,
            "emulated": "trace workloads run no processes: they take their time on a compressed clock;"
            " the machines and GPUs are emulated; PostgreSQL, Ray, gRPC, every decision and the training jobs are real",
        }
        if options.keep is not None:
            summary["event_log"] = str(log)
        return summary


class _Replay:
    """First the real training and the production workload that preempts it, then the trace, each when it is due."""

    def __init__(self, client: Client, trace_slice: TraceSlice, speed: float, trainings: list[str]) -> None:
        self._client = client
        self._slice = trace_slice
        self._speed = speed
        self._trainings = trainings
        self._next = 0
        self._preemptor: str | None = None
        self._trace_began_real_s: float | None = None

    @property
    def submitted(self) -> int:
        return self._next + (self._preemptor is not None)

    @property
    def done(self) -> bool:
        return self._next == len(self._slice.submissions)

    def step(self, elapsed_real_s: float) -> None:
        """Submits everything whose time has come."""
        late = elapsed_real_s > _TRAINING_PATIENCE_REAL_S
        if self._preemptor is None:
            if late or all(self._client.get(name).progress >= PROGRESS_BEFORE_PREEMPTION for name in self._trainings):
                self._preemptor = self._client.submit(_message(preemptor(self._speed))).workload
        elif self._trace_began_real_s is None:
            if late or self._client.get(self._preemptor).attempts:
                self._trace_began_real_s = elapsed_real_s
        else:
            self._submit_due((elapsed_real_s - self._trace_began_real_s) * self._speed)

    def _submit_due(self, elapsed_s: float) -> None:
        due: list[workload_pb2.WorkloadSpecification] = []
        while self._next < len(self._slice.submissions):
            submission = self._slice.submissions[self._next]
            if submission.after_s > elapsed_s:
                break
            due.append(_message(submission.specification))
            self._next += 1
        if due:
            self._client.submit_many(due)


class _Peak:
    """The most memory that the service and its processes held at one time (shared pages counted once per process)."""

    def __init__(self, process_id: int) -> None:
        self._process = psutil.Process(process_id)
        self.mib = 0.0

    def look(self) -> None:
        total = 0
        for process in [self._process, *self._process.children(recursive=True)]:
            try:
                total += process.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        self.mib = max(self.mib, total / 2**20)


def _message(specification: WorkloadSpecification) -> workload_pb2.WorkloadSpecification:
    return specification_to_proto(specification)


def _write_log(events: Iterator[Event], path: Path) -> None:
    with path.open("w", encoding="utf-8") as stream:
        for event in events:
            stream.write(json.dumps(event.as_json()) + "\n")
