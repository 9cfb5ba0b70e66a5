"""I13, as far as a log shows it: a lost cluster gets nothing, and has nothing any more when it is back.

What was there when it was lost has to end before: its workloads run elsewhere, and whatever still ran would run twice. That
they do end is I8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from domain.events import EventKind
from domain.fleet import Fleet
from simulator.validation.machines import Claim, Machines
from simulator.validation.record_fields import BadField, Record, text_field, whole_field
from simulator.validation.report import Findings, Invariant


class LostClusters:
    """Keeps which clusters are lost."""

    def __init__(self, fleet: Fleet, machines: Machines, findings: Findings) -> None:
        self.checks = 0
        self._machines = machines
        self._findings = findings
        self._region_of = {
            str(cluster.cluster): str(region.region) for region in fleet.regions for cluster in region.clusters
        }
        self._lost: set[str] = set()

    @property
    def handlers(self) -> Mapping[str, Callable[[Record, float], None]]:
        """By the kind of event."""
        return {
            EventKind.CLUSTER_LOST.value: self.lost,
            EventKind.CLUSTER_BACK.value: self.back,
            EventKind.CLUSTER_RECONCILED.value: self.reconciled,
        }

    def lost(self, record: Record, _t_s: float) -> None:
        """A `cluster_lost` event. Raises BadField."""
        text_field(record, "reason")
        cluster = self._named(record)
        if cluster in self._lost:
            self._add(f"cluster {cluster} is lost, which it was before")
        self._lost.add(cluster)
        self._machines.lose_cluster(cluster)

    def back(self, record: Record, _t_s: float) -> None:
        """A `cluster_back` event. Raises BadField."""
        cluster = self._named(record)
        if cluster not in self._lost:
            self._add(f"cluster {cluster} is back, but was not lost")
        self._lost.discard(cluster)
        self._machines.find_cluster(cluster)
        for attempt in self._machines.attempts_in(cluster):
            self._add(f"cluster {cluster} is back while {attempt}, which was lost with it, has not ended")

    def reconciled(self, record: Record, _t_s: float) -> None:
        """A `cluster_reconciled` event: what follows from it has events of its own. Raises BadField."""
        self._named(record)
        for name in ("went_on", "ended_meanwhile", "not_found", "stopped"):
            whole_field(record, name)

    def dispatched(self, attempt: str, planned: Iterable[Claim]) -> None:
        """Nothing begins in a cluster that is lost."""
        for cluster in sorted({claim.machine.cluster for claim in planned} & self._lost):
            self._add(f"{attempt} is dispatched to cluster {cluster}, which is lost")

    def _named(self, record: Record) -> str:
        cluster, region = text_field(record, "cluster"), text_field(record, "region")
        self.checks += 1
        if self._region_of.get(cluster) != region:
            raise BadField(f"names cluster {cluster} of region {region}, which is not in the fleet")
        return cluster

    def _add(self, sentence: str) -> None:
        self._findings.add(Invariant.I13, sentence)
