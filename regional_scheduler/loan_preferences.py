"""Which clusters a workload is offered, one after the other, where inference clusters lend machines (Lyra §2.1, §5.3, §6).

Rule: base tasks of elastic workloads rather go to machines on loan, so that giving these back may cost flexible tasks
only; all others rather to machines for training. Only fungible workloads may go to the other kind at all. Those that
may run on both kinds at once do so last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class LoanTraits(NamedTuple):
    """What a workload can do with machines on loan."""

    elastic: bool
    fungible: bool = False
    """It may run on GPUs of either kind, with tasks that are worth as much (`domain.gpu_equivalents`)."""
    heterogeneous: bool = False
    """It may run on GPUs of both kinds at once, at a loss."""


class Offer(NamedTuple):
    """Clusters, by their positions in the region, that may be used together for one attempt."""

    base: tuple[int, ...]
    """For base tasks."""
    flexible: tuple[int, ...]
    """For flexible tasks, in the order in which they are preferred."""


def offers(traits: LoanTraits, training: Sequence[int], on_loan: Sequence[int]) -> tuple[Offer, ...]:
    """What to try, the preferred first: the first offer with room for all base tasks is taken. None without clusters."""
    own, lent = tuple(training), tuple(on_loan)
    on_own, on_lent = Offer(own, own), Offer(lent, lent)
    if not traits.fungible:
        found = [on_own]
    elif traits.elastic:
        found = [on_lent, on_own]
    else:
        found = [on_own, on_lent]
    if traits.heterogeneous and own and lent:
        # Lyra §6: "their base demands are placed on training servers, and flexible demands on inference servers".
        found.append(Offer(own, (*lent, *own)) if traits.elastic else Offer((*own, *lent), ()))
    return tuple([offer for offer in found if offer.base])
