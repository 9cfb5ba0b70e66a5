"""The loans of inference clusters, as the database says at one moment."""

from __future__ import annotations

from domain.fleet import Cluster, MachineState, Region
from domain.identifiers import MachineId
from services.database import fleet_store, loan_store
from services.database.connection import AnyConnection
from services.database.loan_store import LoanRecord, ReturningMachine
from topmast.v1 import global_scheduler_pb2 as messages

_ON_LOAN = (MachineState.ON_LOAN, MachineState.ON_LOAN_DOWN)
_RETURNING = (MachineState.RETURNING, MachineState.RETURNING_DOWN)


async def loans(connection: AnyConnection, cluster: str = "") -> messages.GetLoansResponse:
    """Of all inference clusters in the order of the fleet, or of the one of this name."""
    fleet, states = await fleet_store.load_fleet(connection)
    lending = [
        (region, one)
        for region in fleet.regions
        for one in region.clusters
        if one.inference is not None and cluster in ("", one.cluster)
    ]
    names = [one.cluster for _, one in lending]
    records = await loan_store.load_loans(connection, names)
    returning = await loan_store.load_returning(connection, names)
    return messages.GetLoansResponse(
        clusters=[
            _cluster_loans(region, one, states, records.get(one.cluster), returning[one.cluster])
            for region, one in lending
        ]
    )


def _cluster_loans(
    region: Region,
    cluster: Cluster,
    states: dict[MachineId, MachineState],
    record: LoanRecord | None,
    returning: tuple[ReturningMachine, ...],
) -> messages.ClusterLoans:
    machines = [machine.machine for machine in cluster.machines()]
    known = {row.machine: row for row in returning}
    answer = messages.ClusterLoans(
        region=region.region,
        cluster=cluster.cluster,
        machines=len(machines),
        on_loan=sum(states[machine] in _ON_LOAN for machine in machines),
    )
    for machine in machines:
        if states[machine] in _RETURNING:
            row = known.get(machine)
            answer.returning.add(
                machine=machine,
                asked_back_s=row.asked_back_s if row is not None else None,
                deadline_s=row.deadline_s if row is not None else None,
            )
    if record is not None:
        answer.asked_s = record.asked_s
        answer.wanted_on_loan, answer.needed_machines = record.wanted_on_loan, record.demand.needed_machines
        answer.forecast, answer.shortfall, answer.problem = record.forecast, record.shortfall, record.problem
        if record.answered_s is not None:
            answer.answered_s = record.answered_s
    return answer
