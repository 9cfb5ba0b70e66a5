"""Every metric of a process of tiers, in one registry: this file and `state_metrics.py` are the list, docs/operations.md explains it.

Labels take few values, none of which users choose: tiers, regions, clusters and GPU models of the fleet, priorities, words of the
code. Seconds are real ones, but for waits of workloads (`topmast_start_latency_seconds`, `topmast_dispatch_to_start_seconds`,
`topmast_queue_oldest_wait_seconds`), which are on the clock of the service.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector

from services.metrics.state_metrics import StateMetrics
from services.tiers.loop_watchdog import Block

_SHORT_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Bounds of what calls, transactions, plans and passes take."""
_BLOCKS_S: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_STARTS_S: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0)


class Described(NamedTuple):
    """What a metric is called and how it is divided up."""

    name: str
    """A counter's without `_total`."""
    type: str
    labels: tuple[str, ...]


class ServiceMetrics:
    """One for each process: the tiers of a process share it, and are told apart by labels."""

    def __init__(self) -> None:
        self._described: list[Described] = []
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._define_process()
        self._define_calls_and_leases()
        self._define_database()
        self._define_scans()
        self._define_auctions()
        self._define_attempts()
        self.state = StateMetrics()
        self.registry.register(self.state)

    def described(self) -> list[Described]:
        """All metrics of ours, also those without any series yet."""
        return [*self._described, *(Described(name, "gauge", labels) for name, labels in self.state.described())]

    def observe_block(self, loop: str) -> Callable[[Block], None]:
        """What `watched_loop` is to tell of each block of that loop."""
        seconds = self.loop_block_seconds.labels(loop)
        return lambda block: seconds.observe(block.real_s)

    def _counter(self, name: str, says: str, *labels: str) -> Counter:
        self._described.append(Described(name, "counter", labels))
        return Counter(name, says, labels, registry=self.registry)

    def _gauge(self, name: str, says: str, *labels: str) -> Gauge:
        self._described.append(Described(name, "gauge", labels))
        return Gauge(name, says, labels, registry=self.registry)

    def _histogram(self, name: str, says: str, *labels: str, buckets: tuple[float, ...] = _SHORT_S) -> Histogram:
        self._described.append(Described(name, "histogram", labels))
        return Histogram(name, says, labels, registry=self.registry, buckets=buckets)

    def _define_process(self) -> None:
        self.build_info = self._gauge("topmast_build_info", "1, with the version of this process.", "version")
        self.build_info.labels(_version()).set(1)
        self.loop_block_seconds = self._histogram(
            "topmast_loop_block_seconds",
            "Times that an event loop stood still, of 0.05 s or more.",
            "loop",
            buckets=_BLOCKS_S,
        )

    def _define_calls_and_leases(self) -> None:
        self.calls = self._counter("topmast_calls", "Calls that were answered, by gRPC code.", "tier", "method", "code")
        self.call_seconds = self._histogram(
            "topmast_call_seconds", "What calls with one answer took.", "tier", "method"
        )
        self.lease_held = self._gauge("topmast_lease_held", "Whether this process holds the tier's lease.", "tier")
        self.leases_lost = self._counter(
            "topmast_leases_lost", "Leases that ended before they were given back.", "tier", "why"
        )
        self.lease_renewal_seconds = self._histogram(
            "topmast_lease_renewal_seconds", "What it took to renew the lease.", "tier"
        )

    def _define_database(self) -> None:
        self.database_up = self._gauge("topmast_database_up", "Whether the database answers this process.")
        self.database_transaction_seconds = self._histogram(
            "topmast_database_transaction_seconds",
            "What transactions took, with the wait for a connection and what was tried again.",
            "kind",
        )
        self.database_retries = self._counter("topmast_database_retries", "Transactions that were tried again.")
        self.state_look_seconds = self._gauge(
            "topmast_state_look_seconds", "What it took the leader to count the queue and what runs the last time."
        )

    def _define_scans(self) -> None:
        self.scan_pass_seconds = self._histogram("topmast_scan_pass_seconds", "What scan passes took.")
        self.scan_stage_seconds = self._histogram(
            "topmast_scan_stage_seconds", "What the stages of scan passes took.", "stage"
        )
        self.scan_passes = self._counter("topmast_scan_passes", "Scan passes, by what became of them.", "outcome")
        self.scan_pass_last_time_seconds = self._gauge(
            "topmast_scan_pass_last_time_seconds", "When the last scan pass ended, in seconds since the epoch."
        )
        self.scan_pass_entries = self._gauge("topmast_scan_pass_entries", "Entries that the last scan pass ranked.")
        self.reclassified_attempts = self._counter(
            "topmast_reclassified_attempts", "Running attempts that scan passes put within or over quota."
        )
        self.submission_refusals = self._counter(
            "topmast_submission_refusals", "Submitted workloads that no region could ever host, by reason.", "reason"
        )

    def _define_auctions(self) -> None:
        self.plan_seconds = self._histogram(
            "topmast_plan_seconds",
            "What planning took: an answer to a round, a decision of a round.",
            "region",
            "purpose",
        )
        self.failed_plans = self._counter(
            "topmast_failed_plans", "Plans for one workload that an error has ended.", "region"
        )
        self.rounds_closed = self._counter(
            "topmast_rounds_closed", "Auction rounds that this region has closed.", "region"
        )
        self.round_seconds = self._histogram(
            "topmast_round_seconds", "For how long rounds were open that this region has closed.", "region"
        )
        self.lots = self._counter(
            "topmast_lots", "Lots of the rounds that it has closed, by verdict.", "region", "verdict"
        )
        self.refused_lots = self._counter(
            "topmast_refused_lots", "Lots without a winner, by reason.", "region", "reason"
        )

    def _define_attempts(self) -> None:
        self.dispatch_seconds = self._histogram(
            "topmast_dispatch_seconds", "What dispatching took: plans, and one transaction.", "region"
        )
        self.dispatches = self._counter(
            "topmast_dispatches", "Attempts that were dispatched.", "region", "priority", "quota"
        )
        self.awards_given_back = self._counter(
            "topmast_awards_given_back", "Awards that came to nothing: put up for auction again.", "region"
        )
        self.start_latency_seconds = self._histogram(
            "topmast_start_latency_seconds",
            "From submission to start, of first attempts, on the clock of the service.",
            "priority",
            "quota",
            buckets=_STARTS_S,
        )
        self.dispatch_to_start_seconds = self._histogram(
            "topmast_dispatch_to_start_seconds",
            "From dispatch to start, on the clock of the service: room is made, and tasks begin.",
            "region",
            buckets=_STARTS_S,
        )
        self.attempts_ended = self._counter(
            "topmast_attempts_ended", "Attempts that ended: completed, failed, cancelled, evicted.", "region", "end"
        )
        self.evictions = self._counter("topmast_evictions", "Attempts that were evicted, by cause.", "region", "cause")
        self.sessions = self._counter(
            "topmast_sessions", "Sessions that a region began: each loads everything anew.", "region"
        )
        self.session_turn_time_seconds = self._gauge(
            "topmast_session_turn_time_seconds",
            "When the loop of a region's session last began a turn, in seconds since the epoch.",
            "region",
        )
        self.progress_oldest_unwritten_time_seconds = self._gauge(
            "topmast_progress_oldest_unwritten_time_seconds",
            "Since when the oldest reported progress waits to be written, in seconds since the epoch; 0: none waits.",
            "region",
        )
        self.orders = self._counter(
            "topmast_orders", "Orders that a cluster manager took from its region.", "cluster", "order"
        )


def quota_class(*, within_quota: bool) -> str:
    """The value of label `quota`."""
    return "within" if within_quota else "over"


def _version() -> str:
    try:
        return metadata.version("topmast")
    except metadata.PackageNotFoundError:
        return "not installed"
