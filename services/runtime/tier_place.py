"""Which tier a process is to be, and where it listens: all that the host says of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from domain.identifiers import ClusterId, RegionId


class TierKind(StrEnum):
    GLOBAL = "global"
    REGIONAL = "regional"
    CLUSTER = "cluster"


class TierProcesses(StrEnum):
    """In which processes the tiers of a local service are."""

    SHARED = "shared"
    """All in one, beside Ray: little memory, a quick start."""
    SEPARATE = "separate"
    """Each in its own: one can die without the others, and they share no processor."""


@dataclass(frozen=True, slots=True)
class TierPlace:
    """One tier. Picklable: it travels to other processes."""

    kind: TierKind
    listen: str = "127.0.0.1:0"
    region: RegionId | None = None
    cluster: ClusterId | None = None

    @property
    def name(self) -> str:
        """As its lease is called: global, regional/<region>, cluster/<cluster>."""
        match self.kind:
            case TierKind.GLOBAL:
                return "global"
            case TierKind.REGIONAL:
                return f"regional/{self.region}"
            case TierKind.CLUSTER:
                return f"cluster/{self.cluster}"
