"""Load tests: arrivals, an open loop that leaves no waiting out, histograms, and a scenario that is run small."""

import asyncio
import time

import pytest

from benchmarks.load.arrivals import poisson, with_bursts
from benchmarks.load.histograms import figures, histogram_of, merged
from benchmarks.load.open_loop import run_open_loop
from topmast.errors import TopmastError


def test_arrivals_have_the_rate_and_are_repeated_by_their_seed() -> None:
    due_s = poisson(100.0, 100.0, 7)
    assert 9_500 < len(due_s) < 10_500
    assert due_s == sorted(due_s) == poisson(100.0, 100.0, 7)
    assert due_s != poisson(100.0, 100.0, 8)


def test_bursts_come_at_once() -> None:
    assert with_bursts([0.5, 6.0], 5.0, 3, 10.0) == [0.5, 5.0, 5.0, 5.0, 6.0]


@pytest.mark.parametrize(("per_s", "duration_s"), [(0.0, 1.0), (1.0, 0.0)])
def test_no_rate_and_no_time_are_refused(per_s: float, duration_s: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        poisson(per_s, duration_s, 1)


def test_histograms_of_several_clients_are_one() -> None:
    whole = figures(merged([histogram_of([0.001] * 98).encode(), histogram_of([1.0, 2.0]).encode()]))
    assert whole["count"] == 100
    assert whole["p50_s"] == pytest.approx(0.001, rel=0.01)
    assert whole["p99_s"] == pytest.approx(1.0, rel=0.01)
    assert whole["max_s"] == pytest.approx(2.0, rel=0.01)


def test_nothing_measured_is_no_fast_result() -> None:
    with pytest.raises(ValueError, match="nothing was measured"):
        figures(merged([]))


def test_latency_counts_from_when_a_request_was_due() -> None:
    async def request(number: int) -> str:
        if number == 2:
            raise TopmastError("refused")
        return str(number)

    # All were due a minute before the loop could send them: that minute is part of what they waited.
    result = asyncio.run(run_open_loop([0.0, 0.0, 0.0], time.time() - 60.0, request))
    said = figures(merged([result.encoded]))
    assert said["count"] == 2
    assert said["p50_s"] >= 59.9
    assert result.refused == {"TopmastError": 1}
    assert set(result.due_s) == {"0", "1"}
