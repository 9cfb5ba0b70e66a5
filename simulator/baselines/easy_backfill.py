"""EASY backfilling, with an oracle (Lifka, "The ANL/IBM SP scheduling system", 1995; Mu'alem and Feitelson 2001, §2.1).

Rule: first in, first out, until one finds no room. That one gets a reservation: where and when it can start first if
what runs ends when expected. A later one may overtake it if the head can still start there and then.
Invariant: backfilling never delays the head of the queue beyond its reservation, provided that attempts end when expected
and machines do not fail.
Ignores: priorities, quotas; and what backfilling does to those behind the head, which have no reservation. A candidate
that would outlast the reservation is tried in the place of its best plan only.
"""

from __future__ import annotations

from dataclasses import dataclass

from global_scheduler.ordering.fifo import FifoOrdering
from simulator.policies.allocation import QueuePass
from simulator.policies.policy import Policy


@dataclass(frozen=True, slots=True)
class ReservationForTheHead:
    """In queue order until one finds no room; then every one that does not delay it."""

    name: str = "reservation_for_the_head"

    def allocate(self, queue_pass: QueuePass) -> None:
        while (head := queue_pass.next()) is not None:
            if not queue_pass.start(head):
                break
        else:
            return
        later = queue_pass.next()
        reservation = queue_pass.earliest_start(head) if later is not None else None
        while later is not None:
            # Without a reservation (too many machines are down for it) there is nothing to keep room for.
            if reservation is None:
                queue_pass.start(later)
            else:
                queue_pass.start_beside(later, head, reservation)
            later = queue_pass.next()


EASY_BACKFILL = Policy(
    name="easy_backfill",
    summary="first in, first out, with backfilling that does not delay the head; oracle (Lifka 1995)",
    ordering=FifoOrdering(),
    allocation=ReservationForTheHead(),
)
