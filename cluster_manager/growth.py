"""The news that there is more room than before: what whoever remembers refusals must hear."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from cluster_manager.machines import Integers, Layout
from domain.rank import Standing


@dataclass(frozen=True, slots=True)
class RoomGrowth:
    """Some newcomers may now find more room on these machines than before.

    Room here means what is free plus what everybody holds whom the newcomer may evict; so an attempt that ends makes
    room only for those who could not have evicted it.
    """

    layout: Layout
    machines: Integers  # numbers, in machine order
    amounts: Integers  # [machine, resource] by how much at most
    from_standing: Standing | None = None
    """Only for newcomers of this standing or a worse one; None: for the best, too."""
    below_standing: Standing | None = None
    """Only for newcomers of a strictly better standing than this one; None: for the worst, too."""

    def concerns(self, standing: Standing) -> bool:
        """Whether a newcomer of this standing may find more room."""
        return (self.from_standing is None or standing >= self.from_standing) and (
            self.below_standing is None or standing < self.below_standing
        )


class RoomWatcher(Protocol):
    """Is told of every growth, after it has happened; but of nothing that is tentative."""

    def room_grew(self, growth: RoomGrowth) -> None: ...
