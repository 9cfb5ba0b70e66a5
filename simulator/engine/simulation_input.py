"""What is simulated, and what makes it unfit to be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from cluster_manager.cells.declared import declarations_of, fleet_with_virtual_clusters, weights_of
from data_placement.catalog import Catalog
from domain.fleet import Fleet
from domain.sensitivity import SensitivityProfile
from domain.snapshot import Snapshot
from domain.snapshot_contradictions import contradictions
from domain.tenant import Tenant
from domain.workload import Workload, emulated_work_s
from formats.problems import FieldProblem, FormatError
from formats.profiles_file import unknown_model
from formats.trace import TraceRow
from formats.trace_workload import model_of
from simulator.engine.arrivals import Arrival, arrivals_of
from simulator.inputs.actions import ActionAt
from simulator.inputs.loans import LoanSchedule, check_loans
from simulator.inputs.table_moves import TableMovesInput, check_table_moves


@dataclass(frozen=True, slots=True)
class SimulationInput:
    """What is simulated. Tenants must name every tenant of the workloads; rows and workloads may come in any order."""

    trace: str
    rows: Sequence[TraceRow]
    fleet: Fleet
    tenants: Sequence[Tenant]
    loans: LoanSchedule | None = None
    """Which clusters are for inference, and what they lend to training; None: all are for training."""
    workloads: Sequence[Workload] = ()
    """Submitted as they are described, besides the rows: they may have several jobs."""
    snapshot: Snapshot | None = None
    """Where the run begins; None: with nothing queued and nothing running, at the first submission."""
    default_duration_s: float | None = None
    """Seconds of work that workloads which are not emulated are taken to need from the snapshot on."""
    catalog: Catalog = field(default_factory=Catalog)
    """The tables that rows and workloads may read."""
    table_moves: TableMovesInput | None = None
    """How tables move while the simulation runs; None: they stay where they are."""
    actions: Sequence[ActionAt] = ()
    """What is asked of running workloads: to be resized, retuned or moved."""
    begins_s: float | None = None
    """When the run begins, not after the first submission: scan passes are due so and so long after it. None: at the first
    submission, or with the snapshot."""
    profiles: Mapping[str, SensitivityProfile] = field(default_factory=dict)
    """How sensitive jobs are to CPUs and memory, by the model that their workload names; without any, all are as fast with
    whatever they hold."""
    samples_gpu_s: Sequence[float] = ()
    """The service of workloads that completed before the run, in GPU-seconds, for policies that go by its distribution."""

    @staticmethod
    def of_snapshot(
        snapshot: Snapshot,
        name: str,
        rows: Sequence[TraceRow] = (),
        *,
        workloads: Sequence[Workload] = (),
        default_duration_s: float | None = None,
    ) -> SimulationInput:
        """The run that goes on from a snapshot, with its fleet, tenants and tables, and what is submitted afterwards.

        Raises FormatError where the tenants' virtual clusters do not match the fleet.
        """
        declarations = declarations_of(snapshot.tenants)
        fleet = snapshot.fleet
        if any(declarations.values()):
            fleet = fleet_with_virtual_clusters(fleet, declarations, name, weights_of(snapshot.tenants))
        return SimulationInput(
            name,
            rows,
            fleet,
            snapshot.tenants,
            workloads=workloads,
            snapshot=snapshot,
            default_duration_s=default_duration_s,
            catalog=Catalog(snapshot.tables),
        )

    def arrivals(self) -> list[Arrival]:
        """What is submitted, by (submit time, id)."""
        return arrivals_of(self.rows, self.workloads)

    def start_s(self, arrivals: Sequence[Arrival]) -> float:
        """When the run begins. `arrivals` are those of `arrivals()`."""
        if self.snapshot is not None:
            return self.snapshot.taken_s
        return arrivals[0].submit_s if self.begins_s is None else self.begins_s

    def sorted_tenants(self) -> list[Tenant]:
        """The tenants by name: a tenant's place is its number in the run."""
        return sorted(self.tenants, key=lambda tenant: tenant.tenant)


def check_input(given: SimulationInput, arrivals: Sequence[Arrival]) -> None:
    """Raises FormatError for what cannot be simulated: it names the field and the remedy. `arrivals` are the input's."""
    if not arrivals and given.snapshot is None:
        raise FormatError(given.trace, [FieldProblem("", "has no workloads; a simulation needs at least one row")])
    unknown = sorted({arrival.tenant for arrival in arrivals} - {tenant.tenant for tenant in given.tenants})
    if unknown:
        description = f"{unknown[0]} is not among the tenants; add it to the tenants file, or leave that out"
        raise FormatError(given.trace, [FieldProblem("tenant", description)])
    tables = {table for row in given.rows for table in row.tables}
    tables |= {table.table for workload in given.workloads for table in workload.specification.tables}
    unknown_tables = sorted(tables.difference(given.catalog.names))
    if unknown_tables:
        # As a service refuses it: what waits for a table that does not exist would wait for ever.
        description = (
            f"table {unknown_tables[0]} does not exist; add it to the tables of the fleet file, or leave it out"
        )
        raise FormatError(given.trace, [FieldProblem("tables", description)])
    if given.table_moves is not None:
        check_table_moves(given.table_moves, given.catalog, given.fleet, "table moves")
    seen = {workload.workload for workload in given.snapshot.workloads()} if given.snapshot is not None else set()
    for arrival in arrivals:
        if arrival.workload in seen:
            raise FormatError(given.trace, [FieldProblem("workload_id", f"{arrival.workload} is there twice")])
        seen.add(arrival.workload)
    whole = [work for work in given.workloads if emulated_work_s(work.specification) is None]
    if whole:
        description = f"{whole[0].workload} does not say how long it works; make all its jobs emulated"
        raise FormatError(given.trace, [FieldProblem("jobs", description)])
    _check_models(given)
    if given.loans is not None:
        check_loans(given.loans, given.fleet, "loans")
    if given.snapshot is not None:
        _check_snapshot(given, given.snapshot, arrivals)


def _check_models(given: SimulationInput) -> None:
    """Every model that a workload names must have a profile, where there are any: a job without one may leave it open."""
    if not given.profiles:
        return
    named = [(str(row.workload_id), row.model) for row in given.rows]
    named += [(str(workload.workload), model_of(workload.specification)) for workload in given.workloads]
    unknown = [(name, model) for name, model in named if model and model not in given.profiles]
    if unknown:
        first: dict[str, str] = {}
        for name, model in unknown:
            first.setdefault(model, name)
        problems = [
            FieldProblem(f"model of {name}", unknown_model(model, given.profiles)) for model, name in first.items()
        ]
        raise FormatError(given.trace, problems)


def _check_snapshot(given: SimulationInput, snapshot: Snapshot, arrivals: Sequence[Arrival]) -> None:
    """The snapshot must agree with itself, with fleet and tenants of the run, and lie before every submission."""
    known = snapshot.workloads()
    if not known and not arrivals:
        raise FormatError(given.trace, [FieldProblem("queue", "is empty, nothing runs, and nothing is submitted")])
    now_given = replace(snapshot, fleet=given.fleet, tenants=tuple(given.tenants))
    problems = [FieldProblem(field, sentence) for field, sentence in contradictions(now_given)]
    if arrivals and (
        arrivals[0].submit_s < snapshot.taken_s
        or (known and arrivals[0][:2] <= (known[-1].submitted_s, known[-1].workload))
    ):
        described = f"{arrivals[0].workload} is submitted before the snapshot was taken ({snapshot.taken_s:.3f})"
        problems.append(FieldProblem("submit_s", f"{described}; what is added comes later"))
    if given.loans is not None:
        problems.append(
            FieldProblem(
                "loans",
                "cannot be combined with a snapshot, which does not say what is lent; leave out the loan schedule",
            )
        )
    unknown = [workload for workload in known if emulated_work_s(workload.specification) is None]
    if unknown and given.default_duration_s is None:
        described = (
            f"{len(unknown)} of {len(known)} workloads are not emulated, such as {unknown[0].workload}: it is "
            "unknown how long they still run; say a default duration (--default-duration)"
        )
        problems.append(FieldProblem("specification", described))
    if problems:
        raise FormatError(given.trace, problems)
