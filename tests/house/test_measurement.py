import json

import pytest

from benchmarks.__main__ import benchmark_names
from benchmarks.measurement import report, summary_of
from tests.house.repository import ROOT


def test_a_report_is_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    report("scan pass", {"pending": 100_000}, [0.1, 0.2, 0.4], "at most 50 ms", {"hits": 3})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    written = json.loads(lines[0])
    assert written["benchmark"] == "scan pass"
    assert written["work"] == {"pending": 100_000}
    assert written["budget"] == "at most 50 ms"
    assert written["hits"] == 3
    assert (written["count"], written["p50_s"], written["p99_s"], written["max_s"]) == (3, 0.2, 0.4, 0.4)
    assert written["peak_rss_mib"] > 1.0
    assert written["command"].startswith("python ")
    assert str(ROOT) not in lines[0]


def test_percentiles_are_observed_values() -> None:
    summary = summary_of([float(value) for value in range(1, 201)])
    assert (summary["p50_s"], summary["p99_s"], summary["mean_s"]) == (100.0, 198.0, 100.5)


@pytest.mark.parametrize("durations_s", [[], [-1.0], [float("nan")], [float("inf")]], ids=str)
def test_nothing_measured_is_not_a_measurement(durations_s: list[float]) -> None:
    with pytest.raises(ValueError, match="durations"):
        report("scan pass", {}, durations_s, "at most 50 ms")


def test_extra_entries_cannot_replace_measured_ones() -> None:
    with pytest.raises(ValueError, match="overwrite p99_s"):
        report("scan pass", {}, [0.1], "at most 50 ms", {"p99_s": 0.0})


def test_benchmarks_are_found_by_name() -> None:
    assert "measurement" not in benchmark_names()
    assert "__main__" not in benchmark_names()
