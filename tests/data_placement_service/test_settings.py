"""The section `data` of scheduler.yaml: when the next plan is due, and what is refused."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from formats.problems import FormatError
from formats.scheduler_file import parse_scheduler_file
from services.configuration import Configuration
from services.data_placement.movers.storage_failed import StorageFailed
from services.data_placement.settings import DataSettings
from services.storage.failure_words import shown

_DAY_S = 86_400.0


def _parsed(text: str) -> DataSettings:
    return parse_scheduler_file(text, Configuration).data


def test_a_plan_is_due_once_a_day_at_the_set_time() -> None:
    settings = _parsed("data: {daily_at: '02:30', bytes_per_day: 5000000000000, solver: late_acceptance}")
    at_s = 2.5 * 3600.0
    assert settings.next_plan_s(3 * _DAY_S) == 3 * _DAY_S + at_s
    assert settings.next_plan_s(3 * _DAY_S + at_s) == 4 * _DAY_S + at_s
    assert settings.next_plan_s(3 * _DAY_S + at_s - 1.0) == 3 * _DAY_S + at_s
    assert settings.choices().quota_bytes == 5e12
    assert settings.choices().solver == "late_acceptance"
    assert _parsed("").next_plan_s(0.0) is None


def test_every_choice_about_copies_reaches_the_plan() -> None:
    text = """
data:
  disaster_copies: false
  spare_hardware: false
  hot_storage_share: 0.4
  partition_copies: true
  correlated_failures: [{region: east, other: west, probability: 0.25}]
  spare_gpu_shares: {east: 0.5}
  bound: true
"""
    choices = _parsed(text).choices()
    assert (choices.disaster_copies, choices.spare_hardware, choices.hot_storage_share) == (False, False, 0.4)
    assert (choices.partition_copies, choices.bound) == (True, True)
    assert choices.correlated_failures == (("east", "west", 0.25),)
    assert choices.spare_gpu_shares == (("east", 0.5),)


def test_a_time_without_quotes_is_read_as_it_was_meant() -> None:
    assert _parsed("data: {daily_at: 12:30}").daily_at == "12:30"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("data: {daily_at: '25:00'}", "data.daily_at"),
        ("data: {solver: guess}", "data.solver"),
        ("data: {preset: v9}", "data.preset"),
        ("data: {time_limit_s: -1}", "data.time_limit_s"),
        ("data: {apply: maybe}", "data.apply"),
        ("data: {apply: automatic}", "data: apply: automatic would move nothing; name the storage of regions"),
        ("data: {home_training_share: 2}", "data.home_training_share"),
        ("data: {history_days: 0}", "data.history_days"),
        ("data: {quota: 5}", "data.quota"),
        ("data: {hot_storage_share: 2}", "data.hot_storage_share"),
        ("data: {spare_gpu_shares: {east: -1}}", "data.spare_gpu_shares"),
        ("data: {correlated_failures: [{region: a, other: b}]}", r"data.correlated_failures\[0\].probability"),
        ("data: {correlated_failures: [{region: a, other: a, probability: 1}]}", "is the same region, a; name two"),
        (
            "data: {correlated_failures: [{region: a, other: b, probability: 1}, {region: a, other: b, probability: 0}]}",
            "about a and b again",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_field(text: str, problem: str) -> None:
    with pytest.raises(FormatError, match=problem):
        _parsed(text)


_WITHOUT_S3 = """
import sys
sys.modules["s3fs"] = None  # as if it were not installed
from pathlib import Path
from formats.problems import FormatError
from services.configuration import load_configuration
try:
    load_configuration(Path(sys.argv[1]))
except FormatError as error:
    print(error)
"""


def test_storage_in_s3_without_its_library_names_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "scheduler.yaml").write_text("data: {regions: {east: {storage: 's3://bucket/tables'}}}")
    arguments = [sys.executable, "-c", _WITHOUT_S3, str(tmp_path / "scheduler.yaml")]
    said = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout
    remedy = "is in S3, and the library for that is not installed: pip install 'topmast[s3]'"
    assert f"data.regions.east.storage: {remedy}" in said


@pytest.mark.parametrize(
    ("url", "error", "said"),
    [
        ("sftp://me:hush@host/tables", OSError("sftp://me:hush@host: no route"), "failed: sftp://host: no route"),
        ("sftp://me:hush@host/tables", PermissionError("hush is wrong"), "refuses access: ... is wrong"),
        ("s3://bucket/tables", OSError("no answer"), "failed: no answer"),
        ("file:///srv/tables", OSError(errno.EROFS, "Read-only file system"), "is read-only"),
        ("file:///srv/tables", OSError(errno.EDQUOT, "Disk quota exceeded"), "is full"),
        ("file:///srv/tables", ValueError(), "failed: ValueError"),
    ],
)
def test_what_storage_says_tells_nobody_how_to_get_in(url: str, error: Exception, said: str) -> None:
    assert str(StorageFailed("east", url, error)) == f"the storage of region east {said}"
    assert "hush" not in shown(url)
