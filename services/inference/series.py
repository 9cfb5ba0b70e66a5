"""An inference side that plays a series: its load over time, again and again."""

from __future__ import annotations

import asyncio
import math
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

from domain.inference import InferenceDemand
from formats.problems import FormatError
from services.inference.demand import LendingCluster, NoDemand
from simulator.inputs.loans import UtilisationPoint, read_utilisation

_ROUNDING = 1e-9


class SeriesDemand:
    """Needs as many machines as the series (columns t_s, busy_pod_fraction) says of this time.

    The series repeats: at time t the point is that of t modulo its length, so that one of a day is at its place in the day
    and a restart changes nothing.
    """

    def __init__(self, file: Path, reclaim_within_s: float | None = None) -> None:
        self._file = file
        self._reclaim_within_s = reclaim_within_s
        self._series: RepeatedSeries | None = None

    def read(self) -> None:
        """Reads the file, so that nothing has to be read when it is asked. Raises FormatError."""
        self._read()

    def _read(self) -> RepeatedSeries:
        self._series = RepeatedSeries(read_utilisation(self._file))
        return self._series

    async def demand(self, about: LendingCluster, now: float) -> InferenceDemand:
        series = self._series
        if series is None:
            try:
                series = await asyncio.to_thread(self._read)
            except (FormatError, OSError) as error:
                raise NoDemand(f"the series {self._file} cannot be played: {error}") from error
        load = series.load_at(now)
        return InferenceDemand(math.ceil(load * about.machines - _ROUNDING), None, self._reclaim_within_s)

    async def close(self) -> None:
        pass


class RepeatedSeries:
    """Points by time, again and again. Raises ValueError without any."""

    def __init__(self, points: Sequence[UtilisationPoint]) -> None:
        if not points:
            raise ValueError("a series that repeats has at least one point")
        self._times_s = tuple([point.t_s for point in points])
        self._loads = tuple([point.busy_fraction for point in points])
        # The last point lasts as long as the one before it.
        last_span_s = points[-1].t_s - points[-2].t_s if len(points) > 1 else 1.0
        self._period_s = points[-1].t_s + last_span_s - points[0].t_s

    def load_at(self, now: float) -> float:
        """The load then."""
        first_s = self._times_s[0]
        place = bisect_right(self._times_s, first_s + (now - first_s) % self._period_s) - 1
        return self._loads[max(0, place)]
