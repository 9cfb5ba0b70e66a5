"""Machines that take no work for the time being: for plans that must do without them, tried out tentatively."""

from __future__ import annotations

from collections.abc import Iterable

from domain.fleet import MachineState
from domain.identifiers import MachineId
from regional_scheduler.region_capacity import RegionCapacity


def close_machines(region: RegionCapacity, machines: Iterable[MachineId]) -> None:
    """Those of these that take work do not any more. Raises UnknownMachine."""
    for machine in sorted(machines):
        if region.machine_state(machine).takes_work:
            position, _ = region.place_of(machine)
            # Who is on them is of no interest, and takes long to find in a large cluster.
            region.clusters[position].set_machine_state(machine, MachineState.DRAINING, say=False)
