"""Metrics that are counts of the state, as the leader has counted it last.

They are made anew from that for each reader, so that none sees half of a count; and where nobody has counted there are none: a
process that does not lead says nothing of the queue.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TypeVar

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from services.database.metrics_store import DatabaseSize, ObservedState

_Values = TypeVar("_Values", bound=tuple[str, ...])
"""Of the labels."""


class StateMetrics(Collector):
    """To be registered. `state` and `size` are set on the event loop, and read by threads."""

    def __init__(self) -> None:
        self.state: ObservedState | None = None
        self.size: DatabaseSize | None = None

    def forget(self) -> None:
        """Another process leads from now on."""
        self.state = self.size = None

    def described(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Names and labels of all."""
        for family in self.collect():
            yield family.name, tuple(family._labelnames)  # noqa: SLF001 - the library has no other way to them

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Every family, also those of which there is nothing to say."""
        state, size = self.state, self.size
        yield from _of_queue(state)
        yield from _of_fleet(state)
        yield from _of_service(state)
        yield from _of_database(size)


def _of_queue(state: ObservedState | None) -> Iterator[GaugeMetricFamily]:
    queue = () if state is None else state.queue
    gpus: dict[tuple[str, str], int] = defaultdict(int)
    since_s: dict[tuple[str, str], float] = {}
    for group in queue:
        place = group.priority, group.quota
        gpus[place] += group.gpus
        since_s[place] = min(since_s.get(place, group.oldest_since_s), group.oldest_since_s)
    now_s = 0.0 if state is None else state.now_s
    yield _family(
        "topmast_queue_workloads",
        "Queued workloads, by why the last auction refused them; reason none: it has not.",
        ("priority", "quota", "state", "reason"),
        {(group.priority, group.quota, group.state, group.reason): group.workloads for group in queue},
    )
    yield _family(
        "topmast_queue_gpus", "GPUs that queued workloads ask for, of their main model.", ("priority", "quota"), gpus
    )
    yield _family(
        "topmast_queue_oldest_wait_seconds",
        "For how long the oldest queued workload has waited since its submission or its last attempt; on the service's clock.",
        ("priority", "quota"),
        {place: max(0.0, now_s - since) for place, since in since_s.items()},
    )


def _of_fleet(state: ObservedState | None) -> Iterator[GaugeMetricFamily]:
    attempts = () if state is None else state.attempts
    gpus = () if state is None else state.gpus
    in_use = () if state is None else state.gpus_in_use
    yield _family(
        "topmast_attempts",
        "Live attempts, by state.",
        ("region", "state"),
        {(group.region, group.state): group.attempts for group in attempts},
    )
    yield _family(
        "topmast_gpus",
        "GPUs of machines, by the state of these.",
        ("region", "cluster", "gpu_model", "state"),
        {(group.region, group.cluster, group.gpu_model, group.kind): group.gpus for group in gpus},
    )
    yield _family(
        "topmast_gpus_in_use",
        "GPUs that live attempts hold.",
        ("region", "cluster", "gpu_model", "quota"),
        {(group.region, group.cluster, group.gpu_model, group.kind): group.gpus for group in in_use},
    )


def _of_service(state: ObservedState | None) -> Iterator[GaugeMetricFamily]:
    tiers = () if state is None else state.tiers
    violations = {} if state is None else {(region,): count for region, count in state.violations}
    lost = {} if state is None else {(): state.lost_clusters}
    yield _family(
        "topmast_tiers_expected", "Tiers that the fleet needs.", ("kind",), {(one.kind,): one.expected for one in tiers}
    )
    yield _family(
        "topmast_tiers_alive",
        "Those of them that hold their lease.",
        ("kind",),
        {(one.kind,): one.alive for one in tiers},
    )
    yield _family(
        "topmast_lease_token",
        "How often the tier's lease was taken: by each process that became the tier, and by each of its sessions.",
        ("tier",),
        {} if state is None else {(one.tier,): one.token for one in state.leases},
    )
    yield _family("topmast_lost_clusters", "Clusters that were declared lost and are not back.", (), lost)
    yield _family("topmast_invariant_violations", "Violations of invariants in the event log.", ("region",), violations)


def _of_database(size: DatabaseSize | None) -> Iterator[GaugeMetricFamily]:
    yield _family(
        "topmast_database_size_bytes", "The database on its disk.", (), {} if size is None else {(): size.size_bytes}
    )
    yield _family(
        "topmast_database_table_bytes",
        "A table on its disk, with its indexes.",
        ("table",),
        {} if size is None else {(table,): table_bytes for table, table_bytes in size.tables},
    )
    yield _family(
        "topmast_database_connections",
        "Connections to the database, by what they do.",
        ("state",),
        {} if size is None else {(doing,): connections for doing, connections in size.connections},
    )


def _family(name: str, says: str, labels: tuple[str, ...], values: Mapping[_Values, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, says, labels=labels)
    for of, value in values.items():
        family.add_metric(of, value)
    return family
