"""The search for reference cycles is put off for a run, and goes on as before when the run is over."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from simulator.engine.collection import collection_put_off


@pytest.fixture(autouse=True)
def _collection_as_before() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.unfreeze()
    yield
    gc.unfreeze()
    (gc.enable if was_on else gc.disable)()


class _InCycle:
    """One that only the search for cycles finds."""

    def __init__(self) -> None:
        self.itself = self


def test_nothing_is_searched_inside_and_searching_goes_on_afterwards() -> None:
    gc.enable()
    with collection_put_off():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_who_had_switched_the_search_off_finds_it_off() -> None:
    gc.disable()
    with collection_put_off():
        pass
    assert not gc.isenabled()


def test_what_a_run_leaves_is_old_and_costs_the_next_search_for_young_objects_nothing() -> None:
    gc.enable()
    gc.collect()
    with collection_put_off():
        left: list[list[int]] = [[] for _ in range(10_000)]
    assert sum(gc.get_count()) < len(left) // 10
    assert any(one is left for one in gc.get_objects(generation=2))


def test_garbage_of_a_run_is_still_found() -> None:
    gc.enable()
    gc.collect()
    with collection_put_off():
        left = weakref.ref(_InCycle())
    assert left() is not None
    gc.collect()
    assert left() is None


def test_what_a_service_has_frozen_stays_frozen() -> None:
    gc.enable()
    frozen: list[list[int]] = [[]]
    gc.freeze()
    with collection_put_off():
        pass
    # What is frozen is in no generation.
    assert not any(one is frozen for one in gc.get_objects())


def test_an_error_inside_leaves_the_search_on() -> None:
    gc.enable()
    with pytest.raises(ZeroDivisionError), collection_put_off():
        raise ZeroDivisionError
    assert gc.isenabled()
