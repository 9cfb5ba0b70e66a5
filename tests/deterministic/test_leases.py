"""Thousands of schedules of processes that want one lease: at no moment do two of them have it, and nobody waits for ever."""

from __future__ import annotations

import asyncio

import pytest

from services.tiers.lease_keeper import LeaseKeeper
from tests.deterministic.lease_processes import DURATION_S, Struggle, simulated_time

_SCHEDULES = 50
_TROUBLED_S = 20.0
_CALM_S = 20.0


def _run(monkeypatch: pytest.MonkeyPatch, seed: int, *, sets_clocks: bool = False) -> Struggle:
    struggle = Struggle(seed, sets_clocks)
    with simulated_time(monkeypatch, struggle.world, struggle.server):
        try:
            struggle.run(_TROUBLED_S, _CALM_S)
        finally:
            struggle.world.tidy()
    return struggle


def test_never_do_two_processes_have_one_lease(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    first = int(request.config.getoption("seed")) * 1_000_000
    holders = 0
    for seed in range(first, first + _SCHEDULES):
        holders += len({holder for _, _, holder in _run(monkeypatch, seed).server.writes})
    assert holders > 1.2 * _SCHEDULES, "the lease went from one to the other"


def test_never_does_a_stale_process_write_though_the_clock_of_the_database_is_set(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    first = int(request.config.getoption("seed")) * 1_000_000 + 500_000
    for seed in range(first, first + _SCHEDULES // 2):
        _run(monkeypatch, seed, sets_clocks=True)


@pytest.mark.parametrize("seed", [0, 5, 8])
def test_a_lease_that_is_given_back_is_certain_no_more(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Found by these seeds: who had given it back took it for certain while another process had it."""
    _run(monkeypatch, seed)


def test_a_keeper_that_counts_from_the_answer_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake that is planted: the lease lasts from when its renewal was asked for, not from when that was heard of."""

    def renewed(keeper: LeaseKeeper, _asked_real_s: float) -> None:
        keeper._certain_until_real_s = asyncio.get_running_loop().time() + DURATION_S

    monkeypatch.setattr(LeaseKeeper, "_renewed", renewed)
    with pytest.raises(AssertionError, match="is certain, and"):
        _run(monkeypatch, 5)


def test_a_seed_makes_one_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    once, again = _run(monkeypatch, 7), _run(monkeypatch, 7)
    assert (once.world.turns, once.server.writes) == (again.world.turns, again.server.writes)
    assert once.server.writes
