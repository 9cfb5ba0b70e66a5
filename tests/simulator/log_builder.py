"""Event logs written by hand: one method per kind of event, everything that does not matter filled in.

The fleet: region east with machines e1 and e2 (4 A100, 32 CPUs, 256 GiB each) in cluster east-a and c1 (16 CPUs,
64 GiB) in east-b; region west with w1 (4 V100, 32 CPUs, 256 GiB) in west-a. Table `clicks` lives in east only,
`images` at home in west with a replica in east.
The tenants: ads (priority 1; 4 A100, 2 other GPUs, 16 CPUs), vision (priority 3; 8 GPUs), guests (priority 5; none).
"""

from __future__ import annotations

from typing import TypeAlias

from domain.events import JsonValue
from domain.fleet import Fleet
from domain.tenant import Tenant
from formats.fleet_file import parse_fleet_file
from formats.tenants_file import parse_tenants
from simulator.validate import validate
from simulator.validation.report import ValidationReport

_FILE = parse_fleet_file(
    """
    regions:
      - region: east
        clusters:
          - cluster: east-a
            racks:
              - rack: r
                machines:
                  - {machine: e1, gpu_model: A100, gpus: 4, cpus: 32, memory_gib: 256}
                  - {machine: e2, gpu_model: A100, gpus: 4, cpus: 32, memory_gib: 256}
          - {cluster: east-b, racks: [{rack: r, machines: [{machine: c1, cpus: 16, memory_gib: 64}]}]}
      - region: west
        clusters:
          - cluster: west-a
            racks: [{rack: r, machines: [{machine: w1, gpu_model: V100, gpus: 4, cpus: 32, memory_gib: 256}]}]
    tables:
      - {table: clicks, size_gib: 1, home: east}
      - {table: images, size_gib: 1, home: west, replicas: [east]}
    """
)
FLEET: Fleet = _FILE.fleet
TABLES = _FILE.tables
TENANTS: tuple[Tenant, ...] = parse_tenants(
    """
    tenants:
      - {tenant: ads, priority: 1, quota: {gpus: {A100: 4, any: 2}, cpus: 16}}
      - {tenant: vision, priority: 3, quota: {gpus: 8}}
      - {tenant: guests, priority: 5, quota: {gpus: 0}}
    """
)

Json: TypeAlias = dict[str, JsonValue]
CLUSTERS = {"e1": "east-a", "e2": "east-a", "c1": "east-b", "w1": "west-a"}
PRIORITIES = {"ads": 1, "vision": 3, "guests": 5}


def whole(value: JsonValue) -> int:
    """A number of a record, whole."""
    return int(real(value))


def real(value: JsonValue) -> float:
    """A number of a record."""
    assert isinstance(value, int | float)
    return value


def items(value: JsonValue) -> list[JsonValue]:
    """A list of a record."""
    assert isinstance(value, list)
    return value


def entries(value: JsonValue) -> list[Json]:
    """A list of objects of a record, such as a placement."""
    return [item for item in items(value) if isinstance(item, dict)]


def job(
    tasks: int = 1,
    gpus: int = 2,
    *,
    name: str = "main",
    max_tasks: int = 0,
    gpu_model: str = "any",
    cpus: float | None = None,
    memory_gib: float | None = None,
) -> Json:
    """An entry of `jobs`."""
    return {
        "job": name, "tasks": tasks, "max_tasks": max_tasks, "gpus": gpus, "gpu_model": gpu_model, "cpus": cpus,
        "memory_gib": memory_gib,
    }  # fmt: skip


def task(
    machine: str, gpus: list[int], number: int = 0, *, name: str = "main", cpus: float = 4.0, memory_gib: float = 16.0
) -> Json:
    """An entry of `placement`."""
    return {
        "job": name, "task": number, "cluster": CLUSTERS.get(machine, "east-a"), "machine": machine,
        "gpus": list[JsonValue](gpus), "cpus": cpus, "memory_gib": memory_gib,
    }  # fmt: skip


class LogBuilder:
    """Appends events; every method returns the builder. Attempts are 1 unless said otherwise."""

    def __init__(self) -> None:
        self.records: list[Json] = []
        self.t = 1000.0
        self._tenants: dict[str, str] = {}

    def wait(self, seconds: float) -> LogBuilder:
        self.t += seconds
        return self

    def add(self, event: str, **fields: JsonValue) -> LogBuilder:
        self.records.append({"t": self.t, "event": event, **fields})
        return self

    def submit(
        self,
        workload: str,
        *jobs: Json,
        tenant: str = "vision",
        tables: dict[str, bool] | None = None,
        regions: list[str] | None = None,
        work_s: float | None = 100.0,
    ) -> LogBuilder:
        """`work_s` None: real training. `tables`: name to whether it must be fresh."""
        self._tenants[workload] = tenant
        return self.add(
            "submitted",
            workload=workload,
            tenant=tenant,
            name=workload,
            jobs=list[JsonValue](jobs or (job(),)),
            tables=[{"table": table, "fresh": fresh} for table, fresh in (tables or {}).items()],
            regions=list[JsonValue](regions or []),
            work_s=work_s,
            emulated=work_s is not None,
        )

    def dispatch(
        self,
        workload: str,
        *placement: Json,
        attempt: int = 1,
        region: str = "east",
        within_quota: bool = True,
        priority: int | None = None,
        level: int = 0,
        evicts: dict[str, int] | None = None,
    ) -> LogBuilder:
        own = PRIORITIES.get(self._tenants.get(workload, ""), 6) if within_quota else 6
        return self.add(
            "dispatched",
            workload=workload,
            attempt=attempt,
            priority=own if priority is None else priority,
            level=level,
            region=region,
            placement=list[JsonValue](placement),
            within_quota=within_quota,
            evicts=[{"workload": victim, "attempt": number} for victim, number in (evicts or {}).items()],
        )

    def start(self, workload: str, *, attempt: int = 1, progress: float = 0.0, **changes: JsonValue) -> LogBuilder:
        """As it was dispatched, but for the changes."""
        dispatched = next(
            record
            for record in reversed(self.records)
            if record["event"] == "dispatched" and (record["workload"], record["attempt"]) == (workload, attempt)
        )
        submitted = next(
            (r for r in self.records if r["event"] == "submitted" and r["workload"] == workload), {"emulated": True}
        )
        fields = {key: value for key, value in dispatched.items() if key not in {"t", "event", "evicts"}}
        return self.add("started", **{**fields, "progress": progress, "emulated": submitted["emulated"], **changes})

    def run(
        self, workload: str, *placement: Json, attempt: int = 1, region: str = "east", within_quota: bool = True
    ) -> LogBuilder:
        """Dispatched and started."""
        return self.dispatch(workload, *placement, attempt=attempt, region=region, within_quota=within_quota).start(
            workload, attempt=attempt
        )

    def checkpoint(self, workload: str, progress: float, *, attempt: int = 1) -> LogBuilder:
        return self.add("checkpointed", workload=workload, attempt=attempt, progress=progress)

    def evict(
        self,
        workload: str,
        cause: str,
        *,
        attempt: int = 1,
        progress: float = 0.0,
        checkpoint_progress: float | None = None,
        by: tuple[str, int, int] | None = None,
        **more: JsonValue,
    ) -> LogBuilder:
        """`evicted` without `evicting` before it; `by`: workload, priority, level; `more`: other fields."""
        kept = progress if checkpoint_progress is None else checkpoint_progress
        return self.add(
            "evicted", workload=workload, attempt=attempt, **_cause(cause, by), progress=progress,
            checkpoint_progress=kept, **more,
        )  # fmt: skip

    def evicting(
        self, workload: str, cause: str, *, attempt: int = 1, by: tuple[str, int, int] | None = None
    ) -> LogBuilder:
        return self.add("evicting", workload=workload, attempt=attempt, **_cause(cause, by))

    def complete(self, workload: str, *, attempt: int = 1, progress: float = 100.0) -> LogBuilder:
        return self.add("completed", workload=workload, attempt=attempt, progress=progress)

    def fail(
        self,
        workload: str,
        *,
        final: bool,
        attempt: int | None = 1,
        progress: float = 0.0,
        checkpoint_progress: float | None = None,
    ) -> LogBuilder:
        kept = progress if checkpoint_progress is None else checkpoint_progress
        fields: Json = {"attempt": attempt, "progress": progress, "checkpoint_progress": kept} if attempt else {}
        return self.add("failed", workload=workload, reason="exit code 1", final=final, **fields)

    def cancel(self, workload: str, *, attempt: int | None = None, progress: float = 0.0) -> LogBuilder:
        fields: Json = {"attempt": attempt, "progress": progress} if attempt else {}
        return self.add("cancelled", workload=workload, **fields)

    def machine(self, event: str, machine: str, **details: bool | float) -> LogBuilder:
        region = "west" if machine == "w1" else "east"
        return self.add(event, machine=machine, region=region, cluster=CLUSTERS[machine], reason="test", **details)

    def move_machine(self, machine: str, to_cluster: str) -> LogBuilder:
        details = {"machine": machine, "to_cluster": to_cluster, "reason": "test"}
        return self.add("machine_moved", region="east", cluster=CLUSTERS[machine], **details)

    def validate(self, *, complete: bool = True) -> ValidationReport:
        return validate(self.records, FLEET, TENANTS, tables=TABLES, complete=complete)


def _cause(cause: str, by: tuple[str, int, int] | None) -> Json:
    if by is None:
        return {"cause": cause}
    return {"cause": cause, "by": by[0], "by_priority": by[1], "by_level": by[2]}
