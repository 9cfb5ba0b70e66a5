"""Options for a process that is being started, through a pipe that it inherits: the arguments of a process are everybody's to read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_LONGEST_BYTES: Final = 60_000
"""A pipe holds 64 KiB before anybody reads from it."""


@contextmanager
def handed_over(options: str) -> Iterator[int]:
    """The descriptor from which a process that is started meanwhile, and inherits it, takes these options once.

    Raises ValueError when they are too long.
    """
    text = options.encode()
    if len(text) > _LONGEST_BYTES:
        raise ValueError(f"the options have {len(text)} bytes, and {_LONGEST_BYTES} at most can be handed over")
    reader, writer = os.pipe()
    try:
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(text)
        os.set_inheritable(reader, True)
        yield reader
    finally:
        os.close(reader)


def take_options(descriptor: str) -> str:
    """The options that were handed over with this descriptor."""
    with os.fdopen(int(descriptor), "rb") as pipe:
        return pipe.read().decode()
