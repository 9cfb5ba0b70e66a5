"""Work that holds cells, and the places that are found for it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from cluster_manager.cells.requests import CellRequest
from cluster_manager.cells.virtual_view import ViewKey
from domain.cells import CellPair


class TaskCells(NamedTuple):
    """What one task holds."""

    chain: int
    machine: int
    """Its number in the chain."""
    bits: int
    """The GPUs of the machine."""
    pairs: tuple[CellPair, ...] = ()
    """The virtual cells that these are; none for opportunistic work."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a request would go, and what happens to others for it. Nothing has happened yet."""

    request: CellRequest
    view: ViewKey | None
    """Whose cells it takes; None for opportunistic work."""
    tasks: tuple[TaskCells, ...]
    """In the order of `AffinityGroup.all_tasks`."""
    victims: tuple[Hashable, ...]
    """Work that must leave: opportunistic work on these GPUs, and work of worse standing in the same virtual cluster."""
    downgraded: tuple[Hashable, ...]
    """Work of the same virtual cluster that loses its cells to this one and goes on opportunistically where it is."""
    unseated: tuple[Hashable, ...]
    """All work that loses its cells: whatever is downgraded, and victims that were to be, but are in the way all the same."""
    waits_for: tuple[Hashable, ...]
    """All that is on these GPUs: the victims, and what is leaving already."""
    revision: int
    """The state of the cells that it was found in."""


class WaitReason(StrEnum):
    """Why there is no place."""

    TOPOLOGY = "topology"
    """The virtual cluster's cells could never hold it, even with nothing else on them."""
    IN_USE = "in_use"
    """Its own virtual cluster's cells are in use by work that may not be evicted for it."""
    BAD_HARDWARE = "bad_hardware"
    """It would fit if all machines were usable."""
    NEEDS_EVICTION = "needs_eviction"
    """It would fit if it might evict."""
    NOTHING_IDLE = "nothing_idle"
    """Opportunistic work takes only idle GPUs, and there are not enough that are close enough."""


@dataclass(frozen=True, slots=True)
class Wait:
    """There is no place."""

    reason: WaitReason
    why: str
    """What stands in the way, as the end of a sentence."""
    asked: str = ""
    """What was asked for: "2 tasks of 8 GPUs within one rack"."""
    owned: str = ""
    """The cells that may serve it: "4 node and 1 socket of chain V100"; empty for opportunistic work."""

    @property
    def sentence(self) -> str:
        """What was asked for, what is owned, and what stands in the way."""
        owns = f"; its virtual cluster owns {self.owned}" if self.owned else ""
        return f"asks for {self.asked}{owns}; {self.why}" if self.asked else self.why


@dataclass(slots=True, eq=False)
class Work:
    """A gang that holds cells."""

    request: CellRequest
    view: ViewKey | None
    """None while it uses its GPUs opportunistically."""
    tasks: tuple[TaskCells, ...]
    sequence: int
    """The order in which work came."""
    owned_levels: tuple[str, ...] = ()
    """[task] the names of the levels of the owned cells that it stands or last stood in; empty if it never did."""
    leaving: bool = False
    """It was asked to leave, and is still on its GPUs."""

    @property
    def downgraded(self) -> bool:
        """Whether it asked for guaranteed cells and does without at the moment."""
        return self.request.guaranteed and self.view is None
