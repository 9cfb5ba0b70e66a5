"""Which mover a service has."""

from __future__ import annotations

from formats.data_section import DataSection
from services.clock import ServiceClock
from services.data_placement.movers.file_mover import FileMover
from services.data_placement.movers.mover import Mover
from services.data_placement.movers.timed_mover import TimedMover


def mover_for(section: DataSection, clock: ServiceClock) -> Mover | None:
    """One for files where any region has storage, one that lets time pass where that is wanted; None: tables stay."""
    if section.regions:
        return FileMover(clock)
    return TimedMover(clock) if section.emulated else None
