"""Which machines of a region may change their cluster, and why the others may not."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from data_placement.machine_assignment.problem import AssignableMachine, AssignmentProblem
from domain.capacity_requests import ClusterRequests, why_fixed
from domain.fleet import Cluster, MachineState, Region
from domain.identifiers import ClusterId, MachineId


@dataclass(frozen=True, slots=True)
class RegionMachines:
    """A region, and what its machines are doing."""

    region: Region
    states: Mapping[MachineId, MachineState] = field(default_factory=dict)
    """Machines that are missing are up."""
    running: Mapping[MachineId, int] = field(default_factory=dict)
    """GPUs in use, and 1 where something runs that uses none; machines that are missing are idle."""
    moving: Collection[MachineId] = ()
    """Machines that drain because they are to change their cluster."""

    def problem(self, requests: Collection[ClusterRequests]) -> AssignmentProblem:
        """What is to be decided. Requests for clusters of other regions, or such as are fixed, are left out."""
        own = {cluster.cluster: cluster for cluster in self.region.clusters}
        taken = [one for one in requests if one.cluster in own and not why_fixed(own[one.cluster])]
        named = {one.cluster for one in taken}
        machines = [
            AssignableMachine(
                machine.machine,
                cluster.cluster,
                rack.rack,
                rack.power_domain,
                machine.gpu_model,
                machine.gpus,
                self.running.get(machine.machine, 0),
            )
            for cluster in self.region.clusters
            for rack in cluster.racks
            for machine in rack.machines
            if not self.why_it_stays(machine.machine, cluster, named)
        ]
        machines.sort(key=lambda one: one.machine)
        return AssignmentProblem(tuple(machines), tuple([request for one in taken for request in one.capacity]))

    def why_it_stays(self, machine: MachineId, cluster: Cluster, named: Collection[ClusterId]) -> str:
        """Why the machine, which is in that cluster, is not moved whatever is asked for; empty: it may be."""
        fixed = why_fixed(cluster)
        if fixed:
            return fixed
        if cluster.cluster not in named:
            return f"cluster {cluster.cluster} is not named in the requests: its machines stay"
        state = self.states.get(machine, MachineState.UP)
        if state is MachineState.UP or (state is MachineState.DRAINING and machine in self.moving):
            return ""
        return f"it is {state.value.replace('_', ' ')}: only machines that take work are counted and moved"
