"""Python's search for reference cycles, put off while a run lasts: a run makes none, and looks at all it holds are dear."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_put_off() -> Iterator[None]:
    """Inside, no cycles are searched for; afterwards all is as it was."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
