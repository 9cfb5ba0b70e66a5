"""Links between regions: how fast tables are copied from one to another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from domain.identifiers import RegionId

DEFAULT_BYTES_PER_S = 1.25e9
"""Ten gigabits a second, for a link of which nothing is said."""


@dataclass(frozen=True, slots=True)
class Links:
    """Bytes per second, by (from, to); each direction is a link of its own."""

    bytes_per_s: Mapping[tuple[RegionId, RegionId], float] = field(default_factory=dict)
    otherwise_bytes_per_s: float = DEFAULT_BYTES_PER_S
    """Of links that are not named."""

    def __post_init__(self) -> None:
        for (source, target), rate in sorted(self.bytes_per_s.items()):
            if not rate >= 0 or rate == float("inf"):
                raise ValueError(
                    f"the link from {source} to {target} has {rate} bytes per second; 0 or more are possible"
                )
        if not self.otherwise_bytes_per_s >= 0:
            raise ValueError(f"links have {self.otherwise_bytes_per_s} bytes per second; 0 or more are possible")

    def rate(self, source: RegionId, target: RegionId) -> float:
        """Bytes per second from one region to another; 0: there is no link."""
        return self.bytes_per_s.get((source, target), self.otherwise_bytes_per_s)
