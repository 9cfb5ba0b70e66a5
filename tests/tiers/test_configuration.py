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


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("file:///srv/a", "file:///srv/./a/"),
        ("file:///srv", "file:///srv/a"),
        ("file:///srv/a", "file:///srv/b/../a"),
        ("file:///srv/a", "local:///srv/a"),
        ("s3://bucket/a", "s3a://bucket/a"),
    ],
    ids=["dots", "within", "back", "local", "s3a"],
)
def test_two_regions_never_store_tables_in_one_folder(tmp_path: Path, first: str, second: str) -> None:
    path = tmp_path / "scheduler.yaml"
    regions = f"east: {{storage: '{first}'}}, west: {{storage: '{second}'}}"
    path.write_text(f"data: {{regions: {{{regions}}}}}", encoding="utf-8")
    with pytest.raises(FormatError, match="regions east and west store tables in one folder"):
        load_configuration(path)


def test_the_bounds_themselves_are_possible(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.yaml"
    path.write_text("lease: {duration_real_s: 0.1}\nauction: {poll_real_s: 0.001}", encoding="utf-8")
    configuration = load_configuration(path)
    assert (configuration.lease.duration_real_s, configuration.auction.poll_real_s) == (0.1, 0.001)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "data: {regions: {east: {storage: 'flie:///srv/tables'}}}",
            "data.regions.east.storage: there is no storage protocol 'flie'; did you mean file",
        ),
        (
            "storage: {checkpoints: 'flie:///srv'}",
            "storage.checkpoints: there is no storage protocol 'flie'; did you mean",
        ),
        ("storage: {logs: /srv/logs}", "storage.logs: must be a URL such as"),
        ("tuning: synergy_tun", "there is no tuning synergy_tun; did you mean synergy_tune"),
        (
            "tuning: tetris_packing",
            "tuning: tetris_packing needs to know how long workloads will run; set 'estimates: true'",
        ),
        (
            "tuning: drf_packing\npriorities: {2: {ordering: las}}",
            r"priorities\[2\].ordering: drf_packing orders the queue itself.*use synergy_greedy",
        ),
        ("elastic: lyr", "there is no policy lyr that resizes; did you mean lyra"),
        ("elastic: fifo", "elastic: fifo resizes nothing; use .*lyra"),
        ("elastic: afs\nresize_pause_s: 5", "resize_pause_s: elastic: afs does not go by what a resize costs"),
        ("resize_pause_s: 5", "resize_pause_s: elastic: none does not go by"),
        ("elastic: lyra\nresize_pause_s: -1", "resize_pause_s"),
        ("round_s: 0", "round_s"),
    ],
)
def test_how_what_runs_is_adjusted_is_checked_when_the_file_is_read(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text(text)
    with pytest.raises(FormatError, match=problem):
        load_configuration(file)


def test_a_tuning_is_named_as_the_policy_is(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text("tuning: synergy_tune\nround_s: 60")
    mechanism = load_configuration(file).tuning_mechanism()
    assert mechanism is not None
    assert (mechanism.name, mechanism.reverts_others) == ("tune", True)
    assert load_configuration(None).tuning_mechanism() is None


@pytest.mark.parametrize(
    "text",
    [
        "tuning: synergy_greedy\npriorities: {2: {ordering: las}}",
        "tuning: drf_packing\npriorities: {2: {ordering: fifo}}",
        "tuning: tetris_packing\nestimates: true",
    ],
)
def test_static_demands_are_followed(tmp_path: Path, text: str) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text(text)
    mechanism = load_configuration(file).tuning_mechanism()
    assert mechanism is not None
    assert not mechanism.reverts_others


def test_what_resizes_is_named_as_the_policy_is(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    for name in ("lyra", "afs", "gandiva_elastic"):
        file.write_text(f"elastic: {name}")
        policy = load_configuration(file).elastic_policy()
        assert policy is not None
        assert policy.name == name
    assert load_configuration(None).elastic_policy() is None
