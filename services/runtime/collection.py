"""Searches for cyclic garbage that hold no event loop up, however many objects a tier has.

Python searches all objects that it does not leave out, and no thread goes on meanwhile: 0.1 s for a region of MAST's size,
again and again while anything large is laid out. What has survived a search of the oldest generation is left out of all
further ones, so that each looks only at what is new since the last. Objects left out are freed with their last reference
like all others; only cycles among them are not. Where nothing waits for the loop, `collect_everything` finds these too.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

_OLDEST_GENERATION = 2


@contextmanager
def short_collections() -> Iterator[None]:
    """As said above, for this process, while the context lasts; what there is at its beginning is left out too."""
    forget_for_collection()
    gc.callbacks.append(_leave_out_survivors)
    try:
        yield
    finally:
        gc.callbacks.remove(_leave_out_survivors)


def forget_for_collection() -> None:
    """What there is so far stays: to look for garbage in it would make all calls wait for 0.1 s, again and again."""
    gc.collect()
    gc.freeze()
    # Python waits until a quarter of what its last search kept is new: this one keeps nothing, so that the next comes soon.
    gc.collect()


def collect_everything() -> None:
    """Frees the cycles that were left out, if any were: takes a part of a second, in which nothing of the process goes on."""
    if _leave_out_survivors in gc.callbacks:
        gc.unfreeze()
        forget_for_collection()


def _leave_out_survivors(phase: str, about: Mapping[str, int]) -> None:
    """One of `gc.callbacks`."""
    if phase == "stop" and about["generation"] == _OLDEST_GENERATION:
        gc.freeze()
