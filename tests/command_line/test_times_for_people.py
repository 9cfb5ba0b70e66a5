"""Times are shown as the clock on the wall here shows them, with the zone, and are taken back as they were shown."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from services.command_line.wording import moment, parse_moment
from tests.client.loopback_server import LoopbackServer
from tests.command_line.conftest import Topmast
from topmast import Client, Emulated, JobSpecification, WorkloadSpecification

EPOCH_FLOAT = re.compile(r"\b1[0-9]{9}(\.\d+)?\b")


@pytest.fixture(autouse=True)
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Central Europe, whether or not the machine knows its zones by name."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_a_time_is_shown_with_its_zone_and_taken_back() -> None:
    winter_s, summer_s = 1_770_000_000.0, 1_790_000_000.0
    assert moment(winter_s) == "2026-02-02 03:40:00 CET"
    assert moment(summer_s) == "2026-09-21 16:13:20 CEST"
    for seconds in (winter_s, summer_s):
        assert parse_moment(moment(seconds)) == seconds
    assert moment(None) == ""
    assert moment(1e300) == "beyond the calendar"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1790000000", 1_790_000_000.0),
        ("2026-09-21 16:13:20", 1_790_000_000.0),
        ("2026-09-21T14:13:20+00:00", 1_790_000_000.0),
        ("2026-09-21 14:13:20 UTC", 1_790_000_000.0),
        ("2026-09-21", 1_789_941_600.0),
    ],
)
def test_a_time_without_a_zone_is_of_here(text: str, seconds: float) -> None:
    assert parse_moment(text) == seconds


def test_what_is_no_time_is_refused_with_what_is() -> None:
    with pytest.raises(ValueError, match="'soon' is no time; write seconds since the epoch, or 2026-01-31"):
        parse_moment("soon")


def test_no_table_or_line_shows_seconds_since_the_epoch(server: LoopbackServer, topmast: Topmast) -> None:
    with Client(server.address) as client:
        emulated = JobSpecification(gpus=1, emulated=Emulated(duration_s=90.0))
        client.submit(WorkloadSpecification(tenant="ads", name="ranker", jobs=[emulated]))

    def long_ago_but_not_forever() -> None:
        workload = server.topmast.workloads["w1"]
        workload.submitted_s = 1_790_000_000.25
        position = workload.queue_position
        position.diagnosis.reason, position.diagnosis.since_s = "no_room", 1_790_000_010.5
        workload.attempts.add(attempt=1, region="eu", started_s=1_790_000_001.0, ended_s=1_790_000_002.0, end="failed")
        server.topmast.add_event(
            t=1_790_000_011.0,
            event="waiting",
            workload="w1",
            details={"reason": "no room", "diagnosis": {"reason": "no_room", "since_s": 1_790_000_010.5}},
        )
        server.topmast.add_event(
            t=1_790_000_012.0, event="reserved", workload="w1", details={"expected_start_s": 1_790_003_600.0}
        )

    server.do(long_ago_but_not_forever)
    for command in (["list"], ["get", "w1"], ["queue"], ["events"], ["status"], ["loans"]):
        shown = topmast(*command)
        assert shown.exit_code == 0
        assert shown.stdout
        assert not EPOCH_FLOAT.search(shown.stdout), shown.stdout
    assert "expected_start_s=2026-09-21 17:13:20 CEST" in topmast("events").stdout
    assert "since 2026-09-21 16:13:30 CEST" in topmast("list").stdout
    assert "1790000000.25" in topmast("list", "--json").stdout
