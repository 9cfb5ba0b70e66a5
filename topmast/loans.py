"""The machines that inference clusters lend to training."""

from __future__ import annotations

from dataclasses import dataclass

from topmast.v1 import global_scheduler_pb2


@dataclass(frozen=True, slots=True)
class ReturningMachine:
    """A machine that inference wants back. `asked_back_s` None: an operator has asked for it.

    From `deadline_s` on what is still on it is ended; None: it may take its time.
    """

    machine: str
    asked_back_s: float | None
    deadline_s: float | None


@dataclass(frozen=True, slots=True)
class ClusterLoans:
    """One inference cluster.

    `on_loan` are not wanted back, and `wanted_on_loan` are to be so; `needed_machines` inference needs, as it said last, and
    `forecast` is the share that it will need at the next look; `shortfall` it needs and the cluster does not have.
    `asked_s` and `answered_s` None: never. `problem`: why no more is lent; "": nothing is wrong.
    """

    region: str
    cluster: str
    machines: int
    on_loan: int
    returning: tuple[ReturningMachine, ...]
    wanted_on_loan: int
    needed_machines: int
    forecast: float
    shortfall: int
    asked_s: float | None
    answered_s: float | None
    problem: str


def loans_from_proto(message: global_scheduler_pb2.GetLoansResponse) -> tuple[ClusterLoans, ...]:
    return tuple(
        ClusterLoans(
            one.region,
            one.cluster,
            one.machines,
            one.on_loan,
            tuple(
                ReturningMachine(
                    back.machine,
                    back.asked_back_s if back.HasField("asked_back_s") else None,
                    back.deadline_s if back.HasField("deadline_s") else None,
                )
                for back in one.returning
            ),
            one.wanted_on_loan,
            one.needed_machines,
            one.forecast,
            one.shortfall,
            one.asked_s if one.HasField("asked_s") else None,
            one.answered_s if one.HasField("answered_s") else None,
            one.problem,
        )
        for one in message.clusters
    )
