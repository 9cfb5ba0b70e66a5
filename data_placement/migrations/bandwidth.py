"""How the bandwidth of links is shared out among copies: soft deadlines first, the background gets what is left.

Of copies with a deadline the highest priority goes first, then the earliest deadline, each as fast as its links allow:
on one link that meets all deadlines that can be met. A share of every link is kept for the background, so that a steady
stream of urgent copies never stops it (MAST §3.4: the migration service allocates bandwidth by soft deadlines).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from data_placement.links import Links
from data_placement.migrations.migration import Migration
from domain.identifiers import RegionId

SECONDS_PER_DAY = 86_400.0
BACKGROUND_SHARE = 0.1
"""Of each link, while any copy in the background could use it."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """A part of a copy that is on its way."""

    migration: int
    part: int
    links: tuple[tuple[RegionId, RegionId], ...]
    background: bool


def transfers_of(migrations: Iterable[Migration]) -> tuple[Transfer, ...]:
    """The parts of these copies, best rank first."""
    return tuple(
        Transfer(migration.number, place, part.links, migration.deadline_s is None)
        for migration in sorted(migrations, key=lambda migration: migration.rank)
        for place, part in enumerate(migration.parts)
        if part.bytes
    )


def share_out(
    transfers: Sequence[Transfer], links: Links, background_share: float = BACKGROUND_SHARE
) -> dict[tuple[int, int], float]:
    """Bytes per second by (migration, part), for transfers in order of rank; no link carries more than it can, and none
    that a transfer could use alone is left idle."""
    rates = {link: links.rate(*link) for transfer in transfers for link in transfer.links}
    wanted = {link for transfer in transfers if transfer.background for link in transfer.links}
    kept = {link: rates[link] * background_share if link in wanted else 0.0 for link in rates}
    left = {link: rates[link] - kept[link] for link in rates}
    granted = dict.fromkeys(((transfer.migration, transfer.part) for transfer in transfers), 0.0)
    _grant([transfer for transfer in transfers if not transfer.background], left, granted)
    for link, share in kept.items():
        left[link] += share
    _grant([transfer for transfer in transfers if transfer.background], left, granted)
    # What the background cannot use is not lost to the others.
    _grant([transfer for transfer in transfers if not transfer.background], left, granted)
    return granted


def committed_bytes(migrations: Iterable[Migration]) -> dict[tuple[RegionId, RegionId], float]:
    """What is still to go over each link, as if nothing of these copies had arrived yet."""
    committed: dict[tuple[RegionId, RegionId], float] = {}
    for migration in migrations:
        for part in migration.parts:
            for link in part.links:
                committed[link] = committed.get(link, 0.0) + part.bytes
    return committed


def day_of(now: float) -> int:
    """The day (UTC) that a quota of bytes a day counts."""
    return int(now // SECONDS_PER_DAY)


def _grant(
    transfers: Sequence[Transfer],
    left: dict[tuple[RegionId, RegionId], float],
    granted: dict[tuple[int, int], float],
) -> None:
    for transfer in transfers:
        rate = max(0.0, min(left[link] for link in transfer.links))
        granted[transfer.migration, transfer.part] += rate
        for link in transfer.links:
            left[link] -= rate


def slowest(rates: Mapping[tuple[int, int], float], migration: Migration) -> float:
    """The least rate of a copy's parts that have any bytes; 0 when one of them has to wait."""
    return min(
        (rates[migration.number, place] for place, part in enumerate(migration.parts) if part.bytes), default=0.0
    )
