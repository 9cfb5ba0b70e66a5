"""What is known of each inference cluster's loans. Inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from domain.identifiers import ClusterId, MachineId
from domain.inference import InferenceDemand
from regional_scheduler.forecasting.history import LoadSample
from services.database.connection import AnyConnection

MOST_SAMPLES = 20_000
"""Of a history: two weeks with a look a minute, two days with one every ten seconds."""


@dataclass(frozen=True, slots=True)
class LoanRecord:
    """What came of asking an inference side: the last time, and the last time that it answered."""

    cluster: ClusterId
    asked_s: float
    answered_s: float | None = None
    demand: InferenceDemand = InferenceDemand(0)
    """What it answered last."""
    forecast: float = 0.0
    """The share of its machines that it was then forecast to need at the next look."""
    wanted_on_loan: int = 0
    """So many machines are to be on loan."""
    shortfall: int = 0
    """Machines that inference needs and the cluster does not have."""
    problem: str = ""
    """Why no more is lent; empty: nothing is wrong."""


@dataclass(frozen=True, slots=True)
class ReturningMachine:
    """A machine that inference wants back."""

    machine: MachineId
    asked_back_s: float
    deadline_s: float | None
    """From then on what is still on it is ended; None: never."""


async def write_loan(connection: AnyConnection, record: LoanRecord) -> None:
    """What was found at this look; the answer to an earlier one stays where there was none to this."""
    await connection.execute(
        """INSERT INTO loans (cluster, asked_s, answered_s, needed_machines, reclaim_within_s, forecast, wanted_on_loan,
                              shortfall, problem)
           VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
           ON CONFLICT (cluster) DO UPDATE
              SET asked_s = excluded.asked_s, answered_s = excluded.answered_s,
                  needed_machines = excluded.needed_machines, reclaim_within_s = excluded.reclaim_within_s,
                  forecast = excluded.forecast, wanted_on_loan = excluded.wanted_on_loan,
                  shortfall = excluded.shortfall, problem = excluded.problem""",
        (
            record.cluster,
            record.asked_s,
            record.answered_s,
            record.demand.needed_machines,
            record.demand.reclaim_within_s,
            record.forecast,
            record.wanted_on_loan,
            record.shortfall,
            record.problem,
        ),
    )


async def load_loans(connection: AnyConnection, clusters: Sequence[ClusterId]) -> dict[ClusterId, LoanRecord]:
    """Of those of these clusters that were asked once, by name."""
    cursor = await connection.execute(
        """SELECT cluster, asked_s, answered_s, needed_machines, reclaim_within_s, forecast, wanted_on_loan, shortfall,
                  problem
             FROM loans WHERE cluster = ANY (%s) ORDER BY cluster""",
        (list(clusters),),
    )
    return {
        ClusterId(cluster): LoanRecord(
            ClusterId(cluster), asked_s, answered_s, InferenceDemand(needed, None, within_s), *what_followed
        )
        for cluster, asked_s, answered_s, needed, within_s, *what_followed in await cursor.fetchall()
    }


async def add_load(connection: AnyConnection, cluster: ClusterId, sample: LoadSample, forget_before_s: float) -> None:
    """One more point of the history; what is older than that is forgotten."""
    await connection.execute(
        """INSERT INTO inference_loads (cluster, t_s, load) VALUES (%s, %s, %s)
           ON CONFLICT (cluster, t_s) DO UPDATE SET load = excluded.load""",
        (cluster, sample.t_s, sample.load),
    )
    await connection.execute("DELETE FROM inference_loads WHERE cluster = %s AND t_s < %s", (cluster, forget_before_s))


async def load_history(connection: AnyConnection, cluster: ClusterId, before_s: float) -> list[LoadSample]:
    """The latest points before then, oldest first: no more of them than a forecast has use for."""
    cursor = await connection.execute(
        "SELECT t_s, load FROM inference_loads WHERE cluster = %s AND t_s < %s ORDER BY t_s DESC LIMIT %s",
        (cluster, before_s, MOST_SAMPLES),
    )
    return [LoadSample(t_s, load) for t_s, load in reversed(await cursor.fetchall())]


async def add_returning(connection: AnyConnection, machines: Iterable[ReturningMachine]) -> None:
    """These are asked back now."""
    rows = list(machines)
    await connection.execute(
        """INSERT INTO returning_machines (machine, asked_back_s, deadline_s)
           SELECT * FROM unnest(%s::text[], %s::float[], %s::float[])
           ON CONFLICT (machine) DO UPDATE SET asked_back_s = excluded.asked_back_s, deadline_s = excluded.deadline_s""",
        ([row.machine for row in rows], [row.asked_back_s for row in rows], [row.deadline_s for row in rows]),
    )


async def remove_returning(connection: AnyConnection, machines: Iterable[MachineId]) -> None:
    """These are back, or stay."""
    await connection.execute("DELETE FROM returning_machines WHERE machine = ANY (%s)", (list(machines),))


async def load_returning(
    connection: AnyConnection, clusters: Sequence[ClusterId]
) -> dict[ClusterId, tuple[ReturningMachine, ...]]:
    """The machines of these clusters that are on the way back, by cluster; of those of which it is known since when."""
    cursor = await connection.execute(
        """SELECT m.cluster, r.machine, r.asked_back_s, r.deadline_s FROM returning_machines r JOIN machines m USING (machine)
            WHERE m.cluster = ANY (%s) ORDER BY m.cluster, m.position, r.machine""",
        (list(clusters),),
    )
    found: dict[ClusterId, list[ReturningMachine]] = {cluster: [] for cluster in clusters}
    for cluster, machine, asked_back_s, deadline_s in await cursor.fetchall():
        found[ClusterId(cluster)].append(ReturningMachine(MachineId(machine), asked_back_s, deadline_s))
    return {cluster: tuple(machines) for cluster, machines in found.items()}
