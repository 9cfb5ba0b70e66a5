"""Clusters of the region that are lost: declared so when their managers have held no lease for too long, or by an operator.

Whatever ran there has stopped itself by then (`services.cluster_manager.task_guard`), so that it can run elsewhere: its
attempts are ended in the cluster's name, what they were charged is given back, and their workloads return to the queue with
the checkpoints that are known. A cluster is back as soon as its manager holds a lease and can be reached, and nothing of
the region is there any more; what it still runs is stopped by its manager, or by the region as unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import structlog

from cluster_manager.attempt_run.run import lost_with_machine
from domain.clock import Clock
from domain.identifiers import ClusterId, MachineId
from domain.life_cycle import State
from services.configuration import LeaseConfiguration
from services.database import lost_cluster_store
from services.database.engine import Database
from services.database.lease_store import Lease
from services.database.lost_cluster_store import ClusterStanding
from services.regional_scheduler.absent_clusters import AbsentClusters
from services.regional_scheduler.arrivals import Arrivals
from services.regional_scheduler.due_attempts import DueAttempts
from services.regional_scheduler.eviction_writer import LOST, EvictionWriter
from services.regional_scheduler.live_attempts import LiveAttempt
from services.regional_scheduler.lost_attempts import lost_status
from services.regional_scheduler.lost_tasks import LostTasks
from services.regional_scheduler.order_sender import OrderSender
from services.regional_scheduler.region_memory import RegionMemory
from services.tiers.fenced_transaction import fenced_transaction

STOP_PATIENCE_REAL_S = 10.0
"""A cluster that an operator declares lost though its manager is there has so long to stop what runs and to say so."""

_LONGEST_INTERVAL_REAL_S = 1.0

_log = structlog.get_logger(__name__)


class LostClusters:
    """Looks after them now and then; times are real seconds of the session's clock."""

    def __init__(
        self,
        database: Database,
        lease: Lease,
        memory: RegionMemory,
        writer: EvictionWriter,
        due_attempts: DueAttempts,
        lost_tasks: LostTasks,
        sender: OrderSender,
        absent: AbsentClusters,
        arrivals: Arrivals,
        configuration: LeaseConfiguration,
        clock: Clock,
        now_real_s: float,
    ) -> None:
        self._database = database
        self._lease = lease
        self._memory = memory
        self._writer = writer
        self._due_attempts = due_attempts
        self._lost_tasks = lost_tasks
        self._sender = sender
        self._absent = absent
        self._arrivals = arrivals
        self._clock = clock
        self._limits = (configuration.tasks_stop_after_real_s, configuration.lost_grace_real_s)
        self._interval_real_s = min(_LONGEST_INTERVAL_REAL_S, configuration.duration_real_s)
        self._due_real_s = now_real_s
        self._declares_from_real_s = now_real_s + configuration.lost_grace_real_s
        """Not sooner: when the database was away no manager could renew its lease, and all come back with it."""
        self._asked_to_stop_real_s: dict[ClusterId, float] = {}

    async def look(self, now_real_s: float) -> None:
        """Declares what is to be declared, ends what is lost, and takes back what is there again."""
        if now_real_s < self._due_real_s:
            return
        self._due_real_s = now_real_s + self._interval_real_s
        standings = await self._load()
        if now_real_s >= self._declares_from_real_s and any(self._may_declare(one) for one in standings):
            await self._declare([one for one in standings if self._may_declare(one)])
            standings = await self._load()
        lost = {one.cluster: one for one in standings if one.lost is not None}
        self._absent.declared_lost(lost.keys())
        for cluster in self._asked_to_stop_real_s.keys() - lost.keys():
            del self._asked_to_stop_real_s[cluster]
        if not lost:
            return
        await self._ask_to_leave(lost)
        await self._end(lost, now_real_s)
        back = [one.cluster for one in lost.values() if one.live and self._is_back(one.cluster)]
        if back:
            async with fenced_transaction(self._database, self._lease) as connection:
                await lost_cluster_store.take_back(connection, self._memory.region.region, back, self._clock.now())
            self._absent.declared_lost(lost.keys() - set(back))
            _log.info("clusters are back", region=self._memory.region.region, clusters=back)

    async def _load(self) -> list[ClusterStanding]:
        after_s, grace_s = self._limits
        region = self._memory.region.region
        async with self._database.transaction(pipelined=True) as connection:
            return await lost_cluster_store.standings(connection, region, after_s, grace_s)

    def _may_declare(self, one: ClusterStanding) -> bool:
        """A cluster that never had a manager is lost to those alone who wait for it to begin there."""
        return one.overdue and one.lost is None and (one.silent_s is not None or bool(self._there(one.cluster)))

    async def _declare(self, overdue: Iterable[ClusterStanding]) -> None:
        region, now = self._memory.region.region, self._clock.now()
        async with fenced_transaction(self._database, self._lease) as connection:
            for one in overdue:
                # A manager that has just renewed its lease is not lost; from here on it cannot.
                if await lost_cluster_store.fence_if_silent(connection, one.cluster, *self._limits):
                    await lost_cluster_store.declare(connection, region, [one.cluster], _why(one), now)
                    _log.error("cluster lost", region=region, cluster=one.cluster, why=_why(one))

    async def _ask_to_leave(self, lost: Collection[ClusterId]) -> None:
        """Everything with anything there has to leave, or to go on without it; in one transaction."""
        machines = {machine for cluster in lost for machine in self._machines(cluster)}
        staying = [
            one for attempt in self._among(lost) if (one := self._lost_tasks.on_machines(attempt, machines)) is not None
        ]
        going_on = {one.attempt.key for one in staying}
        leaving = [
            attempt.key
            for attempt in self._among(lost)
            if attempt.key not in going_on and self._holds(attempt, lost) and not _leaves_for_it(attempt)
        ]
        arriving = any(self._arrivals.keeps_on(machine) for machine in machines)
        if not (staying or leaving or arriving):
            return
        async with fenced_transaction(self._database, self._lease) as connection:
            without_place = await self._arrivals.give_up(connection, machines)
            for one in staying:
                await self._lost_tasks.write(connection, one)
            saving = await self._writer.write_lost(connection, leaving)
            asked = await self._writer.write(connection, leaving, LOST)
        for workload in without_place:
            self._arrivals.withdraw(workload)
        for one in staying:
            self._lost_tasks.begin(one)
        self._writer.begin_lost(saving)
        self._writer.begin(asked, LOST)

    async def _end(self, lost: dict[ClusterId, ClusterStanding], now_real_s: float) -> None:
        """Says for clusters in which nothing runs any more that it does not; the ends are recorded like all others."""
        for one in lost.values():
            there = [attempt for attempt in self._there(one.cluster) if not _has_ended(attempt, one.cluster)]
            if not there:
                continue
            asked_real_s = self._asked_to_stop_real_s.setdefault(one.cluster, now_real_s)
            if not one.overdue and (one.live or self._sender.reaches(one.cluster)):
                if now_real_s - asked_real_s < STOP_PATIENCE_REAL_S:
                    continue
                async with fenced_transaction(self._database, self._lease) as connection:
                    await lost_cluster_store.fence(connection, [one.cluster])
            for attempt in there:
                attempt.reports[one.cluster] = lost_status(attempt, one.cluster, one.lost or "", self._clock.now())
                self._due_attempts.record(attempt.key)

    def _is_back(self, cluster: ClusterId) -> bool:
        return self._sender.reaches(cluster) and not self._there(cluster)

    def _there(self, cluster: ClusterId) -> list[LiveAttempt]:
        return self._among({cluster})

    def _among(self, clusters: Collection[ClusterId]) -> list[LiveAttempt]:
        """The attempts with anything in these clusters, or with something to give up there; sorted."""
        keys = {
            key for cluster in clusters for machine in self._machines(cluster) for key in self._memory.live.on(machine)
        }
        return [attempt for key in sorted(keys) if (attempt := self._memory.live.get(key)) is not None]

    def _holds(self, attempt: LiveAttempt, clusters: Collection[ClusterId]) -> bool:
        """Whether it is to hold anything there; what it only gives up there is given up."""
        return attempt.state is not State.RUNNING or any(one.cluster in clusters for one in attempt.placements)

    def _machines(self, cluster: ClusterId) -> Sequence[MachineId]:
        return self._absent.machines_of(cluster)


def _leaves_for_it(attempt: LiveAttempt) -> bool:
    return attempt.eviction is not None and attempt.eviction == lost_with_machine(attempt.eviction)


def _has_ended(attempt: LiveAttempt, cluster: ClusterId) -> bool:
    return cluster in attempt.reports and attempt.reports[cluster].ended


def _why(one: ClusterStanding) -> str:
    if one.silent_s is None:
        return "no manager of it ever held its lease"
    return f"its manager has held no lease for {one.silent_s:.0f} s"
