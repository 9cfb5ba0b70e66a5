"""What a new attempt waits for: it starts when those that are in its way have left. One law for both drivers."""

from __future__ import annotations

from collections.abc import Iterable

from domain.identifiers import MachineId
from domain.placement import AttemptKey, TaskPlacement


def is_in_the_way(
    leaving: Iterable[TaskPlacement],
    leaves_for: AttemptKey | None,
    newcomer: AttemptKey,
    place: Iterable[TaskPlacement],
    *,
    in_cells: bool = False,
) -> bool:
    """Whether the newcomer, which was given this place, has to wait until the one that is leaving has left.

    It waits for those that leave for it, and for any on whose GPUs it was placed. Others on its machines may save their
    work beside it: it was given what was free while they were there, for what is leaving is free for none but the one
    for which it leaves. Only a newcomer in cells of a virtual cluster (`in_cells`) does not wait to be placed: it may have
    been given anything of its machines that is being left, whatever for, and waits for all that leave them.
    """
    if leaves_for == newcomer:
        return True
    held: dict[MachineId, set[int]] = {}
    for placement in leaving:
        held.setdefault(placement.machine, set()).update(placement.gpu_indices)
    if in_cells:
        return any(placement.machine in held for placement in place)
    return any(not held.get(placement.machine, set()).isdisjoint(placement.gpu_indices) for placement in place)
