"""Asks the inference sides of a region's clusters, at every look, beside the session's loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from domain.clock import Clock
from domain.identifiers import ClusterId
from domain.inference import InferenceDemand, InferenceSide
from services.execution.background_tasks import BackgroundTasks
from services.inference.demand import DemandSource, LendingCluster, NoDemand, checked_demand
from services.inference.remote import RemoteDemand
from services.inference.series import SeriesDemand


@dataclass(frozen=True, slots=True)
class DemandAnswer:
    """What came of asking once: a demand, or why there is none."""

    cluster: ClusterId
    asked_s: float
    demand: InferenceDemand | None
    problem: str = ""


@dataclass(slots=True)
class _Watched:
    side: InferenceSide
    source: DemandSource
    next_look_s: float
    asking: bool = False


@dataclass(slots=True)
class DemandWatch:
    """One question to each inference side at a time; answers wait until they are taken, and wake the loop."""

    clock: Clock
    wake: Callable[[], None]
    _watched: dict[ClusterId, _Watched] = field(default_factory=dict)
    _answers: list[DemandAnswer] = field(default_factory=list)
    _asking: BackgroundTasks = field(default_factory=BackgroundTasks)

    def watch(self, cluster: ClusterId, side: InferenceSide, last_asked_s: float | None) -> None:
        """Asks this one from now on; `last_asked_s` is when an earlier session asked it. Another side takes its place."""
        known = self._watched.get(cluster)
        if known is not None and known.side == side:
            return
        if known is not None:
            self._asking.spawn(known.source.close())
        next_look_s = self.clock.now() if last_asked_s is None else last_asked_s + side.look_every_s
        self._watched[cluster] = _Watched(side, _source_of(side), next_look_s)

    def is_due(self, cluster: ClusterId) -> bool:
        """Whether the next look has come, and it is not being asked."""
        watched = self._watched[cluster]
        return not watched.asking and self.clock.now() >= watched.next_look_s

    def ask(self, about: LendingCluster) -> None:
        """Asks one that is due."""
        watched, now = self._watched[about.cluster], self.clock.now()
        watched.asking = True
        watched.next_look_s = now + watched.side.look_every_s
        self._asking.spawn(self._ask(watched, about, now))

    def take_answers(self) -> list[DemandAnswer]:
        """Those that came since the last time, oldest first."""
        answers, self._answers = self._answers, []
        return answers

    async def close(self) -> None:
        """Asks nothing more."""
        self._asking.close()
        for watched in self._watched.values():
            await watched.source.close()

    async def _ask(self, watched: _Watched, about: LendingCluster, now: float) -> None:
        try:
            demand = checked_demand(await watched.source.demand(about, now), about.machines)
            answer = DemandAnswer(about.cluster, now, demand)
        except NoDemand as error:
            answer = DemandAnswer(about.cluster, now, None, str(error))
        finally:
            watched.asking = False
        if self._watched.get(about.cluster) is watched:
            self._answers.append(answer)
            self.wake()


def _source_of(side: InferenceSide) -> DemandSource:
    return RemoteDemand(side.address) if side.address else SeriesDemand(Path(side.series))
