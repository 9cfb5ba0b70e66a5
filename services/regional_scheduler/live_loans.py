"""The loans of a region's inference clusters (Lyra §2.1, §4): asked for at every look, decided by the same lender as in simulations,
and written in one transaction with the attempts that have to leave.

Which side has a machine is its state, one column of one row: no machine is ever on two sides, whatever dies and whenever.
All that a lender has to remember is in the database: a new session goes on where the last one was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import structlog

from cluster_manager.attempt_run.events import Eviction
from cluster_manager.capacity.errors import InventoryError
from domain.clock import Clock
from domain.events import EvictionCause
from domain.fleet import Cluster, MachineState
from domain.identifiers import ClusterId, MachineId
from domain.inference import InferenceSide
from domain.machine_life_cycle import MachineHappening, MachineTransitionRefused
from domain.placement_changes import ImpossibleAction
from domain.plan import Reclaim, ScaleIn
from regional_scheduler.forecasting.history import DAY_S, BadLoadHistory, LoadSample
from regional_scheduler.forecasting.policy import ForecastLibraryMissing
from regional_scheduler.loan_decision import LoanDecision, decide_loan
from regional_scheduler.loaning import Lender, LoanAction, MachineChange
from regional_scheduler.plan_application import apply_actions
from regional_scheduler.reclaiming import RECLAIMING
from regional_scheduler.reclaiming.occupancy import machines_on_loan
from regional_scheduler.reclaiming.policy import AttemptOnMachine, MachineOnLoan
from services.database import attempt_store, loan_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.lease_store import Lease
from services.database.loan_store import LoanRecord, ReturningMachine
from services.database.revision_store import load_revisions
from services.inference.demand import LendingCluster
from services.regional_scheduler.absent_clusters import AbsentClusters
from services.regional_scheduler.arrivals import Arrivals
from services.regional_scheduler.demand_watch import DemandAnswer, DemandWatch
from services.regional_scheduler.eviction_writer import EvictionWriter
from services.regional_scheduler.inbox import Inbox
from services.regional_scheduler.live_attempts import LiveAttempt
from services.regional_scheduler.machine_states import record_machine_happening
from services.regional_scheduler.plan_writing import PlanWriting, write_changes
from services.regional_scheduler.recording import begin_evictions
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.session_over import SessionOver
from services.tiers.fenced_transaction import fenced_transaction

_HISTORY_S = 15 * DAY_S
_RETURNING = (MachineState.RETURNING, MachineState.RETURNING_DOWN)
_OVERDUE = Eviction(EvictionCause.RECLAIMED, overdue=True)

_log = structlog.get_logger(__name__)


class LiveLoans:
    """Looked at once in every round of the session's loop."""

    def __init__(
        self,
        database: Database,
        lease: Lease,
        memory: RegionMemory,
        eviction_writer: EvictionWriter,
        absent: AbsentClusters,
        arrivals: Arrivals,
        inbox: Inbox,
        clock: Clock,
    ) -> None:
        self._database = database
        self._lease = lease
        self._memory = memory
        self._eviction_writer = eviction_writer
        self._absent = absent
        self._arrivals = arrivals
        self._inbox = inbox
        self._clock = clock
        self._watch = DemandWatch(clock, inbox.wake)
        self._records: dict[ClusterId, LoanRecord] = {}
        self._returning: dict[MachineId, ReturningMachine] = {}
        self._loaded_for: int | None = None
        """The revision of the fleet for which the records were read."""
        self._waiting: list[DemandAnswer] = []
        """Answers that could not be followed yet."""

    async def look(self) -> None:
        """Hands back what has been left, ends what is overdue, follows what inference sides said, and asks them again."""
        clusters = [cluster for cluster in self._memory.region.clusters if cluster.inference is not None]
        if not clusters and not self._records:
            return
        if self._loaded_for != self._memory.revisions.fleet:
            await self._load(clusters)
        for cluster in clusters:
            await self._hand_back(cluster)
        await self._end_overdue()
        await self._follow(clusters)
        for cluster in clusters:
            # Of thousands of machines: only who is asked is told what becomes of them.
            if cluster.cluster not in self._memory.closed and self._watch.is_due(cluster.cluster):
                self._watch.ask(self._about(cluster))

    async def close(self) -> None:
        """Asks nothing more."""
        await self._watch.close()

    async def _load(self, clusters: Sequence[Cluster]) -> None:
        """What earlier sessions have left."""
        names = [cluster.cluster for cluster in clusters]
        async with self._database.transaction() as connection:
            self._records = await loan_store.load_loans(connection, names)
            returning = await loan_store.load_returning(connection, names)
        self._returning = {row.machine: row for rows in returning.values() for row in rows}
        for cluster in clusters:
            side = _side_of(cluster)
            record = self._records.get(cluster.cluster)
            self._watch.watch(cluster.cluster, side, None if record is None else record.asked_s)
        self._loaded_for = self._memory.revisions.fleet

    # ------------------------------------------------------------ machines that are left

    async def _hand_back(self, cluster: Cluster) -> None:
        """Machines on the way back with nothing on them any more serve inference again."""
        changes = self._lender(cluster).attempts_gone((), self._memory.machine_state)
        if changes:
            async with fenced_transaction(self._database, self._lease) as connection:
                await self._write_machines(connection, changes)
            self._machines_changed(changes)

    async def _end_overdue(self) -> None:
        """What is still on a machine that should be back has no more time to save its work."""
        now = self._clock.now()
        late = {
            key
            for machine in self._returning.values()
            if machine.deadline_s is not None and machine.deadline_s <= now
            for key in self._memory.live.on(machine.machine)
        }
        attempts = [attempt for key in sorted(late) if (attempt := self._memory.live.get(key)) is not None]
        overdue = [
            attempt.key
            for attempt in attempts
            if attempt.run.eviction is not None
            and attempt.run.eviction.cause is EvictionCause.RECLAIMED
            and not attempt.run.eviction.overdue
        ]
        unasked = [attempt.key for attempt in attempts if attempt.run.eviction is None]
        if not (overdue or unasked):
            return
        async with fenced_transaction(self._database, self._lease) as connection:
            await attempt_store.change_causes(connection, [(key, _OVERDUE) for key in overdue])
            # One that was only to scale in, and has not: it leaves as a whole.
            written = await self._eviction_writer.write(connection, unasked, _OVERDUE)
        for key in overdue:
            self._eviction_writer.begin_in_memory(key, _OVERDUE)
        self._eviction_writer.begin(written, _OVERDUE)
        _log.warning("machines are overdue: what is on them is ended", attempts=len(overdue) + len(written))

    # ------------------------------------------------------------ what inference wants

    async def _follow(self, clusters: Sequence[Cluster]) -> None:
        """Lends more or takes back, as the newest answer of each cluster says."""
        by_name = {cluster.cluster: cluster for cluster in clusters}
        newest = {answer.cluster: answer for answer in (*self._waiting, *self._watch.take_answers())}
        self._waiting = []
        for name, answer in newest.items():
            if name not in by_name:
                continue
            if answer.demand is None:
                await self._note_problem(answer)
                continue
            try:
                followed = await self._follow_one(by_name[name], answer)
            except (ImpossibleAction, InventoryError, MachineTransitionRefused) as refused:
                # A change that is under way is in the way: it is tried again when that is done.
                _log.info("a loan has to wait", cluster=name, why=str(refused))
                followed = False
            if not followed:
                self._waiting.append(answer)

    async def _note_problem(self, answer: DemandAnswer) -> None:
        """No new loans; what is on the way back goes on, and what is on loan stays."""
        before = self._records.get(answer.cluster) or LoanRecord(answer.cluster, answer.asked_s)
        if before.problem != answer.problem:
            _log.warning("an inference side says nothing", cluster=answer.cluster, why=answer.problem)
        record = replace(before, asked_s=answer.asked_s, problem=answer.problem)
        async with fenced_transaction(self._database, self._lease) as connection:
            await loan_store.write_loan(connection, record)
        self._records[answer.cluster] = record

    async def _follow_one(self, cluster: Cluster, answer: DemandAnswer) -> bool:
        """False: the fleet has just changed, or its manager cannot be reached; it has to be tried again."""
        demand, name, now = answer.demand, cluster.cluster, self._clock.now()
        if demand is None or name in self._memory.closed:
            return False
        returning: list[ReturningMachine] = []
        load_history = partial(loan_store.load_history, cluster=name, before_s=answer.asked_s)
        past = await self._database.run(load_history, give_up_after_s=0.0)
        # In a thread: leases are kept, however long a forecast takes, or the choice among thousands of machines.
        async with self._memory.steady:
            decision, problem, actions = await asyncio.to_thread(self._decide, cluster, answer, past)
        async with fenced_transaction(self._database, self._lease) as connection:
            if await load_revisions(connection) != self._memory.revisions:
                self._inbox.look_at_applied = True
                return False
            changes = [action for action in actions if isinstance(action, MachineChange)]
            plan = [action for action in actions if not isinstance(action, MachineChange)]
            writing = PlanWriting(self._memory.region.region, self._memory.live, now)
            with self._memory.inventory.tentatively():
                apply_actions(self._memory.inventory, plan, now)
            writing.add_actions(plan)
            await self._write_plan(connection, writing, now)
            asked_back = [machine for action in plan if isinstance(action, Reclaim) for machine in action.machines]
            deadline_s = None if demand.reclaim_within_s is None else now + demand.reclaim_within_s
            returning = [ReturningMachine(machine, now, deadline_s) for machine in asked_back]
            await loan_store.add_returning(connection, returning)
            await self._write_machines(connection, changes)
            without_place = await self._arrivals.give_up(connection, asked_back)
            record = LoanRecord(
                name,
                answer.asked_s,
                answer.asked_s,
                demand,
                decision.forecast,
                decision.wanted_on_loan,
                decision.shortfall,
                problem,
            )
            await loan_store.write_loan(connection, record)
            sample = LoadSample(answer.asked_s, decision.load)
            await loan_store.add_load(connection, name, sample, answer.asked_s - _HISTORY_S)
        apply_actions(self._memory.inventory, plan, now)
        self._eviction_writer.carry_out(writing.writes)
        self._returning |= {row.machine: row for row in returning}
        self._machines_changed(changes)
        for workload in without_place:
            self._arrivals.withdraw(workload)
        self._records[name] = record
        self._tell(name, actions, record)
        return True

    def _decide(
        self, cluster: Cluster, answer: DemandAnswer, past: Sequence[LoadSample]
    ) -> tuple[LoanDecision, str, tuple[LoanAction, ...]]:
        """How many machines are to be on loan, what is wrong with the forecast, and what is to be done; changes nothing."""
        side = _side_of(cluster)
        decision, problem = _decided(answer, sum(1 for _ in cluster.machines()), side, past)
        actions = self._lender(cluster).lend(
            decision.wanted_on_loan,
            self._memory.machine_state,
            self._occupancy,
            RECLAIMING[side.reclaiming],
            np.random.default_rng(int(answer.asked_s)),
        )
        return decision, problem, actions

    def _tell(self, cluster: ClusterId, actions: Sequence[LoanAction], record: LoanRecord) -> None:
        if actions or record.shortfall:
            _log.info(
                "loans changed",
                cluster=cluster,
                on_loan=record.wanted_on_loan,
                lent=sum(isinstance(action, MachineChange) for action in actions),
                asked_back=sum(len(action.machines) for action in actions if isinstance(action, Reclaim)),
                scaled_in=sum(isinstance(action, ScaleIn) for action in actions),
                shortfall=record.shortfall,
            )

    # ------------------------------------------------------------ writing

    async def _write_plan(self, connection: AnyConnection, writing: PlanWriting, now: float) -> None:
        region, writes = self._memory.region.region, writing.writes
        await write_changes(connection, region, writes, now)
        leaving = [
            (attempt, eviction)
            for key, eviction in writes.evictions
            if (attempt := self._memory.live.get(key)) is not None
        ]
        marked = await begin_evictions(connection, region, leaving, now)
        if len(marked) != len(writes.evictions):
            raise SessionOver(f"of {len(writes.evictions)} attempts that are to leave only {len(marked)} were live")

    async def _write_machines(self, connection: AnyConnection, changes: Sequence[MachineChange]) -> None:
        """Raises SessionOver when the database knows a machine otherwise."""
        region, now = self._memory.region.region, self._clock.now()
        for change in changes:
            state = await record_machine_happening(
                connection, region, change.machine, change.happening, change.reason, now
            )
            if state is not change.state:
                raise SessionOver(f"machine {change.machine} is not in the database what it is in memory")
        ended = [change.machine for change in changes if change.happening is not MachineHappening.LENT]
        await loan_store.remove_returning(connection, ended)

    def _machines_changed(self, changes: Sequence[MachineChange]) -> None:
        """What was written counts in memory too."""
        for change in changes:
            self._absent.set_state(change.machine, change.state)
            if change.happening is not MachineHappening.LENT:
                self._returning.pop(change.machine, None)

    # ------------------------------------------------------------ what is known

    def _about(self, cluster: Cluster) -> LendingCluster:
        states = [self._memory.machine_state(machine.machine) for machine in cluster.machines()]
        lent = sum(state.is_lent for state in states)
        return LendingCluster(cluster.cluster, len(states), lent, sum(state in _RETURNING for state in states))

    def _lender(self, cluster: Cluster) -> Lender:
        """The lender as the inventory says: all that it remembers is what is on the machines that go back."""
        machines = [machine.machine for machine in cluster.machines()]
        returning = [machine for machine in machines if self._memory.machine_state(machine) in _RETURNING]
        return Lender(cluster.cluster, machines, self._occupancy(returning))

    def _occupancy(self, machines: Sequence[MachineId]) -> tuple[MachineOnLoan, ...]:
        """What is on these machines, with what has yet to be given up there. Places that are only kept do not count: they are
        given up with the machine."""
        live = self._memory.live
        found: list[MachineOnLoan] = []
        for machine in machines_on_loan(self._memory.inventory, machines):
            attempts = tuple(
                [
                    _as_it_may_change(there, known)
                    for there in machine.attempts
                    if (known := live.get(there.key)) is not None
                ]
            )
            counted = {*machine.leaving, *(there.key for there in attempts)}
            scaling_in = tuple([key for key in live.on(machine.machine) if key not in counted])
            found.append(MachineOnLoan(machine.machine, attempts, machine.leaving, scaling_in))
        return tuple(found)


def _as_it_may_change(there: AttemptOnMachine, attempt: LiveAttempt) -> AttemptOnMachine:
    """One whose last change is not carried out yet cannot be asked to scale in: it would have to leave. Inference does not
    wait until it is."""
    return there if attempt.change is None else replace(there, has_base_tasks=True)


def _side_of(cluster: Cluster) -> InferenceSide:
    if cluster.inference is None:
        raise ValueError(f"cluster {cluster.cluster} serves no inference")
    return cluster.inference


def _decided(
    answer: DemandAnswer, machines: int, side: InferenceSide, past: Sequence[LoadSample]
) -> tuple[LoanDecision, str]:
    """The decision, and what is wrong: where the forecast cannot be made, the load is taken to stay as it is."""
    if answer.demand is None:
        raise ValueError(f"{answer.cluster} was asked and has not answered")
    try:
        return decide_loan(answer.demand, machines, side, past, answer.asked_s), ""
    except (ForecastLibraryMissing, BadLoadHistory) as error:
        stays = replace(side, forecast="persistence")
        return decide_loan(answer.demand, machines, stays, [], answer.asked_s), str(error)
