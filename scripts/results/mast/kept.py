"""The runs of figures.json, read again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import cast

from domain.events import JsonValue
from scripts.results.mast.cases import PUBLISHED, WAYS
from scripts.results.mast.quotas import BACKED

DAY_S = 86_400.0
ORDER = ("mast", "ideal", "federated", "random_region", "own_region")
"""Of policies in tables and pictures."""
_WAY_OF_POLICY = MappingProxyType({WAYS[way].policy: way for way in (PUBLISHED, "joint windows", "federated")})
"""What the comparison of policies runs is one of the ways."""


@dataclass(frozen=True, slots=True)
class KeptRun:
    """What was kept of one run (`measures_of`)."""

    kept: Mapping[str, JsonValue]

    @property
    def experiment(self) -> str:
        return str(self.kept["experiment"])

    @property
    def load(self) -> float:
        return self.number("load")

    @property
    def policy(self) -> str:
        return str(self.kept["policy"])

    @property
    def memory(self) -> str:
        return str(self.kept["memory"])

    @property
    def way(self) -> str:
        return str(self.kept["way"])

    @property
    def quotas(self) -> str:
        return str(self.kept["quotas"])

    @property
    def step_days(self) -> float:
        """Between the points over time."""
        return float(cast(float, self.part("allocation")["step_s"])) / DAY_S

    def number(self, name: str) -> float:
        return float(cast(float, self.kept[name]))

    def numbers(self, name: str) -> list[float | None]:
        return list(cast(list[float | None], self.kept[name]))

    def part(self, name: str) -> Mapping[str, JsonValue]:
        return cast(Mapping[str, JsonValue], self.kept[name])

    def of_service(self, name: str) -> float | None:
        return cast(float | None, self.part("service")[name])

    def of_priority(self, priority: int, name: str) -> float | None:
        """Of the waits of tenants of a priority; None where there were none."""
        by_priority = cast(Mapping[str, Mapping[str, float | None]], self.part("service")["by_priority"])
        return by_priority[str(priority)][name]

    def busy_windows(self) -> tuple[int, int]:
        """Windows of eight hours with more than 1.3 % violations, and all that have waits enough."""
        above, of = cast(list[int], self.part("service")["windows_above_0_013"])
        return above, of

    def allocation(self, when: str) -> tuple[float | None, float | None]:
        """With and without the start of containers."""
        reserved, at_work = cast(list[float | None], self.part("allocation")[when])
        return reserved, at_work

    def allocation_over_time(self, name: str) -> list[float]:
        return list(cast(list[float], self.part("allocation")[name]))

    def largest_load(self, name: str) -> float:
        return float(cast(float, self.part("largest_regional_load")[name]))

    def regional_load(self) -> dict[str, list[float]]:
        return dict(cast(Mapping[str, list[float]], self.part("largest_regional_load")["over_time"]))

    def start_latencies(self) -> list[float]:
        return list(cast(list[float], self.kept["start_latency_s_at_shares"]))


def runs_of(figures: Mapping[str, JsonValue]) -> list[KeptRun]:
    """All runs, by experiment, load and policy."""
    runs = [KeptRun(kept) for kept in cast(list[Mapping[str, JsonValue]], figures["runs"])]
    return sorted(runs, key=lambda run: (run.experiment, run.load, ORDER.index(run.policy)))


def in_ways(runs: Sequence[KeptRun]) -> list[KeptRun]:
    """By load, quotas and way: those of the experiment, and those of the comparison of policies that belong beside them."""
    loads = {run.load for run in runs if run.experiment == "ways"}
    order = list(WAYS)
    found = [
        (run.load, run.quotas == BACKED, order.index(way), run)
        for run in runs
        if run.experiment in {"ways", "anywhere"} and run.load in loads
        if (way := way_of(run)) is not None
    ]
    return [run for *_, run in sorted(found, key=lambda each: each[:3])]


def way_of(run: KeptRun) -> str | None:
    """As the table of ways calls it; None where it is none of them."""
    return run.way if run.experiment == "ways" else _WAY_OF_POLICY.get(run.policy)


def find(runs: Sequence[KeptRun], experiment: str, load: float, policy: str | None = None) -> list[KeptRun]:
    """Those of an experiment at a load, of one policy or of all."""
    return [
        run
        for run in runs
        if run.experiment == experiment and run.load == load and (policy is None or run.policy == policy)
    ]
