"""What is simulated, and what makes it unfit to be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domain.fleet import Fleet
from domain.tenant import Tenant
from formats.problems import FieldProblem, FormatError
from formats.trace import TraceRow
from simulator.inputs.loans import LoanSchedule, check_loans


@dataclass(frozen=True, slots=True)
class SimulationInput:
    """What is simulated. Tenants must name every tenant of the rows; rows may come in any order."""

    trace: str
    rows: Sequence[TraceRow]
    fleet: Fleet
    tenants: Sequence[Tenant]
    loans: LoanSchedule | None = None
    """Which clusters are for inference, and what they lend to training; None: all are for training."""

    def sorted_rows(self) -> list[TraceRow]:
        """The rows by (submit time, id): a row's place is its workload's index."""
        return sorted(self.rows, key=lambda row: (row.submit_s, row.workload_id))

    def sorted_tenants(self) -> list[Tenant]:
        """The tenants by name: a tenant's place is its number in the run."""
        return sorted(self.tenants, key=lambda tenant: tenant.tenant)


def check_input(given: SimulationInput) -> None:
    """Raises FormatError for no rows, a row of an unknown tenant, two rows with one id, loans that the fleet has not."""
    if not given.rows:
        raise FormatError(given.trace, [FieldProblem("", "has no workloads; a simulation needs at least one row")])
    unknown = sorted({row.tenant for row in given.rows} - {tenant.tenant for tenant in given.tenants})
    if unknown:
        description = f"{unknown[0]} is not among the tenants; add it to the tenants file, or leave that out"
        raise FormatError(given.trace, [FieldProblem("tenant", description)])
    seen: set[str] = set()
    for row in given.sorted_rows():
        if row.workload_id in seen:
            raise FormatError(given.trace, [FieldProblem("workload_id", f"{row.workload_id} is there twice")])
        seen.add(row.workload_id)
    if given.loans is not None:
        check_loans(given.loans, given.fleet, "loans")
