"""How far room for waiting gangs is made by moving what runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CompactionRule:
    """The limits of `regional_scheduler.compaction`. Raises ValueError for some that make no sense."""

    most_gpus: int = 4
    """An attempt of more is never moved."""
    gangs_at_once: int = 3
    """For so many gangs room is made in a region at a time."""
    moves_per_workload_and_hour: int = 1
    checkpoint_within_s: float = 1800.0
    """An attempt whose last checkpoint is older, or that has none, is never moved."""
    restart_s: float = 213.0
    """What a move costs the attempt: to save its work, start and restore (MAST §5.5, Lyra §7)."""
    longest_wait_s: float = 3600.0
    """A gang is taken to wait for at most so long if no room is made for it."""
    between_regions: bool = False
    """Whether attempts go on in another region where the gang's own lacks GPUs, not only machines."""

    def __post_init__(self) -> None:
        if min(self.most_gpus, self.gangs_at_once, self.moves_per_workload_and_hour) < 1:
            raise ValueError("most_gpus, gangs_at_once and moves_per_workload_and_hour must be 1 or more")
        if min(self.checkpoint_within_s, self.restart_s, self.longest_wait_s) < 0:
            raise ValueError("checkpoint_within_s, restart_s and longest_wait_s must be 0 or more")
