"""Clusters whose manager cannot be reached get no new work: their machines are closed in memory until it is back.

A restart takes a few seconds and is no reason to plan around a cluster; a longer absence is. What runs there runs on.
The database is not touched: a machine's recorded state is about the machine, not about what can be reached.
"""

from __future__ import annotations

import structlog

from domain.fleet import MachineState, Region
from domain.identifiers import ClusterId, MachineId
from services.regional_scheduler.region_memory import RegionMemory

PATIENCE_REAL_S = 10.0

_log = structlog.get_logger(__name__)


class AbsentClusters:
    """Keeps track of which clusters can be reached; times are real seconds of any one clock."""

    def __init__(self, memory: RegionMemory, now_real_s: float) -> None:
        """In the beginning no manager has been reached."""
        self._memory = memory
        self._machines = _machines_by_cluster(memory.region)
        self._absent_since = dict.fromkeys(self._machines, now_real_s)
        self._closed = memory.closed

    def machines_changed(self, now_real_s: float) -> None:
        """The region has other machines now, in the states that are recorded: `close` closes them again."""
        known, self._machines = self._machines, _machines_by_cluster(self._memory.region)
        self._closed.clear()
        self._absent_since = {
            cluster: since_real_s for cluster, since_real_s in self._absent_since.items() if cluster in self._machines
        }
        self._absent_since |= dict.fromkeys((cluster for cluster in self._machines if cluster not in known), now_real_s)

    def lost(self, cluster: ClusterId, now_real_s: float) -> None:
        """Its manager cannot be reached any more."""
        self._absent_since.setdefault(cluster, now_real_s)

    def reached(self, cluster: ClusterId) -> None:
        """Its manager is back: whatever was closed for it is open again."""
        self._absent_since.pop(cluster, None)
        for machine, state in self._closed.pop(cluster, {}).items():
            self._memory.inventory.set_machine_state(machine, state)

    def knows(self, machine: MachineId) -> bool:
        """Whether the region's memory has the machine."""
        return machine in self._memory.inventory.number_of_machine

    def set_state(self, machine: MachineId, state: MachineState) -> None:
        """An operator has set this machine's state: that counts, as soon as its cluster can be reached."""
        for cluster, closed in self._closed.items():
            if machine in self._machines[cluster]:
                closed.pop(machine, None)
                if state.takes_work:
                    closed[machine] = state
                    state = MachineState.DRAINING
        self._memory.inventory.set_machine_state(machine, state)

    def close(self, now_real_s: float) -> None:
        """Closes the machines of clusters that have been away for too long."""
        for cluster, since_real_s in self._absent_since.items():
            if cluster in self._closed or now_real_s - since_real_s < PATIENCE_REAL_S:
                continue
            states = {machine: self._memory.inventory.machine_state(machine) for machine in self._machines[cluster]}
            closed = {machine: state for machine, state in states.items() if state.takes_work}
            self._closed[cluster] = closed
            for machine in closed:
                self._memory.inventory.set_machine_state(machine, MachineState.DRAINING)
            _log.warning("cluster manager away: no new work for its machines", cluster=cluster, machines=len(closed))


def _machines_by_cluster(region: Region) -> dict[ClusterId, tuple[MachineId, ...]]:
    return {cluster.cluster: tuple(machine.machine for machine in cluster.machines()) for cluster in region.clusters}
