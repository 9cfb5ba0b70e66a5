"""How much of the service itself a tenant may take up, whatever its quota: what waits, what runs, how fast it submits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """Each None: not limited."""

    max_pending: int | None = None
    """Workloads that have not ended and do not run, elements of arrays one by one: more are not accepted."""
    max_running: int | None = None
    """Workloads with a live attempt: others wait, whatever room there is."""
    submissions_per_s: float | None = None
    """Workloads in a real second, in the long run."""
    submissions_burst: int | None = None
    """So many at once after a rest; None: as many as in ten seconds, and at least one."""

    @property
    def burst(self) -> float:
        """So many at once after a rest, where the rate is limited."""
        if self.submissions_burst is not None:
            return float(self.submissions_burst)
        return max(1.0, _USUAL_BURST_S * (self.submissions_per_s or 0.0))


_USUAL_BURST_S = 10.0

NO_LIMITS = TenantLimits()
