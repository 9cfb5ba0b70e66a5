"""One region at work: everything it knows in memory, and the loop that moves it on.

A session begins with what the database says and ends when that may no longer be what it has in memory: the database
was lost, the fleet changed, the lease went to somebody else. Then a new session begins. There is no other way to
recover, so that this one is always well tried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from cluster_manager.inventory import Inventory
from domain.clock import Clock
from domain.events import EvictionCause
from domain.fleet import MachineState, Region
from domain.identifiers import ClusterId, MachineId, TenantId
from domain.life_cycle import State
from domain.placement import AttemptKey
from domain.tenant import Tenant
from regional_scheduler.bidding import RegionBidder
from services.configuration import Configuration
from services.database import attempt_store, auction_store, lease_store
from services.database.attempt_store import Eviction
from services.database.engine import Database
from services.database.lease_store import Lease
from services.execution.executor import ENDED_PHASES, AttemptPhase, AttemptStatus
from services.regional_scheduler.absent_clusters import AbsentClusters
from services.regional_scheduler.auctioneering import Auctioneer
from services.regional_scheduler.cluster_link import (
    ClusterLink,
    ClusterReport,
    ForgetOrders,
    LinkLost,
    LinkMessage,
    MachineReport,
    StartOrders,
    stop_orders,
)
from services.regional_scheduler.dispatching import dispatch_awards
from services.regional_scheduler.live_attempts import (
    LiveAttempt,
    LiveAttempts,
    Order,
    end_of,
    never_ordered,
    started_s,
    take_progress,
    wanted_order,
)
from services.regional_scheduler.machine_states import record_machine_state
from services.regional_scheduler.orders import attempt_plan
from services.regional_scheduler.recording import begin_evictions, record_reports
from services.regional_scheduler.specifications import SpecificationCache

PROGRESS_REAL_S = 1.0
"""Progress alone is written so often; whatever else is reported takes it along."""

_log = structlog.get_logger(__name__)


class SessionOver(Exception):
    """The session's memory may be out of date: the tier begins a new one."""


@dataclass(slots=True)
class RegionMemory:
    """What the region knows."""

    region: Region
    inventory: Inventory
    bidder: RegionBidder
    tenants: dict[TenantId, Tenant]
    live: LiveAttempts
    specifications: SpecificationCache


@dataclass(slots=True)
class MachineRequest:
    """Somebody wants a machine in another state; `evicted` is answered with the attempts that have to leave for it."""

    machine: MachineId
    state: MachineState
    only_from: tuple[MachineState, ...]
    reason: str
    keep_running: bool
    evicted: asyncio.Future[list[AttemptKey]]


@dataclass(slots=True)
class Inbox:
    """What happened outside since the loop last looked. Setting a flag twice is once."""

    messages: list[LinkMessage] = field(default_factory=list)
    look_at_attempts: bool = True
    """Cancellations and re-classifications."""
    look_at_auction: bool = True
    over: str | None = None
    """Why the session has to end."""
    machine_requests: list[MachineRequest] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, message: LinkMessage) -> None:
        self.messages.append(message)
        self.changed.set()

    def request(self, request: MachineRequest) -> None:
        self.machine_requests.append(request)
        self.changed.set()


class RegionSession:
    """The loop of one region. All state is touched by the loop alone."""

    def __init__(
        self,
        database: Database,
        memory: RegionMemory,
        lease: Lease,
        clock: Clock,
        configuration: Configuration,
        inbox: Inbox,
    ) -> None:
        self.memory = memory
        self.inbox = inbox
        self._database = database
        self._lease = lease
        self._clock = clock
        self._configuration = configuration
        self._links = {
            cluster.cluster: ClusterLink(cluster.cluster, self._cluster_address, inbox.put, lease.token)
            for cluster in memory.region.clusters
        }
        self._auctioneer = Auctioneer(
            database, memory.region.region, memory.bidder, memory.specifications, clock, configuration.auction
        )
        self._dirty: dict[AttemptKey, None] = {}
        """Attempts whose orders must be looked at, in the order they came up."""
        self._reported: dict[AttemptKey, None] = {}
        """Attempts with news for the database."""
        self._progressed: dict[AttemptKey, None] = {}
        """Attempts of which only the progress is news."""
        self._checkpoints: list[tuple[AttemptKey, float, float]] = []
        self._progress_due = 0.0
        self._machine_reports: list[MachineReport] = []
        self._absent = AbsentClusters(memory.region.clusters, memory.inventory, asyncio.get_running_loop().time())
        self._linked: set[ClusterId] = set()
        """Clusters whose complete report has been taken in: only they are given orders."""

    async def run(self) -> None:
        """Runs until the session is over; raises SessionOver, or what the database layer raises."""
        links = [asyncio.ensure_future(link.run()) for link in self._links.values()]
        try:
            for attempt in self.memory.live:
                self._dirty[attempt.key] = None
                if never_ordered(attempt):
                    self._reported[attempt.key] = None
            while True:
                await self._loop_once()
        finally:
            for task in links:
                task.cancel()
            for task in links:
                with suppress(asyncio.CancelledError):
                    await task

    async def _loop_once(self) -> None:
        # 1. Observe: take in everything that came since the last look.
        self._take_messages()
        # 2. Record what clusters reported: starts, ends, checkpoints. Then free what ended.
        await self._record()
        # 3. Ask to leave: cancelled workloads; take over re-classified standings.
        await self._look_at_attempts()
        self._absent.close(asyncio.get_running_loop().time())
        # 4. Dispatch what was won, before the next round is answered: it is planned on top.
        moved = await self._dispatch()
        # 5. Move the auction on: answer, close, or open a round.
        step = await self._auction()
        # 6. Tell the cluster managers. Everything they hear is in the database already.
        self._send_orders()
        # 7. Wait for something to happen.
        if self.inbox.over is not None:
            raise SessionOver(self.inbox.over)
        if not moved and not self._reported:
            await self._wait(step)

    async def _wait(self, auction_in_real_s: float | None) -> None:
        timeout = self._configuration.auction.poll_real_s
        if self._progressed:
            timeout = min(timeout, PROGRESS_REAL_S)
        if auction_in_real_s is not None:
            timeout = min(timeout, auction_in_real_s + 0.01)
        try:
            async with asyncio.timeout(timeout):
                await self.inbox.changed.wait()
        except TimeoutError:
            self.inbox.look_at_auction = True
        self.inbox.changed.clear()

    # ------------------------------------------------------------ 1. observe

    def _take_messages(self) -> None:
        messages, self.inbox.messages = self.inbox.messages, []
        for message in messages:
            match message:
                case ClusterReport():
                    self._take_report(message)
                case LinkLost():
                    self._linked.discard(message.cluster)
                    self._absent.lost(message.cluster, asyncio.get_running_loop().time())
                    self._forget_orders(message.cluster)

    def _take_report(self, report: ClusterReport) -> None:
        if report.complete:
            self._forget_orders(report.cluster)
            named = {status.key for status in report.attempts}
            self._linked.add(report.cluster)
            self._absent.reached(report.cluster)
            for attempt in self.memory.live:
                if attempt.key not in named:
                    self._not_known_there(attempt, report.cluster)
        unknown: list[AttemptStatus] = []
        for status in report.attempts:
            reported = self.memory.live.get(status.key)
            if reported is None or report.cluster not in reported.clusters:
                unknown.append(status)
            else:
                self._take_status(reported, report.cluster, status)
        self._dismiss(report.cluster, unknown)
        self._machine_reports.extend(report.machines)

    def _not_known_there(self, attempt: LiveAttempt, cluster: ClusterId) -> None:
        attempt.reports.pop(cluster, None)
        attempt.perhaps_known.discard(cluster)
        if cluster in attempt.clusters:
            self._dirty[attempt.key] = None
            if never_ordered(attempt):
                self._reported[attempt.key] = None

    def _take_status(self, attempt: LiveAttempt, cluster: ClusterId, status: AttemptStatus) -> None:
        before = attempt.reports.get(cluster)
        checkpoint_before = attempt.checkpoint_progress
        attempt.reports[cluster] = status
        take_progress(attempt)
        self._dirty[attempt.key] = None
        if attempt.checkpoint_progress > checkpoint_before and status.phase not in ENDED_PHASES:
            self._checkpoints.append((attempt.key, attempt.checkpoint_progress, self._clock.now()))
        if before is None or before.phase is not status.phase or attempt.started_s is None:
            self._reported[attempt.key] = None
        else:
            self._progressed[attempt.key] = None

    def _dismiss(self, cluster: ClusterId, unknown: Iterable[AttemptStatus]) -> None:
        """Attempts that are over for the database: their ends are forgotten, what still runs is an orphan."""
        link = self._links[cluster]
        ended = tuple(status.key for status in unknown if status.phase in ENDED_PHASES)
        orphans = tuple(status.key for status in unknown if status.phase not in ENDED_PHASES)
        if ended:
            link.send(ForgetOrders(ended))
        for order in stop_orders([(key, 0.0) for key in orphans]):
            _log.warning("stopping orphans", cluster=cluster, attempts=[str(key) for key in orphans])
            link.send(order)

    def _forget_orders(self, cluster: ClusterId) -> None:
        for attempt in self.memory.live:
            if attempt.ordered.pop(cluster, None) is not None:
                self._dirty[attempt.key] = None

    # ------------------------------------------------------------ 2. record

    async def _record(self) -> None:
        now_real = asyncio.get_running_loop().time()
        if not self._reported and not self._checkpoints and not (self._progressed and now_real >= self._progress_due):
            return
        keys = dict.fromkeys([*self._reported, *self._progressed])
        reported = [attempt for key in keys if (attempt := self.memory.live.get(key)) is not None]
        checkpoints, self._checkpoints = self._checkpoints, []
        self._reported, self._progressed = {}, {}
        self._progress_due = now_real + PROGRESS_REAL_S
        if not reported:
            return
        async with self._database.transaction() as connection:
            await lease_store.assert_held(connection, self._lease)
            recorded = await record_reports(
                connection, self.memory.region.region, reported, checkpoints, self._clock.now()
            )
        for key, since_s in recorded.started:
            self.memory.live.mark_started(key, since_s)
        for end in recorded.ended:
            self._free(end.key)
        for attempt in reported:
            live = self.memory.live.get(attempt.key)
            if live is not None and end_of(live, cancel_requested=False, now=self._clock.now()) is not None:
                raise SessionOver(f"{attempt.key} had ended in the database already")
            if live is not None and live.started_s is None and started_s(live) is not None:
                raise SessionOver(f"{attempt.key} had started in the database already")

    def _free(self, key: AttemptKey) -> None:
        attempt = self.memory.live.get(key)
        if attempt is None:
            return
        self.memory.inventory.release(key)
        for cluster in attempt.clusters:
            self._links[cluster].send(ForgetOrders((key,)))
        freed = self.memory.live.remove(key)
        for waiting in self.memory.live.waiting_on(freed):
            self._dirty[waiting.key] = None

    # ------------------------------------------------------------ 3. evictions that are not for somebody

    async def _look_at_attempts(self) -> None:
        reports, self._machine_reports = self._machine_reports, []
        for report in reports:
            await self._take_machine_report(report)
        requests, self.inbox.machine_requests = self.inbox.machine_requests, []
        for request in requests:
            await self._take_machine_request(request)
        if not self.inbox.look_at_attempts:
            return
        self.inbox.look_at_attempts = False
        async with self._database.transaction() as connection:
            cancelled = await attempt_store.cancellations_requested(connection, self.memory.region.region)
            standings = await attempt_store.standings(connection, self.memory.region.region)
        for key, (standing, within_quota) in standings.items():
            attempt = self.memory.live.get(key)
            if attempt is not None and (attempt.standing, attempt.within_quota) != (standing, within_quota):
                attempt.within_quota = within_quota
                self.memory.inventory.set_standing(key, standing)
                attempt.standing = standing
        await self.evict(cancelled, Eviction(EvictionCause.CANCELLED))

    async def evict(self, keys: Iterable[AttemptKey], eviction: Eviction) -> list[AttemptKey]:
        """Asks these attempts to leave, unless they are leaving already; returns those that were asked."""
        leaving = [
            (attempt, eviction)
            for key in keys
            if (attempt := self.memory.live.get(key)) is not None and attempt.state is not State.PREEMPTING
        ]
        if not leaving:
            return []
        async with self._database.transaction() as connection:
            await lease_store.assert_held(connection, self._lease)
            marked = await begin_evictions(connection, self.memory.region.region, leaving, self._clock.now())
        for attempt, cause in leaving:
            if attempt.key not in marked:
                raise SessionOver(f"{attempt.key} was leaving in the database already")
            self._begin_eviction(attempt.key, cause)
        return [attempt.key for attempt, _ in leaving]

    def _begin_eviction(self, key: AttemptKey, eviction: Eviction) -> None:
        self.memory.live.begin_eviction(key, eviction)
        self.memory.inventory.begin_eviction(key)
        self._dirty[key] = None
        attempt = self.memory.live.get(key)
        if attempt is not None and never_ordered(attempt):
            self._reported[key] = None

    async def _take_machine_report(self, report: MachineReport) -> None:
        """A machine that is being drained stays so when it turns out to be up."""
        if report.up:
            await self.set_machine_state(report.machine, MachineState.UP, report.reason, only_from=(MachineState.DOWN,))
        else:
            await self.set_machine_state(
                report.machine, MachineState.DOWN, report.reason, only_from=(MachineState.UP, MachineState.DRAINING)
            )

    async def _take_machine_request(self, request: MachineRequest) -> None:
        try:
            evicted = await self.set_machine_state(
                request.machine,
                request.state,
                request.reason,
                only_from=request.only_from,
                keep_running=request.keep_running,
            )
        except Exception as error:
            if not request.evicted.done():
                request.evicted.set_exception(error)
            raise
        if not request.evicted.done():
            request.evicted.set_result(evicted)

    async def set_machine_state(
        self,
        machine: MachineId,
        state: MachineState,
        reason: str,
        *,
        only_from: tuple[MachineState, ...],
        keep_running: bool = False,
    ) -> list[AttemptKey]:
        """Records a machine's state; what runs on a machine that is lost or drained has to leave. Returns who does."""
        async with self._database.transaction() as connection:
            await lease_store.assert_held(connection, self._lease)
            changed = await record_machine_state(
                connection,
                self.memory.region.region,
                machine,
                state,
                reason,
                self._clock.now(),
                only_from=only_from,
            )
        if not changed:
            return []
        self._absent.state_changed(machine)
        on_it = self.memory.inventory.set_machine_state(machine, state)
        if state is MachineState.UP or keep_running:
            return []
        cause = EvictionCause.DRAINED if state is MachineState.DRAINING else EvictionCause.MACHINE_LOST
        return await self.evict(on_it, Eviction(cause))

    # ------------------------------------------------------------ 4. dispatch

    async def _dispatch(self) -> bool:
        if not self.inbox.look_at_auction:
            return False
        async with self._database.transaction() as connection:
            if not await auction_store.has_awards(connection, self.memory.region.region):
                return False
            await lease_store.assert_held(connection, self._lease)
            dispatched = await dispatch_awards(
                connection,
                self.memory.region.region,
                self.memory.bidder,
                self.memory.specifications,
                self.memory.tenants,
                self.memory.live,
                self._clock,
            )
        for attempt in dispatched.attempts:
            self.memory.live.add(attempt)
            self._dirty[attempt.key] = None
        for key, eviction in dispatched.evictions:
            self.memory.live.begin_eviction(key, eviction)
            self._dirty[key] = None
            victim = self.memory.live.get(key)
            if victim is not None and never_ordered(victim):
                self._reported[key] = None
        return True

    # ------------------------------------------------------------ 5. auction

    async def _auction(self) -> float | None:
        """One step; returns when to look again at the latest, in real seconds."""
        if not self.inbox.look_at_auction:
            return None
        self.inbox.look_at_auction = False
        step = await self._auctioneer.step()
        if step.moved:
            self.inbox.look_at_auction = True
            self.inbox.changed.set()
        return step.again_in_real_s

    # ------------------------------------------------------------ 6. orders

    def _send_orders(self) -> None:
        dirty, self._dirty = self._dirty, {}
        for cluster, link in self._links.items():
            if cluster not in self._linked:
                continue
            starts: list[LiveAttempt] = []
            stops: list[tuple[AttemptKey, float]] = []
            for key in dirty:
                attempt = self.memory.live.get(key)
                if attempt is None or cluster not in attempt.clusters:
                    continue
                order = wanted_order(attempt, cluster, blocked=self.memory.live.blocked(attempt))
                if order is None:
                    continue
                attempt.ordered[cluster] = order
                attempt.perhaps_known.add(cluster)
                if order is Order.STOP:
                    stops.append((key, self._grace_s(attempt)))
                else:
                    starts.append(attempt)
                    if attempt.state is State.PREEMPTING:
                        self._dirty[key] = None  # taken up again; the order to stop follows
            if starts:
                link.send(StartOrders(tuple(attempt_plan(attempt, cluster) for attempt in starts)))
            for stop in stop_orders(stops):
                link.send(stop)
        if self._dirty:
            self.inbox.changed.set()

    @staticmethod
    def _grace_s(attempt: LiveAttempt) -> float:
        """Seconds to save a checkpoint; none where a machine is lost or a task has failed already."""
        lost = attempt.eviction is not None and attempt.eviction.cause is EvictionCause.MACHINE_LOST
        broken = any(report.phase in (AttemptPhase.FAILED, AttemptPhase.LOST) for report in attempt.reports.values())
        return 0.0 if lost or broken else attempt.specification.stop_grace_s

    async def _cluster_address(self, cluster: ClusterId) -> str | None:
        async with self._database.transaction() as connection:
            return await lease_store.address(connection, f"cluster/{cluster}")
