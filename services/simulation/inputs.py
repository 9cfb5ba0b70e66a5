"""What is simulated, put together from files and numbers: the trace, the fleet, the tenants of each policy."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from data_placement.catalog import Catalog
from data_placement.links import DEFAULT_BYTES_PER_S, Links
from domain.declared_cells import Declarations
from domain.fleet import Fleet
from domain.identifiers import ANY_GPU_MODEL, ClusterId
from domain.resources import Quota
from domain.sensitivity import SensitivityProfile
from domain.snapshot import Snapshot
from domain.table import Table
from domain.tenant import HIGHEST_PRIORITY, LOWEST_PRIORITY, Tenant
from formats.fleet_file import FleetFile
from formats.problems import FieldProblem, FormatError, listed, suggestion
from formats.profiles_file import read_profiles
from formats.row_report import RowReport
from formats.service_samples import read_service_samples
from formats.snapshot_file import read_snapshot
from formats.tenants_file import GREATEST_QUOTA_GPUS, read_tenants
from formats.trace import TraceRow
from regional_scheduler.forecasting import FORECASTERS
from regional_scheduler.forecasting.policy import Forecaster, ForecastLibraryMissing
from services.simulation.sharing import Sharing, shared_fleet
from simulator.engine.settings import SimulationSettings
from simulator.engine.simulation_input import SimulationInput
from simulator.inputs.fleets import FleetSource, fleet_file_from, gpus_of_fleet, gpus_of_regions
from simulator.inputs.loans import LoadSeries, LoanSchedule, loans_of_series, read_loans, read_utilisation
from simulator.inputs.models import ModelSplit, assign_models
from simulator.inputs.regions import assign_regions
from simulator.inputs.slicing import Slice, slice_rows
from simulator.inputs.table_moves import TableMovesInput, read_table_moves
from simulator.inputs.tables import synthesize_tables
from simulator.inputs.tenants import tenants_of_trace, unlimited_tenants
from simulator.inputs.trace_files import Trace, TraceOptions, read_trace_file
from simulator.inputs.virtual_clusters import owning, tenants_with_quotas_of_cells
from simulator.policies.policy import Policy

_REGIONS_STREAM, _TABLES_STREAM, _MODELS_STREAM = 1, 2, 3
"""What is drawn for the inputs has random numbers of its own: a policy that draws more does not change them."""


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """How fast workloads are with which CPUs and memory."""

    profiles: Path | None = None
    """Of models; None: all are as fast with any."""
    models: ModelSplit | None = None
    """Rows without a model get one, drawn from the seed by this split."""


@dataclass(frozen=True, slots=True)
class TableMovesSource:
    """How tables move during a run."""

    file: Path | None = None
    """Which do, and when (CSV); None: only those that workloads wait for."""
    on_demand: bool = False
    link_bytes_per_s: float = DEFAULT_BYTES_PER_S
    """Of the link from any region to any other."""

    def read(self) -> TableMovesInput:
        """Raises FormatError with row and column."""
        moves = () if self.file is None else read_table_moves(self.file)
        return TableMovesInput(moves, Links(otherwise_bytes_per_s=self.link_bytes_per_s), on_demand=self.on_demand)


@dataclass(frozen=True, slots=True)
class InputSource:
    """Where the inputs come from."""

    trace: Path | None
    """None: nothing is submitted beyond what the snapshot has."""
    fleet: FleetSource | None
    """None: the snapshot's."""
    tenants: Path | None = None
    """None: the snapshot's; without one the policy's tenants are made from the trace."""
    options: TraceOptions = TraceOptions()
    window: Slice = Slice()
    assign_regions: bool = False
    """Rows without a region are bound to one, drawn from the seed with the regions' GPUs as weights."""
    synthesize_tables: bool = False
    """Rows read tables that are drawn from the seed (MAST's sharing statistics)."""
    loans: Path | None = None
    """None: all clusters are for training, but for those of `inference`."""
    table_moves: TableMovesSource | None = None
    """None: tables stay where they are."""
    inference: tuple[str, ...] = ()
    """CLUSTER=FILE or CLUSTER=FILE:FORECAST: clusters that lend what the series in these files leave idle, by that forecast
    (none: persistence); `known` is the series itself."""
    distribution: Path | None = None
    """Samples of the service of workloads that completed before; None: only those that complete in a run count."""
    sensitivity: Sensitivity = Sensitivity()
    snapshot: Path | None = None
    """Where the runs begin, and the trace with them; None: with nothing, at the first submission."""
    default_duration_s: float | None = None
    """For workloads of the snapshot that are not emulated: how long they go on."""
    sharing: Sharing = Sharing()

    @property
    def name(self) -> Path:
        """The file that a run is named after."""
        named = self.trace or self.snapshot
        if named is None:
            raise ValueError("neither a trace nor a snapshot")
        return named


@dataclass(frozen=True, slots=True)
class SimulationInputs:
    """What all runs of a command have in common."""

    trace: Trace
    rows: tuple[TraceRow, ...]
    """Those of the trace that are wanted."""
    fleet: Fleet
    tables: tuple[Table, ...]
    """Those of the fleet file; synthesized ones take their place."""
    tenants: tuple[Tenant, ...] | None
    source: InputSource
    trace_digest: str | None
    """Of the content of the trace's files; None where it came through a pipe."""
    loans: LoanSchedule | None = None
    snapshot: Snapshot | None = None
    declarations: Declarations | None = None
    """What tenants own; None: what they say themselves."""
    samples_gpu_s: tuple[float, ...] = ()
    profiles: Mapping[str, SensitivityProfile] = field(default_factory=dict)

    @property
    def trace_name(self) -> str:
        return self.source.name.name

    @property
    def workloads(self) -> int:
        """How many there are in all."""
        return len(self.rows) + (len(self.snapshot.workloads()) if self.snapshot is not None else 0)


def read_inputs(source: InputSource) -> SimulationInputs:
    """Everything that does not depend on policy and seed; raises FormatError that names the field."""
    snapshot = read_snapshot(source.snapshot) if source.snapshot is not None else None
    described = _fleet_of(source, snapshot)
    trace = Trace((), "snapshot", RowReport(str(source.name)))
    rows: tuple[TraceRow, ...] = ()
    if source.trace is not None:
        trace = read_trace_file(source.trace, source.options)
        rows = tuple(slice_rows(trace.rows, source.window, np.random.default_rng(0)))
        if not rows:
            description = f"none of its {len(trace.rows)} workloads is submitted in the window; it is of its own clock"
            raise FormatError(str(source.trace), [FieldProblem("--from, --until", description)])
    if snapshot is not None:
        # The trace begins with the snapshot, whatever time its own clock shows.
        later_s = snapshot.taken_s - rows[0].submit_s if rows else 0.0
        rows = tuple(replace(row, submit_s=row.submit_s + later_s) for row in rows)
    tenants = read_tenants(source.tenants) if source.tenants is not None else None
    if tenants is None and snapshot is not None:
        tenants = snapshot.tenants
    if tenants is not None:
        _check_tenants(rows, tenants, source)
    loans = read_loans(source.loans, described.fleet) if source.loans is not None else None
    if source.inference:
        loans = _loans_of_inference(source, described.fleet, rows)
    named = source.tenants or source.snapshot or "tenants"
    samples_gpu_s = read_service_samples(source.distribution) if source.distribution is not None else ()
    shared = shared_fleet(source.sharing, described.fleet, tenants, rows, str(named))
    return SimulationInputs(
        trace,
        rows,
        shared.fleet,
        described.tables,
        tenants,
        source,
        _digest_of(source),
        loans,
        snapshot,
        shared.declarations,
        samples_gpu_s,
        read_profiles(profiles) if (profiles := source.sensitivity.profiles) is not None else {},
    )


def _loans_of_inference(source: InputSource, fleet: Fleet, rows: Sequence[TraceRow]) -> LoanSchedule:
    """What inference clusters lend from the first submission to the last."""
    if source.loans is not None:
        raise FormatError("--inference", [FieldProblem("", "says what is lent, and so does --loans; leave one out")])
    series: list[LoadSeries] = []
    for said in source.inference:
        cluster, file, name = _parts_of_inference(said)
        if any(cluster == other.cluster for other in series):
            raise FormatError("--inference", [FieldProblem(cluster, "is given twice; give each cluster one series")])
        series.append(LoadSeries(ClusterId(cluster), read_utilisation(Path(file)), _forecaster_called(name)))
    return loans_of_series(series, fleet, rows[0].submit_s, rows[-1].submit_s, "--inference")


def _parts_of_inference(said: str) -> tuple[str, str, str]:
    """The cluster, the file that is there, and the name of the forecast. Raises FormatError."""
    cluster, _, rest = said.partition("=")
    if not cluster or not rest:
        described = "must be CLUSTER=SERIES or CLUSTER=SERIES:FORECAST: a cluster, and a file with its load"
        raise FormatError("--inference", [FieldProblem(said, described)])
    if Path(rest).is_file():
        return cluster, rest, "persistence"
    file, _, name = rest.rpartition(":")
    if not Path(file).is_file():
        raise FormatError(
            "--inference", [FieldProblem(said, f"there is no file {file or rest}; name one with its load")]
        )
    return cluster, file, name


def _forecaster_called(name: str) -> Forecaster | None:
    """None: what is to come is known."""
    if name == "known":
        return None
    forecaster = FORECASTERS.get(name)
    if forecaster is None:
        hint = suggestion(name, (*FORECASTERS, "known"), "forecast")
        raise FormatError("--inference", [FieldProblem(name, f"is no forecast; {hint}")])
    try:
        forecaster.check_installed()
    except ForecastLibraryMissing as missing:
        raise FormatError("--inference", [FieldProblem(name, str(missing))]) from missing
    return forecaster


def _fleet_of(source: InputSource, snapshot: Snapshot | None) -> FleetFile:
    """The machines and tables that are asked for, else those of the snapshot."""
    if source.fleet is None:
        if snapshot is None:
            raise ValueError("neither machines nor a snapshot")
        return FleetFile(snapshot.fleet, snapshot.tables)
    described = fleet_file_from(source.fleet)
    # Numbers of machines say nothing of tables.
    return described if snapshot is None or described.tables else replace(described, tables=snapshot.tables)


def check_regions(inputs: SimulationInputs, settings: SimulationSettings) -> None:
    """Raises FormatError when rows are bound to regions that the fleet does not have."""
    if not settings.trace_regions_bind:
        return
    known = {region.region for region in inputs.fleet.regions}
    unknown = sorted({row.region for row in inputs.rows if row.region is not None} - known)
    if unknown:
        description = (
            f"{', '.join(unknown)}: the trace binds workloads there, but the fleet has {', '.join(sorted(known))}; "
            "name the fleet's regions so (--region-gpus), or let workloads run anywhere"
        )
        raise FormatError(str(inputs.source.name), [FieldProblem("region", description)])


def input_of_run(inputs: SimulationInputs, policy: Policy, seed: int) -> SimulationInput:
    """The inputs of one run: what is drawn comes from the seed, and tenants are those that the policy knows."""
    rows: Sequence[TraceRow] = inputs.rows
    tables: Sequence[Table] = inputs.tables
    regions = gpus_of_regions(inputs.fleet)
    if inputs.source.assign_regions:
        try:
            rows = assign_regions(rows, regions, np.random.default_rng([seed, _REGIONS_STREAM]))
        except ValueError as error:
            raise FormatError("--assign-regions", [FieldProblem("", str(error))]) from error
    if inputs.source.synthesize_tables:
        rows, tables = synthesize_tables(rows, regions, np.random.default_rng([seed, _TABLES_STREAM]))
    split = inputs.source.sensitivity.models
    if split is not None:
        rows = assign_models(rows, split, inputs.profiles, np.random.default_rng([seed, _MODELS_STREAM]))
    return SimulationInput(
        inputs.trace_name,
        rows,
        inputs.fleet,
        _tenants_for(policy, inputs),
        inputs.loans,
        snapshot=inputs.snapshot,
        default_duration_s=inputs.source.default_duration_s,
        catalog=Catalog(tables),
        samples_gpu_s=inputs.samples_gpu_s,
        profiles=inputs.profiles,
        table_moves=None if inputs.source.table_moves is None else inputs.source.table_moves.read(),
    )


def _tenants_for(policy: Policy, inputs: SimulationInputs) -> tuple[Tenant, ...]:
    """The tenants that the policy knows, with the virtual clusters that they own."""
    tenants = _tenants_with_quotas(policy, inputs)
    if inputs.declarations is None:
        return tenants
    idle = [
        Tenant(name, LOWEST_PRIORITY, Quota.of({}))
        for name in sorted(inputs.declarations.keys() - {tenant.tenant for tenant in tenants})
    ]
    return owning((*tenants, *idle), inputs.declarations)


def _tenants_with_quotas(policy: Policy, inputs: SimulationInputs) -> tuple[Tenant, ...]:
    """A policy without scan passes knows neither priority nor quota: all are at the highest, and nothing reaches a quota.

    So the log of such a run is valid with these tenants. Weights of fair shares stay.
    """
    if policy.scans and inputs.tenants is None:
        if inputs.declarations is not None:
            return tenants_with_quotas_of_cells(inputs.rows, inputs.fleet)
        return tenants_of_trace(inputs.rows, gpus_of_fleet(inputs.fleet))
    if inputs.tenants is None:
        return unlimited_tenants(inputs.rows, default_priority=HIGHEST_PRIORITY)
    if policy.scans:
        return inputs.tenants
    quota = Quota.of({ANY_GPU_MODEL: GREATEST_QUOTA_GPUS})
    return tuple(
        replace(tenant, priority=HIGHEST_PRIORITY, quota=quota, further_quotas=()) for tenant in inputs.tenants
    )


def _check_tenants(rows: Sequence[TraceRow], tenants: Sequence[Tenant], source: InputSource) -> None:
    known = {tenant.tenant for tenant in tenants}
    unknown = sorted({row.tenant for row in rows} - known)
    if unknown:
        description = (
            f"{listed(unknown)}: not in {source.tenants or source.snapshot}; add them there, or leave --tenants "
            "out: then each tenant of the trace has a quota by its share of the work"
        )
        raise FormatError(str(source.name), [FieldProblem("tenant", description)])


def _digest_of(source: InputSource) -> str | None:
    """Of the bytes of all files that rows come from."""
    files = [file for file in (source.trace, source.options.job_table, source.snapshot) if file is not None]
    digest = hashlib.sha256()
    for file in files:
        if not file.is_file():
            return None
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()
