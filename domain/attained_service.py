"""Attained service: GPU-seconds that a workload receives while its attempts work (Tiresias §3.2).

An attempt receives service from its start until it is asked to leave or ends, as many GPU-seconds a second as it holds
GPUs. Setting up and saving are no service. A resize or a retune settles what was received so far.
"""

from __future__ import annotations

from typing import NamedTuple


class AttainedService(NamedTuple):
    """What was received up to `held_since_s`, and how many GPUs are held and at work since."""

    received_gpu_s: float = 0.0
    gpus: int = 0
    held_since_s: float | None = None
    """None: nothing is at work."""

    def at(self, now: float) -> float:
        """GPU-seconds received up to now; a time before `held_since_s` counts as that time."""
        if self.held_since_s is None:
            return self.received_gpu_s
        return self.received_gpu_s + self.gpus * max(0.0, now - self.held_since_s)

    def holding(self, gpus: int, now: float) -> AttainedService:
        """From now on so many GPUs are at work: an attempt has started, or was resized."""
        since_s = now if self.held_since_s is None else max(now, self.held_since_s)
        return AttainedService(self.at(now), gpus, since_s)

    def settled(self, now: float) -> AttainedService:
        """From now on none is at work: the attempt was asked to leave, or has ended."""
        return AttainedService(self.at(now))
