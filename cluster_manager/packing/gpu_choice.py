"""Which of a machine's free GPUs a task gets: packing takes the lowest."""

from __future__ import annotations

from kernels.compiled import compiled_part


@compiled_part
def lowest_gpus(free_gpus: int, gpus: int) -> int:
    """The lowest `gpus` of the bits that are set; all of them when there are fewer."""
    bits = free_gpus
    chosen = 0
    for _ in range(gpus):
        lowest = bits & -bits
        chosen |= lowest
        bits ^= lowest
    return chosen
