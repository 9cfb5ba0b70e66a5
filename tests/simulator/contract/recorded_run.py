"""A recorded run of the live service, as the values that the drivers work with."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import cast

from domain.events import Event, EventKind, JsonValue
from domain.fleet import Fleet, MachineState
from domain.identifiers import (
    AttemptNumber,
    ClusterId,
    GpuModel,
    JobName,
    MachineId,
    RegionId,
    TableId,
    TenantId,
    WorkloadId,
)
from domain.placement import AttemptKey, TaskPlacement
from domain.resources import TaskResources
from domain.table import Table
from domain.tenant import Tenant
from domain.workload import Emulated, JobSpecification, TableInput, Workload, WorkloadSpecification
from formats.event_log import event_from_record, read_records
from formats.fleet_file import read_fleet_file
from formats.tenants_file import read_tenants
from global_scheduler.credit import CreditSettings, FairShare

_FOLDER = Path(__file__).parent / "recorded"
EVENTS = _FOLDER / "events.jsonl.gz"
INSTANTS = _FOLDER / "instants.jsonl.gz"
FLEET = _FOLDER / "fleet.yaml"
TENANTS = _FOLDER / "tenants.yaml"
CREDIT = CreditSettings(fair_share=FairShare.RATIO_TO_MEAN)
"""As it was when the run was recorded."""

MACHINE_STATES = MappingProxyType(
    {
        EventKind.MACHINE_DOWN: MachineState.DOWN,
        EventKind.MACHINE_DRAINING: MachineState.DRAINING,
        EventKind.MACHINE_UP: MachineState.UP,
    }
)
"""What a machine is after such an event."""


@dataclass(frozen=True)
class RecordedRun:
    """What the service was given, what it told, and when its scan passes looked at the queue."""

    fleet: Fleet
    tables: tuple[Table, ...]
    tenants: tuple[Tenant, ...]
    events: tuple[Event, ...]
    """In the order of the log; no time is earlier than the one before."""
    passes_s: tuple[float, ...]

    @cached_property
    def workloads(self) -> tuple[Workload, ...]:
        """All that were submitted, by (submit time, id)."""
        submitted = [workload_of(event) for event in self.events if event.event is EventKind.SUBMITTED]
        return tuple(sorted(submitted, key=lambda workload: (workload.submitted_s, workload.workload)))


def read_recorded_run() -> RecordedRun:
    """The fixture."""
    events: list[Event] = []
    now_s = 0.0
    for event in map(event_from_record, read_records(EVENTS)):
        # An end is told at the time at which it happened, which may be a moment before others that stand above it.
        now_s = max(now_s, event.t)
        events.append(replace(event, t=now_s))
    instants = [json.loads(line) for line in gzip.decompress(INSTANTS.read_bytes()).decode().splitlines()]
    passes_s = tuple(instant["t"] for instant in instants if instant["instant"] == "scan_pass")
    described = read_fleet_file(FLEET)
    return RecordedRun(described.fleet, described.tables, read_tenants(TENANTS), tuple(events), passes_s)


def workload_of(event: Event) -> Workload:
    """The workload that a `submitted` tells of. What it does not tell of plays no part in where it is placed."""
    details = event.details
    work_s = details["work_s"]
    if event.workload is None or event.tenant is None or not isinstance(work_s, (int, float)):
        raise ValueError(f"a submission without a workload, a tenant or work: {event}")
    jobs = tuple(
        JobSpecification(
            JobName(str(job["job"])),
            _whole(job["tasks"]),
            TaskResources(
                gpus=_whole(job["gpus"]),
                gpu_model=GpuModel(str(job["gpu_model"])),
                cpus=_amount(job["cpus"]),
                memory_gib=_amount(job["memory_gib"]),
            ),
            Emulated(float(work_s)),
        )
        for job in _listed(details["jobs"])
    )
    tables = tuple(TableInput(TableId(str(read["table"])), bool(read["fresh"])) for read in _listed(details["tables"]))
    regions = tuple(RegionId(str(region)) for region in cast(Sequence[str], details["regions"]))
    specification = WorkloadSpecification(str(details["name"]), event.tenant, jobs, tables, regions)
    return Workload(event.workload, specification, event.t)


def key_of(event: Event) -> AttemptKey:
    """The attempt that an event is about."""
    if event.workload is None or event.attempt is None:
        raise ValueError(f"an event without an attempt: {event}")
    return AttemptKey(event.workload, AttemptNumber(event.attempt))


def placements_of(event: Event) -> tuple[TaskPlacement, ...]:
    """What a `dispatched` says of where it is to run."""
    return tuple(
        TaskPlacement(
            JobName(str(entry["job"])),
            _whole(entry["task"]),
            ClusterId(str(entry["cluster"])),
            MachineId(str(entry["machine"])),
            tuple(_whole(gpu) for gpu in cast(Sequence[JsonValue], entry["gpus"])),
            round(1000 * (_amount(entry["cpus"]) or 0.0)),
            round(1024 * (_amount(entry["memory_gib"]) or 0.0)),
        )
        for entry in _listed(event.details["placement"])
    )


def victims_of(event: Event) -> tuple[AttemptKey, ...]:
    """Whom a `dispatched` makes go."""
    return tuple(
        AttemptKey(WorkloadId(str(victim["workload"])), AttemptNumber(_whole(victim["attempt"])))
        for victim in _listed(event.details["evicts"])
    )


def tenant_of(event: Event) -> TenantId:
    """Whose workload it is."""
    if event.tenant is None:
        raise ValueError(f"an event without a tenant: {event}")
    return event.tenant


def region_of(event: Event) -> RegionId:
    """Where it happened."""
    if event.region is None:
        raise ValueError(f"an event without a region: {event}")
    return event.region


def _listed(value: JsonValue) -> Sequence[Mapping[str, JsonValue]]:
    return cast(Sequence[Mapping[str, JsonValue]], value)


def _whole(value: JsonValue) -> int:
    return int(cast(float, value))


def _amount(value: JsonValue) -> float | None:
    return None if value is None else float(cast(float, value))
