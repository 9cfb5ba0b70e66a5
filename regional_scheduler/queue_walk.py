"""The walk of the auctions along the queue: where the next round begins (decision 062).

Rule: a walk goes from the head of the queue to its end. It asks what is not known to find nothing: what was refused and
still is, is passed over by kind (`refusals.kinds`). When a scan pass has ranked the queue anew, or a region has room again
for what was refused, the next round begins at the head, but asks nobody twice: only who is new, stands better than before,
or has room again. The round after that goes on behind it, whatever comes, and asks only who was not asked in this walk: else,
where room for many kinds comes free again and again, those kinds would be all that is ever asked.

Invariant (I14): a walk gets through however often passes come and whatever is released meanwhile, for every second round
goes on, and such rounds ask every kind that finds nothing once; so whoever finds room is reached at the latest by the walk
after the present one.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QueueWalk:
    """Where the auctions stand. Walks are numbered from 1; the first one is begun by whatever comes."""

    number: int = 0
    scan_pass: int = 0
    """The newest that it has gone back to the head for."""
    ended: bool = True
    """It has come to the end of the queue."""
    at_head: bool = False
    """Its last round began at the head."""


@dataclass(frozen=True, slots=True)
class WalkStep:
    """What to do next."""

    walk: QueueWalk
    begins: bool
    """It is a new walk: whoever was refused before may be asked again, unless it is known to find nothing still."""

    @property
    def from_head(self) -> bool:
        """The next round begins at the head of the queue; else behind what was decided last."""
        return self.walk.at_head

    @property
    def asks_again(self) -> bool:
        """Kinds that this walk has asked are asked again by the next round where some region has room for them by now."""
        return self.from_head


def next_step(walk: QueueWalk, newest_scan_pass: int, *, has_room: bool) -> WalkStep | None:
    """How the walk goes on; None while there is nothing to ask.

    `has_room`: whether some region has room again for what was refused.
    """
    news = has_room or walk.scan_pass != newest_scan_pass
    if walk.ended:
        if not news:
            return None
        return WalkStep(QueueWalk(walk.number + 1, newest_scan_pass, ended=False, at_head=True), begins=True)
    if news and not walk.at_head:
        return WalkStep(QueueWalk(walk.number, newest_scan_pass, ended=False, at_head=True), begins=False)
    return WalkStep(QueueWalk(walk.number, walk.scan_pass, ended=False, at_head=False), begins=False)
