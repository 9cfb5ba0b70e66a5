"""The demo's account: what of the queueing is the scheduler's own time, and what of that is real."""

from __future__ import annotations

import io
from collections.abc import Mapping

import pytest
from rich.console import Console

from domain.events import JsonValue
from services.demo.account import account_of
from services.demo.report import print_report

SPEED = 400.0


def happened(t: float, event: str, workload: str, **details: JsonValue) -> Mapping[str, JsonValue]:
    return {"t": t, "event": event, "workload": workload, "tenant": "ads", "region": "east", **details}


def started(t: float, workload: str) -> Mapping[str, JsonValue]:
    return happened(t, "started", workload, placement=[{"gpus": [0]}])


LOG = [
    happened(0.0, "submitted", "quick"),
    happened(0.0, "submitted", "late"),
    happened(80.0, "dispatched", "quick"),
    # The clock lets 400 s pass in each real one.
    happened(100.0, "waiting", "late"),
    started(120.0, "quick"),
    happened(820.0, "completed", "quick"),
    happened(900.0, "dispatched", "late"),
    started(1_000.0, "late"),
    happened(1_800.0, "completed", "late"),
]
"""One starts at once, which takes 120 s of the clock; the other waits for its place from 100 to 900, and starts at 1,000."""


def test_what_is_not_waiting_for_room_is_the_schedulers_own_time() -> None:
    figures = account_of(LOG, total_gpus=8, clock_speed=SPEED).as_json()
    assert figures["queueing_s"] == pytest.approx(
        {"count": 2, "mean": 560.0, "p50": 560.0, "p95": 956.0, "p99": 991.2, "max": 1_000.0}
    )
    scheduling = figures["scheduling"]
    assert isinstance(scheduling, dict)
    # 120 s of one, 100 s and 100 s of the other, of 1,120 s.
    assert scheduling["share_of_queueing"] == pytest.approx(320 / 1_120)
    real_s = scheduling["real_s"]
    assert isinstance(real_s, dict)
    assert {name: real_s[name] for name in ("count", "mean", "max")} == pytest.approx(
        {"count": 2, "mean": 0.4, "max": 0.5}
    )


def test_what_starts_nothing_has_no_latency() -> None:
    figures = account_of(LOG[:2], total_gpus=8, clock_speed=SPEED).as_json()
    assert figures["scheduling"] == {"real_s": {"count": 0}, "share_of_queueing": 0.0}


def test_the_summary_shows_real_latency_beside_that_of_the_clock() -> None:
    summary: dict[str, JsonValue] = {
        **account_of(LOG, total_gpus=8, clock_speed=SPEED).as_json(),
        "violations": 0,
        "validation": {"events": len(LOG), "checks": {}, "shown": []},
        "mechanisms": {
            "gangs reserved": {"count": 2, "first": "2 machines in east kept for late"},
            "tables moved": {"count": 0, "first": ""},
        },
        "warehouse": {"moves": 3, "bytes": 2_500_000, "files_checked": 12, "files_wrong": []},
        "staged": 6,
        "real_training": [],
        "trace": {
            "source": "a test",
            "workloads": 2,
            "left_out": 0,
            "durations_cut": 0,
            "duration_cap_s": 5_400.0,
            "arrivals_scaled_by": 1.0,
        },
        "clock_speed": SPEED,
        "running_real_s": 4.5,
        "wall_s": 5.0,
        "peak_memory_mib": 1,
        "seed": 1,
        "emulated": "all of it",
    }
    stream = io.StringIO()
    print_report(Console(file=stream, width=120), summary)
    shown = " ".join(stream.getvalue().split())
    assert "The scheduler's own time is 29% of all queueing above; the rest is waiting for room." in shown
    assert "It is real: 0.40 s at the median, 0.49 s at p95" in shown
    assert "the clock × 400 shows the median as 2.7 min" in shown
    assert "│ gangs reserved │ 2 │ 2 machines in east kept for late │" in shown
    assert "│ tables moved │ none │ │" in shown
    assert "3 moves of tables, 2.5 MB of real files; 12 files of all copies read again at the end, all whole." in shown
    queueing = next(line for line in stream.getvalue().splitlines() if "queueing, all" in line)
    assert queueing.split("│")[-3:-1] == [" 1.40 s   ", " 2.39 s   "]
