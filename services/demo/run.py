"""Runs the demo: brings a service up, submits, watches, takes it down, and gives an account that can be checked."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
from rich.console import Console

from domain.events import JsonValue
from domain.workload import WorkloadSpecification
from formats.event_log import read_records
from services.database.embedded import EmbeddedLayout
from services.demo.account import account_of, mapping
from services.demo.live_view import LineView, TerminalView, View
from services.demo.mechanisms import every_mechanism
from services.demo.options import DemoOptions
from services.demo.real_training import (
    PROGRESS_BEFORE_PREEMPTION,
    preemptor,
    training_stories,
    training_workloads,
)
from services.demo.report import print_report
from services.demo.slice import TraceSlice, make_slice
from services.demo.stage import Stage, make_stage
from services.demo.staged_workloads import StagedWorkloads, all_staged
from services.demo.warehouse import (
    CheckedCopies,
    WarehousePlan,
    checked_copies,
)
from services.profiling.stored import keep_profiles
from services.runtime.host_options import HostOptions
from services.runtime.local import RunningService, down, up
from services.runtime.tier_place import TierProcesses
from services.security.home_tokens import home_token
from services.wire.workloads import specification_to_proto
from simulator.validate import validate_log
from topmast import Client, Event
from topmast.v1 import workload_pb2

_LOOK_EVERY_REAL_S = 0.2
_ENDED = ("COMPLETED", "FAILED", "CANCELLED")
_STAGED_PATIENCE_REAL_S = 45.0
_MOST_MOVES = 200
_MEMORY_EVERY_REAL_S = 2.0


def run_demo(options: DemoOptions) -> int:
    """Runs it; returns the exit code: 0 when everything ended, no invariant was violated, and every copy of a table is whole."""
    console = Console(stderr=True)
    began = time.monotonic()
    with _stage(options) as stage, _view(options, console) as view:
        trace_slice = make_slice(options, stage.fleet, stage.warehouse.tables, stage.tenants, sorted(stage.profiles))
        speed = (trace_slice.span_s + trace_slice.longest_s) / options.running_real_s
        view.stage("starting PostgreSQL, Ray and twelve tiers")
        service = up(
            HostOptions(
                home=stage.home,
                port=0,
                fleet_file=stage.fleet_file,
                tenants_file=stage.tenants_file,
                configuration_file=stage.configuration_file,
                clock_speed=speed,
                tiers=TierProcesses.SEPARATE,
            ),
            progress=lambda busy_with: view.stage(f"starting {busy_with}"),
        )
        try:
            summary = _play(options, stage, trace_slice, speed, service, view, began)
        finally:
            down(stage.home, at_once=True)
        summary["wall_s"] = round(time.monotonic() - began, 1)
    if options.json:
        print(json.dumps(summary, indent=2))
    else:
        print_report(Console(), summary)
    whole = not mapping(summary["warehouse"])["files_wrong"]
    return 0 if summary["violations"] == 0 and summary["unfinished"] == 0 and whole else 1


@contextmanager
def _stage(options: DemoOptions) -> Iterator[Stage]:
    """Files and a home; the home goes away at the end unless it is to be kept."""
    home = options.keep or Path(tempfile.mkdtemp(prefix="topmast-demo-"))
    home = home.expanduser().resolve()
    home.mkdir(parents=True, exist_ok=True)
    try:
        yield make_stage(home)
    finally:
        if options.keep is None:
            shutil.rmtree(home, ignore_errors=True)


def _view(options: DemoOptions, console: Console) -> View:
    return TerminalView(console) if console.is_terminal and not options.json else LineView(console)


def _play(
    options: DemoOptions,
    stage: Stage,
    trace_slice: TraceSlice,
    speed: float,
    service: RunningService,
    view: View,
    began: float,
) -> dict[str, JsonValue]:
    token = home_token(stage.home)
    with Client(service.address, token=token) as client:
        keep_profiles(EmbeddedLayout.of(stage.home).url(), stage.profiles)
        client.data.import_folder(stage.warehouse.catalog)
        started = time.monotonic()
        trainings = [client.submit(_message(workload)).workload for workload in training_workloads()]
        staged = all_staged(client, speed)
        peak_mib = _Peak(service.process_id)
        replay = _Replay(client, trace_slice, speed, trainings, staged)
        plan = WarehousePlan(service.address, token)
        followed = 0
        while True:
            elapsed = time.monotonic() - started
            replay.step(elapsed)
            if replay.trace_began:
                plan.begin()
            status = client.status()
            for event in client.events(after_sequence=followed):
                followed = event.sequence
                view.happened(event)
            view.update(status, replay.submitted, replay.total, time.monotonic() - began)
            peak_mib.look()
            ended = sum(status.workloads.get(state, 0) for state in _ENDED)
            over = replay.done and ended >= replay.total and plan.applied is not None and not _tables_move(client)
            if over or elapsed > options.limit_real_s:
                break
            time.sleep(_LOOK_EVERY_REAL_S)
        log = stage.home / "events.jsonl"
        _write_log(client.events(), log)
        return {
            **_figures(stage, log, speed, complete=over),
            "warehouse": _checked_warehouse(client, stage, log).as_json(),
            "real_training": [story.as_json() for story in training_stories(client, trainings)],
            "trace": {
                "source": trace_slice.source,
                "workloads": len(trace_slice.submissions),
                "left_out": trace_slice.left_out,
                "durations_cut": trace_slice.durations_cut,
                "duration_cap_s": options.duration_cap_s,
                "arrivals_scaled_by": trace_slice.arrivals_scaled_by,
            },
            "staged": sum(each.total for each in staged),
            "clock_speed": speed,
            "running_real_s": round(elapsed, 1),
            "peak_memory_mib": round(peak_mib.mib),
            "seed": options.seed,
            "emulated": "trace workloads run no processes: they take their time on a compressed clock; the machines and GPUs"
            " are emulated; PostgreSQL, Ray, gRPC, every decision, the files of tables and the training jobs are real",
            **({"event_log": str(log)} if options.keep is not None else {}),
        }


def _figures(stage: Stage, log: Path, speed: float, *, complete: bool) -> dict[str, JsonValue]:
    """What the event log says: what came out, which mechanisms acted, and whether any invariant was violated."""
    report = validate_log(
        log, stage.fleet, stage.tenants, tables=stage.warehouse.tables, complete=complete, profiles=stage.profiles
    )
    gpus = sum(machine.gpus for region in stage.fleet.regions for machine in region.machines())
    return {
        **account_of(read_records(log), gpus, speed).as_json(),
        "mechanisms": {name: acted.as_json() for name, acted in every_mechanism(read_records(log)).items()},
        "violations": report.violations,
        "validation": report.as_json(),
    }


def _tables_move(client: Client) -> bool:
    """Whether any move has not ended."""
    return any(move.ended_s is None for move in client.data.moves(limit=_MOST_MOVES))


def _checked_warehouse(client: Client, stage: Stage, log: Path) -> CheckedCopies:
    moved = [int(str(record["bytes"])) for record in read_records(log) if record["event"] == "table_moved"]
    return checked_copies(stage.warehouse, stage.storage, client.data.tables(), moved)


class _Replay:
    """First what is staged: real training and the production workload that preempts it, and small workloads. Then the trace."""

    def __init__(
        self,
        client: Client,
        trace_slice: TraceSlice,
        speed: float,
        trainings: Sequence[str],
        staged: Sequence[StagedWorkloads],
    ) -> None:
        self._client = client
        self._slice = trace_slice
        self._speed = speed
        self._trainings = trainings
        self._staged = staged
        self._next = 0
        self._preemptor: str | None = None
        self._trace_began_real_s: float | None = None

    @property
    def total(self) -> int:
        """Workloads that will have been submitted in the end."""
        return len(self._slice.submissions) + len(self._trainings) + 1 + sum(each.total for each in self._staged)

    @property
    def submitted(self) -> int:
        staged = sum(each.submitted for each in self._staged)
        return self._next + len(self._trainings) + (self._preemptor is not None) + staged

    @property
    def trace_began(self) -> bool:
        return self._trace_began_real_s is not None

    @property
    def done(self) -> bool:
        return self.submitted == self.total

    def step(self, elapsed_real_s: float) -> None:
        """Submits everything whose time has come."""
        late = elapsed_real_s > _STAGED_PATIENCE_REAL_S
        for each in self._staged:
            each.step()
        if self._preemptor is None:
            if late or all(self._client.get(name).progress >= PROGRESS_BEFORE_PREEMPTION for name in self._trainings):
                self._preemptor = self._client.submit(_message(preemptor(self._speed))).workload
        elif self._trace_began_real_s is None:
            if late or (self._client.get(self._preemptor).attempts and all(each.done for each in self._staged)):
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
    """The most memory that the service and its processes held at one time; pages that several share are counted once."""

    def __init__(self, process_id: int) -> None:
        self._process = psutil.Process(process_id)
        self._next_real_s = 0.0
        self.mib = 0.0

    def look(self) -> None:
        """Now and then: to ask for it takes a while itself."""
        now_real_s = time.monotonic()
        if now_real_s < self._next_real_s:
            return
        self._next_real_s = now_real_s + _MEMORY_EVERY_REAL_S
        total = 0
        for process in [self._process, *self._process.children(recursive=True)]:
            try:
                total += process.memory_full_info().pss
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        self.mib = max(self.mib, total / 2**20)


def _message(specification: WorkloadSpecification) -> workload_pb2.WorkloadSpecification:
    return specification_to_proto(specification)


def _write_log(events: Iterator[Event], path: Path) -> None:
    with path.open("w", encoding="utf-8") as stream:
        for event in events:
            stream.write(json.dumps(event.as_json()) + "\n")
