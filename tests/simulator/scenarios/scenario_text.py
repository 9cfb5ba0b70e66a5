"""Scenarios as texts: what there is, which workloads ask for what, and what must come of it, worked out by hand.

A file opens with a paragraph on its theme. Each scenario begins with `== its name` and has one line for each thing:

    policy    mast                                  which policy decides
    machines  m1:4 m2:4 V100 in east/ca/k1          name:GPUs of machines in region/cluster/rack; model and place may be
                                                    left out (V100, r/c/k); cpus=32 says how many CPUs each has
                                                    (12 for each GPU else, 4 GiB for each CPU)
    tenant    ads priority=1 quota=8 weight=2       left out altogether: tenant t, at priority 0, may use everything
    table     clicks home=east replicas=west
    costs     start=150 save=30 restore=33 checkpoint=1800    seconds; what is left out is 0, checkpoint=0: none
    set       scan_period_s=60                      any other setting; the scan period is 0 else: at once
    fails     machine m1 at 100 for 50              or rack k1
    job       at  runs  gpus  tenant                the heading of the table of jobs; `-` is an empty cell
    a         0   100   4     ads
    expect
    a         0>10-110 m1:4                         attempts: dispatched at 0, works from 10, gone at 110; on what
    because   one or more sentences

An attempt that works at once is written `0-110`; one that never works `0>-5`. After the machines stands how it ended:
nothing when it completed, else `preempted by b`, `machine_lost` or `running`, with `kept 40` seconds of work in all, or
`kept 30 of 40` when some is lost. Attempts are divided by `|`. One that has none is `queued`, `refused` or
`not submitted` before the run was broken off.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from domain.fleet import NO_GPU_MODEL, Cluster, Fleet, Machine, Rack, Region
from domain.identifiers import (
    ANY_GPU_MODEL,
    ClusterId,
    GpuModel,
    MachineId,
    RackId,
    RegionId,
    TableId,
    TenantId,
)
from domain.resources import Quota
from domain.table import Table
from domain.tenant import Tenant
from formats.problems import FormatError
from formats.trace import TABLE_SEPARATOR, TraceReader, TraceRow

CPUS_PER_GPU = 12.0
MEMORY_GIB_PER_CPU = 4.0
COSTS = {
    "start": "container_start_s",
    "save": "checkpoint_save_s",
    "restore": "restore_s",
    "checkpoint": "checkpoint_interval_s",
}
COLUMNS = {"job": "workload_id", "at": "submit_s", "runs": "duration_s", "model": "gpu_model"}


@dataclass(frozen=True, slots=True)
class ScriptedFailure:
    """What fails when, for how long."""

    what: str
    """`machine m1` or `rack k1`."""
    at_s: float
    for_s: float


@dataclass(slots=True)
class Scenario:
    """One of a file, as far as it has been read."""

    name: str
    policy: str = ""
    machines: list[tuple[str, str, str, Machine]] = field(default_factory=list)
    """(region, cluster, rack, machine)."""
    tenants: list[Tenant] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    """`key=value` of the settings that are not the scenarios' own."""
    failures: list[ScriptedFailure] = field(default_factory=list)
    rows: list[TraceRow] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)
    because: str = ""

    def fleet(self) -> Fleet:
        """Regions, clusters and racks in the order in which they are first named."""
        regions: dict[str, dict[str, dict[str, list[Machine]]]] = {}
        for region, cluster, rack, machine in self.machines:
            regions.setdefault(region, {}).setdefault(cluster, {}).setdefault(rack, []).append(machine)
        return Fleet(
            tuple(
                Region(
                    RegionId(region),
                    tuple(
                        Cluster(ClusterId(cluster), tuple(Rack(RackId(rack), tuple(ms)) for rack, ms in racks.items()))
                        for cluster, racks in clusters.items()
                    ),
                )
                for region, clusters in regions.items()
            ),
        )


def scenarios_of(path: Path) -> list[Scenario]:
    """All scenarios of a file. Raises ValueError, with file and line, for what makes no sense."""
    lines = path.read_text(encoding="utf-8").splitlines()
    scenarios: list[Scenario] = []
    reader: _Reader | None = None
    for number, line in enumerate(lines, 1):
        text = line.strip()
        try:
            if text.startswith("== "):
                scenarios.append(Scenario(text.removeprefix("== ")))
                reader = _Reader(scenarios[-1])
            elif text and reader is not None:
                reader.read(text)
        except (ValueError, KeyError, IndexError, FormatError) as error:
            raise ValueError(f"{path.name}:{number}: {error!r} in: {text}") from error
    if not scenarios or not lines[0].strip() or lines[0].startswith("=="):
        raise ValueError(f"{path.name}: begins with a paragraph on its theme, then scenarios follow")
    return scenarios


class _Reader:
    """Takes the lines of one scenario in."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._columns: list[str] = []
        self._expecting = False

    def read(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        rest = rest.strip()
        scenario = self._scenario
        if word == "policy":
            scenario.policy = rest
        elif word == "machines":
            self._machines(rest.split())
        elif word == "tenant":
            scenario.tenants.append(_tenant(rest.split()))
        elif word == "table":
            scenario.tables.append(_table(rest.split()))
        elif word == "costs":
            pairs = [pair.split("=") for pair in rest.split()]
            scenario.changes += [f"costs.{COSTS[name]}={value}" for name, value in pairs]
        elif word == "set":
            scenario.changes += rest.split()
        elif word == "fails":
            kind, name, at, at_s, during, for_s = rest.split()
            if (at, during) != ("at", "for"):
                raise ValueError("say: fails machine NAME at SECONDS for SECONDS")
            scenario.failures.append(ScriptedFailure(f"{kind} {name}", float(at_s), float(for_s)))
        elif word == "job":
            self._columns = rest.split()
        elif word == "expect":
            self._expecting = True
        elif word == "because":
            scenario.because = rest
        elif scenario.because:
            scenario.because += f" {line}"
        elif self._expecting:
            scenario.expected.append(" ".join(line.split()))
        else:
            scenario.rows.append(_row(word, dict(zip(self._columns, rest.split(), strict=True))))

    def _machines(self, words: list[str]) -> None:
        region, cluster, rack = "r", "c", "k"
        if "in" in words:
            at = words.index("in")
            region, cluster, rack = words[at + 1].split("/")
            words = words[:at]
        cpus = next((float(word.removeprefix("cpus=")) for word in words if word.startswith("cpus=")), 0.0)
        named = [word.split(":") for word in words if ":" in word]
        models = [word for word in words if ":" not in word and "=" not in word]
        if not named or len(models) > 1:
            raise ValueError("say name:GPUs of each machine, and at most one model")
        for name, gpus in named:
            amount = cpus or CPUS_PER_GPU * int(gpus)
            model = GpuModel(models[0] if models else "V100") if int(gpus) else NO_GPU_MODEL
            machine = Machine(MachineId(name), model, int(gpus), amount, MEMORY_GIB_PER_CPU * amount)
            self._scenario.machines.append((region, cluster, rack, machine))


def _named(words: list[str]) -> dict[str, str]:
    return dict(word.split("=") for word in words)


def _tenant(words: list[str]) -> Tenant:
    given = _named(words[1:])
    cpus = float(given["cpus"]) if "cpus" in given else None
    quota = Quota.of({ANY_GPU_MODEL: int(given["quota"])}, cpus)
    return Tenant(TenantId(words[0]), int(given["priority"]), quota, float(given.get("weight", 1)))


def _table(words: list[str]) -> Table:
    given = _named(words[1:])
    replicas = tuple(RegionId(name) for name in given.get("replicas", "").split(",") if name)
    return Table(TableId(words[0]), 1, RegionId(given["home"]), replicas)


def _row(name: str, cells: dict[str, str]) -> TraceRow:
    """By way of the reader of traces, so that a scenario's columns are a trace's."""
    given = {"job": name, **{column: cell for column, cell in cells.items() if cell != "-"}}
    columns = [COLUMNS.get(column, column) for column in given]
    values = [value.replace(",", TABLE_SEPARATOR) for value in given.values()]
    lines = [",".join(columns), ",".join(values)]
    return next(iter(TraceReader(lines, name, strict=True, default_tenant=TenantId("t"))))
