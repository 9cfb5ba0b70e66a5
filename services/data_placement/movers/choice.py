"""Which mover a service has."""

from __future__ import annotations

from formats.data_section import DataSection
from services.clock import ServiceClock
from services.data_placement.movers.file_mover import FileMover
from services.data_placement.movers.mover import Mover
from services.data_placement.movers.timed_mover import TimedMover


def mover_for(section: DataSection, clock: ServiceClock) -> Mover:
    """One for files where any region has storage; else one that lets time pass."""
    return FileMover(clock) if section.regions else TimedMover(clock)
