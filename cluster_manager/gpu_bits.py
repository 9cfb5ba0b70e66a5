"""GPUs of a machine: from bits to indices."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=4096)
def indices_of(gpu_bits: int) -> tuple[int, ...]:
    """The positions of the bits that are set, ascending."""
    return tuple(index for index in range(gpu_bits.bit_length()) if gpu_bits >> index & 1)
