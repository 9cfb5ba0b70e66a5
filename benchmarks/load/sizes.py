"""How large a run is."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of all scenarios; each takes what it needs."""

    clients: int
    per_s: float
    duration_s: float
    burst: int
    streams: int
    workloads: int
    minutes: float
    settle_s: float
