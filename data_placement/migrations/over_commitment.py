"""Copies that do not fit any more: storage was made less, or what the catalog names has grown, while they were under way.

Each copy had room when it began, so only a change from outside brings this about. What is not switched yet gives way, the
least urgent first, until all that is left fits (I10); what the catalog names is never touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from data_placement.migrations.life_cycle import BEGUN, MigrationState
from data_placement.migrations.migration import Migration
from data_placement.migrations.storage import Storage
from domain.identifiers import RegionId


def without_room(active: Sequence[Migration], storage: Storage) -> dict[int, str]:
    """The numbers of the copies that have to be given up, with a sentence for each. Room that is being given back counts."""
    free = storage.free_bytes(active)
    for migration in active:
        if migration.state is MigrationState.WITHDRAWN:
            _give_back(free, migration.reserved())
        elif migration.state is MigrationState.DELETING and migration.leaves is not None:
            _give_back(free, {migration.leaves: migration.size_bytes})
    given_up: dict[int, str] = {}
    for migration in sorted(_begun(active), key=lambda each: each.rank, reverse=True):
        reserved = migration.reserved()
        short = sorted(region for region, taken in reserved.items() if taken and free.get(region, 0.0) < 0.0)
        if not short:
            continue
        region = short[0]
        given_up[migration.number] = (
            f"region {region} stores {storage.capacity_bytes[region]:.0f} bytes at most by now: with what is there, and what"
            f" is being copied to it, {-free[region]:.0f} bytes too many"
        )
        _give_back(free, reserved)
    return given_up


def _begun(active: Iterable[Migration]) -> list[Migration]:
    return [migration for migration in active if migration.state in BEGUN]


def _give_back(free: dict[RegionId, float], reserved: dict[RegionId, int]) -> None:
    for region, taken in reserved.items():
        if region in free:
            free[region] += taken
