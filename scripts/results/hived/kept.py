"""The measures of the runs as figures.json keeps them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from domain.events import JsonValue


@dataclass(frozen=True, slots=True)
class KeptRun:
    """One run, or those of all tenants alone."""

    kept: Mapping[str, JsonValue]

    def text(self, name: str) -> str:
        return str(self.kept[name])

    @property
    def instant(self) -> bool:
        return self.kept["instant"] is True

    @property
    def tenants(self) -> list[str]:
        return sorted(cast(Mapping[str, JsonValue], self.kept["tenants"]))

    def number(self, name: str) -> float:
        return float(cast(float, self.kept[name]))

    def of_tenant(self, tenant: str, name: str) -> float:
        """`workloads`, `gpu_h`, ...; 0 for a tenant that submitted nothing."""
        found = cast(Mapping[str, Mapping[str, float]], self.kept["tenants"]).get(tenant)
        return 0.0 if found is None else float(found[name])

    def queueing_s(self, tenant: str, name: str = "mean") -> float | None:
        """Of the tenant's completed workloads."""
        found = cast(Mapping[str, Mapping[str, Mapping[str, float | None]]], self.kept["tenants"]).get(tenant)
        return None if found is None else found["queueing_s"][name]

    def waits(self, tenant: str) -> list[float | None]:
        """[12 hours of submissions] mean seconds."""
        return cast(Mapping[str, list[float | None]], self.kept["waits"]).get(tenant, [])

    def fragmentation(self, name: str) -> list[float]:
        """[hour] the share of machines: `used` by guaranteed work, or `partly_used`."""
        return cast(Mapping[str, list[float]], self.kept["fragmentation"])[name]

    def excess_s(self, name: str) -> float:
        """Of the guaranteed workloads, against private clusters."""
        return float(cast(Mapping[str, float | None], self.kept["excess_wait_s"])[name] or 0.0)

    def against(self, name: str) -> int:
        """`guaranteed` or `later`."""
        return int(cast(Mapping[str, int], self.kept["against_private"])[name])

    def of_use(self, use: str, name: str) -> float:
        """A figure of the guaranteed or the opportunistic work; 0 where there is none."""
        group = cast(Mapping[str, float] | None, self.kept[use])
        return 0.0 if group is None else float(group[name])

    def mean_queueing_s(self, use: str) -> float | None:
        group = cast(Mapping[str, Mapping[str, float | None]] | None, self.kept[use])
        return None if group is None else group["queueing_s"]["mean"]


def find(runs: Sequence[KeptRun], size: str, scheduler: str, arm: str, *, instant: bool = False) -> KeptRun | None:
    """The run; None where there is none."""
    for run in runs:
        if (run.text("size"), run.text("scheduler"), run.text("arm"), run.instant) == (size, scheduler, arm, instant):
            return run
    return None
