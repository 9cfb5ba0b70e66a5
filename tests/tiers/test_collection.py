"""Searches for cyclic garbage stay short, and find what they left out when they are asked to."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from services.runtime.collection import collect_everything, short_collections

_SURVIVORS = 400_000


@pytest.fixture(autouse=True)
def _collection_as_before() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.enable()
    yield
    gc.unfreeze()
    (gc.enable if was_on else gc.disable)()


class _InCycle:
    """One that only a search finds."""

    def __init__(self) -> None:
        self.itself = self


def _most_searched() -> int:
    """The most objects that a search had to look at while many were laid out that stay."""
    most = 0

    def count(phase: str, about: dict[str, int]) -> None:
        nonlocal most
        if phase == "start" and about["generation"] == 2:
            most = max(most, len(gc.get_objects()))

    gc.callbacks.append(count)
    try:
        kept = [[number] for number in range(_SURVIVORS)]
    finally:
        gc.callbacks.remove(count)
    assert len(kept) == _SURVIVORS
    return most


def test_no_search_looks_at_all_that_has_survived_others() -> None:
    with short_collections():
        searched = _most_searched()
    assert 0 < searched < _SURVIVORS / 3
    # What other tests left is left out of this as well: Python would search the less often for it.
    gc.freeze()
    gc.collect()
    assert _most_searched() > _SURVIVORS / 3, "or there was nothing to shorten"


def test_searches_come_soon_in_a_process_that_holds_much() -> None:
    held = [[number] for number in range(8 * _SURVIVORS)]
    with short_collections():
        searched = _most_searched()
    assert len(held) == 8 * _SURVIVORS
    assert 0 < searched < _SURVIVORS / 3


def test_cycles_that_were_left_out_are_found_when_everything_is_searched() -> None:
    with short_collections():
        cycle = _InCycle()
        seen = weakref.ref(cycle)
        gc.collect()
        del cycle
        gc.collect()
        assert seen() is not None, "it was left out"
        collect_everything()
        assert seen() is None


def test_without_short_searches_nothing_is_searched_on_top() -> None:
    cycle = _InCycle()
    seen = weakref.ref(cycle)
    gc.disable()
    del cycle
    collect_everything()
    assert seen() is not None
