"""What cluster managers are asked: orders that follow from where attempts stand, each given once on every connection.

Whatever they are asked is in the database already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

import structlog

from cluster_manager.attempt_run.events import PlaceFreed
from cluster_manager.attempt_run.run import Phase, stop_grace_s
from domain.fleet import Region
from domain.identifiers import ClusterId
from domain.placement import AttemptKey
from services.database.lease_store import Lease
from services.execution.executor import ENDED_PHASES, AttemptStatus
from services.regional_scheduler.cluster_link import (
    ClusterLink,
    ForgetOrders,
    LinkMessage,
    OutgoingOrder,
    ResizeOrder,
    StartOrders,
    stop_orders,
)
from services.regional_scheduler.due_attempts import DueAttempts
from services.regional_scheduler.live_attempts import (
    LiveAttempt,
    Order,
    RegionAttempts,
    change_to_ask_for,
    must_stop,
    wanted_order,
)
from services.regional_scheduler.orders import attempt_plan, resize_request
from services.security.transport import PLAINTEXT, TransportSecurity

_log = structlog.get_logger(__name__)


class OrderSender:
    """The links to a region's cluster managers, and what was asked on them."""

    def __init__(
        self,
        region: Region,
        live: RegionAttempts,
        due_attempts: DueAttempts,
        find_address: Callable[[ClusterId], Awaitable[str | None]],
        inbox: Callable[[LinkMessage], None],
        lease: Lease,
        security: TransportSecurity = PLAINTEXT,
    ) -> None:
        self._security = security
        self._live = live
        self._due_attempts = due_attempts
        self._find_address = find_address
        self._inbox = inbox
        self._lease = lease
        self.links: dict[ClusterId, ClusterLink] = {}
        self._links_changed = asyncio.Event()
        self._connections: dict[ClusterId, int] = {}
        """Of clusters whose complete report has been taken in: only they are asked anything."""
        self.clusters_changed(region)

    def clusters_changed(self, region: Region) -> None:
        """There is a link to each of the region's cluster managers from now on, and to no other."""
        present = {cluster.cluster for cluster in region.clusters}
        for cluster in sorted(self.links.keys() - present):
            del self.links[cluster]
            self._connections.pop(cluster, None)
        for cluster in sorted(present - self.links.keys()):
            self.links[cluster] = ClusterLink(cluster, self._find_address, self._inbox, self._lease, self._security)
        self._links_changed.set()

    async def run(self) -> None:
        """Runs the links, those that come later too; raises what breaks one of them. A link whose cluster has gone ends beside
        the others, and breaks nothing any more."""
        running: dict[ClusterLink, asyncio.Task[None]] = {}
        leaving: set[asyncio.Task[None]] = set()
        try:
            while True:
                self._links_changed.clear()
                for link in [link for link in running if self.links.get(link.cluster) is not link]:
                    task = running.pop(link)
                    task.cancel()
                    leaving.add(task)
                    task.add_done_callback(partial(_left, cluster=link.cluster, leaving=leaving))
                for link in self.links.values():
                    if link not in running:
                        running[link] = asyncio.create_task(link.run())
                changed = asyncio.create_task(self._links_changed.wait())
                try:
                    await asyncio.wait([changed, *running.values()], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    changed.cancel()
                for task in running.values():
                    if task.done():
                        task.result()
        finally:
            for task in running.values():
                task.cancel()
            await asyncio.gather(*running.values(), *leaving, return_exceptions=True)

    def connected(self, cluster: ClusterId, connection: int) -> None:
        """Its complete report was taken in: whatever is wanted of it is to be asked on this connection."""
        self._connections[cluster] = connection
        self._forget_what_was_asked(cluster)

    def reaches(self, cluster: ClusterId) -> bool:
        """Whether its complete report was taken in, and its link has not broken since, as far as is known."""
        return cluster in self._connections

    def disconnected(self, cluster: ClusterId) -> None:
        """What it was asked may be lost."""
        self._connections.pop(cluster, None)
        self._forget_what_was_asked(cluster)

    def _forget_what_was_asked(self, cluster: ClusterId) -> None:
        for attempt in self._live:
            asked_to_change = attempt.asked_revision.pop(cluster, None) is not None
            if attempt.ordered.pop(cluster, None) is not None or asked_to_change:
                self._due_attempts.give_orders(attempt.key)

    def dismiss(self, cluster: ClusterId, unknown: Iterable[AttemptStatus]) -> None:
        """Attempts that are over for the database: their ends are forgotten, what still runs is an orphan."""
        unknown = tuple(unknown)
        self.forget(cluster, [status.key for status in unknown if status.phase in ENDED_PHASES])
        orphans = [status.key for status in unknown if status.phase not in ENDED_PHASES]
        for order in stop_orders([(key, 0.0) for key in orphans]):
            _log.warning("stopping orphans", cluster=cluster, attempts=[str(key) for key in orphans])
            self._send(cluster, order)

    def forget(self, cluster: ClusterId, ended: Iterable[AttemptKey]) -> None:
        """These ends are recorded."""
        keys = tuple(ended)
        if keys:
            self._send(cluster, ForgetOrders(keys))

    def send_due(self, now: float) -> None:
        """Gives the orders that are due to clusters that can be reached; others get theirs when they can."""
        due = self._due_attempts.take_orders()
        for key in due:
            attempt = self._live.get(key)
            # An attempt whose place was still being vacated may start only now; its clusters hold no order for it yet.
            if attempt is not None and attempt.run.phase is Phase.DISPATCHED and not self._live.blocked(attempt):
                attempt.take(PlaceFreed(now))
        for cluster in self.links:
            # Before its complete report nothing says which orders it has already: asking now could repeat one.
            if cluster not in self._connections:
                continue
            starts: list[LiveAttempt] = []
            stops: list[tuple[AttemptKey, float]] = []
            for key in due:
                attempt = self._live.get(key)
                if attempt is None or cluster not in attempt.clusters:
                    continue
                self._ask_for_change(attempt, cluster)
                order = wanted_order(attempt, cluster)
                if order is None:
                    continue
                attempt.ordered[cluster] = order
                # From here on the order may have arrived even if the link breaks: the attempt cannot end unheard.
                attempt.perhaps_known.add(cluster)
                if order in (Order.STOP, Order.KILL):
                    stops.append((key, stop_grace_s(attempt.run) if order is Order.STOP else 0.0))
                else:
                    starts.append(attempt)
                    if must_stop(attempt):
                        self._due_attempts.give_orders(key)  # taken up again; the order to stop follows
            if starts:
                self._send(cluster, StartOrders(tuple(attempt_plan(attempt, cluster) for attempt in starts)))
            for stop in stop_orders(stops):
                self._send(cluster, stop)

    def _ask_for_change(self, attempt: LiveAttempt, cluster: ClusterId) -> None:
        if change_to_ask_for(attempt, cluster, waits=self._live.change_waits(attempt)):
            attempt.asked_revision[cluster] = attempt.revision
            self._send(cluster, ResizeOrder(resize_request(attempt, cluster)))

    def _send(self, cluster: ClusterId, order: OutgoingOrder) -> None:
        connection = self._connections.get(cluster)
        if connection is not None:
            self.links[cluster].send(order, connection)


def _left(task: asyncio.Task[None], *, cluster: ClusterId, leaving: set[asyncio.Task[None]]) -> None:
    """The link to a cluster that has gone is over."""
    leaving.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("a link failed as it left", cluster=cluster, exc_info=error)
