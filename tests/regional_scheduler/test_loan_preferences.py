"""Who is offered machines on loan, and when."""

from __future__ import annotations

import itertools

from regional_scheduler.loan_preferences import LoanTraits, Offer, offers

TRAINING, ON_LOAN = (0, 2), (1,)


def tried(traits: LoanTraits) -> list[Offer]:
    return list(offers(traits, TRAINING, ON_LOAN))


def test_what_is_not_fungible_stays_on_machines_for_training() -> None:
    for elastic in (False, True):
        assert tried(LoanTraits(elastic)) == [Offer(TRAINING, TRAINING)]


def test_elastic_workloads_prefer_machines_on_loan_and_others_those_for_training() -> None:
    """Lyra §5.3: "If the job is elastic, we prefer to place it on inference servers ... If it is inelastic, we prefer to place
    it on training servers"."""
    assert tried(LoanTraits(elastic=True, fungible=True)) == [Offer(ON_LOAN, ON_LOAN), Offer(TRAINING, TRAINING)]
    assert tried(LoanTraits(elastic=False, fungible=True)) == [Offer(TRAINING, TRAINING), Offer(ON_LOAN, ON_LOAN)]


def test_both_kinds_at_once_come_last() -> None:
    elastic = tried(LoanTraits(elastic=True, heterogeneous=True))
    assert elastic == [Offer(TRAINING, TRAINING), Offer(TRAINING, (*ON_LOAN, *TRAINING))]
    assert tried(LoanTraits(elastic=False, heterogeneous=True))[-1] == Offer((*TRAINING, *ON_LOAN), ())


def test_never_offered_what_is_not_there() -> None:
    for elastic, fungible, heterogeneous in itertools.product((False, True), repeat=3):
        traits = LoanTraits(elastic, fungible, heterogeneous)
        assert offers(traits, (), ()) == ()
        assert all(offer.base for offer in offers(traits, TRAINING, ()))
        assert all(offer.base for offer in offers(traits, (), ON_LOAN))
        assert bool(offers(traits, (), ON_LOAN)) == fungible
