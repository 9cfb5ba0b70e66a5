"""Intervals of scheduler.yaml that no service could keep are refused by field."""

from __future__ import annotations

from pathlib import Path

import pytest

from formats.problems import FormatError
from services.configuration import load_configuration


@pytest.mark.parametrize(
    ("text", "field", "bound"),
    [
        ("lease: {duration_real_s: 1.0e-9}", "lease.duration_real_s", "0.1"),
        ("lease: {duration_real_s: 1.0e+9}", "lease.duration_real_s", "86400"),
        ("auction: {poll_real_s: 1.0e-9}", "auction.poll_real_s", "0.001"),
        ("auction: {answer_timeout_real_s: 100000}", "auction.answer_timeout_real_s", "86400"),
        ("scan: {period_real_s: 0}", "scan.period_real_s", "0"),
    ],
    ids=["lease-too-short", "lease-too-long", "poll-too-often", "timeout-too-long", "no-period"],
)
def test_an_interval_beyond_its_bounds_is_refused(tmp_path: Path, text: str, field: str, bound: str) -> None:
    path = tmp_path / "scheduler.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FormatError) as refused:
        load_configuration(path)
    assert field in str(refused.value)
    assert bound in str(refused.value)


def test_the_bounds_themselves_are_possible(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.yaml"
    path.write_text("lease: {duration_real_s: 0.1}\nauction: {poll_real_s: 0.001}", encoding="utf-8")
    configuration = load_configuration(path)
    assert (configuration.lease.duration_real_s, configuration.auction.poll_real_s) == (0.1, 0.001)
