"""The page: what must stand on it, for every kind of run."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from domain.events import JsonValue
from simulator.report.gantt_panel import GanttChoice, gantt_panel
from simulator.report.panel import LabelledRun
from simulator.report.report import report_of, write_report
from simulator.results.comparison import compare_runs
from simulator.results.figures import figures_of
from simulator.results.record_of_log import record_of_log
from simulator.results.run_record import RunRecord
from tests.house.determinism import assert_same_output
from tests.simulator.log_builder import FLEET, LogBuilder, task
from tests.simulator.results.small_runs import asked_at_random, run_of


def run(policy: str, *, count: int = 300, seed: int = 1, share: float = 1.0) -> RunRecord:
    """A run of two regions with 32 GPUs, broken off after that share of the submissions."""
    asked = asked_at_random(np.random.default_rng(seed), count, load=1.1, gpus=32, greatest=8)
    until_s = asked[int(count * share)].submitted_s if share < 1 else float("inf")
    return run_of(asked, policy=policy, seed=seed, until_s=until_s)


def page_of(*runs: RunRecord, title: str = "") -> str:
    figures = [figures_of(one) for one in runs]
    several = len({one.policy for one in runs}) > 1
    comparison = compare_runs(runs, figures, np.random.default_rng(1), resamples=200) if several else None
    return report_of(runs, figures, comparison, title=title)


def own_part(page: str) -> str:
    """The page without Plotly."""
    before, _, rest = page.partition("<script>")
    return before + rest.partition("</script>")[2]


def pictures_of(page: str) -> dict[str, list[dict[str, JsonValue]]]:
    data = re.search(r'<script type="application/json" id="pictures">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    found = json.loads(data[1])
    assert isinstance(found, dict)
    return found


def sections_of(page: str) -> list[str]:
    return re.findall(r'<section id="([\w-]+)"', own_part(page))


ALWAYS = [
    "completion", "queueing", "gpu-use", "queue", "regions", "waiting-by-gpus", "waiting-by-tenant", "late-starts",
    "preemptions", "machines",
]  # fmt: skip


def test_a_run_has_every_picture_with_its_table() -> None:
    page = page_of(run("urgent"))
    assert sections_of(page) == ALWAYS
    assert list(pictures_of(page)) == ALWAYS
    for section in own_part(page).split("<section id=")[1:]:
        assert 'class="figure"' in section
        assert section.count("<details>") == 1
        assert section.count("<tr>") > 2
    for pictures in pictures_of(page).values():
        for picture in pictures:
            assert picture["traces"]
            assert picture["layout"]


def test_a_comparison_says_who_won() -> None:
    page = page_of(run("fifo"), run("sjf"), run("urgent"))
    assert sections_of(page) == ["comparison", "winners", *ALWAYS]
    assert "sjf: those that won most" in page
    assert "fifo, sjf, urgent on small" in page
    # None is preempted under fifo and sjf.
    assert [picture["label"] for picture in pictures_of(page)["preemptions"]] == [
        "urgent, by tenant", "urgent, by priority",
    ]  # fmt: skip


def test_several_seeds_are_reported_and_the_first_is_drawn() -> None:
    page = page_of(*(run(policy, seed=seed, count=100) for policy in ("fifo", "sjf") for seed in (1, 2)))
    assert "4 runs; the pictures show fifo (seed 1), sjf (seed 1)." in page
    assert '<th scope="col">fifo, seed 2</th>' in page
    assert "seeds" in sections_of(page)
    traces = pictures_of(page)["completion"][0]["traces"]
    assert isinstance(traces, list)
    assert len(traces) == 2


def test_a_run_that_was_broken_off_says_so_first() -> None:
    broken, whole = page_of(run("fifo", share=0.5)), page_of(run("fifo"))
    assert "fifo was broken off" in broken
    assert "had not ended" in broken
    assert broken.index("was broken off") < broken.index("class=tiles")
    assert "was broken off" not in own_part(whole)


def test_a_live_log_without_gpus_or_completions_has_a_page() -> None:
    log = LogBuilder().submit("w1").wait(30).submit("w2").wait(5)
    page = page_of(record_of_log(log.records, FLEET, policy="live"))
    assert sections_of(page) == ALWAYS
    assert "No workload completed, so there is nothing to show." in page
    assert "No attempt was preempted." in page
    assert "Nothing ran on a GPU" in page
    assert "completion" not in pictures_of(page)


def test_names_cannot_break_out_of_the_page() -> None:
    evil = "</script><img src=x onerror=alert(1)>"
    record = run("urgent", count=60)
    record = replace(
        record,
        policy=evil,
        tenants=tuple(f"{evil}{tenant}" for tenant in record.tenants),
        workloads=replace(record.workloads, ids=tuple(f"{name}{evil}" for name in record.workloads.ids)),
    )
    page = own_part(page_of(record, title=evil))
    assert "<img" not in page
    assert page.count("</script>") == 2
    assert "&lt;img" in page


def test_the_page_asks_for_nothing_from_outside() -> None:
    page = page_of(run("urgent", count=60))
    assert "default-src 'none'" in page
    assert not re.search(r"""(?:src|href)\s*=\s*["']?(?!#|data:)\w""", own_part(page))


def test_a_large_run_is_still_a_small_file(tmp_path: Path) -> None:
    record = run("urgent", count=8_000)
    assert len(record.attempts) > 8_500
    write_report(tmp_path / "report.html", [record], [figures_of(record)])
    assert (tmp_path / "report.html").stat().st_size < 6_500_000
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_many_regions_become_a_map() -> None:
    record = run("fifo", count=100)
    spread = np.arange(len(record.machines.names)) % 4
    many = replace(
        record,
        regions=tuple(f"region-{number}" for number in range(12)),
        region_gpus=(8,) * 4 + (8,) * 8,
        machines=replace(record.machines, region=spread),
    )
    traces = pictures_of(page_of(many))["regions"][0]["traces"]
    assert isinstance(traces, list)
    assert isinstance(traces[0], dict)
    assert traces[0]["type"] == "heatmap"


def bars_of(record: RunRecord, choice: GanttChoice) -> list[dict[str, JsonValue]]:
    picture = gantt_panel([LabelledRun("run", record)], choice).pictures[0]
    return [dict(trace) for trace in picture.traces if trace["type"] == "bar"]


def test_a_gantt_has_a_bar_for_everything_that_ran_where_and_when_it_ran() -> None:
    """On e1 two workloads side by side, then one on all GPUs; the other machine is not asked for."""
    log = LogBuilder().submit("w1").submit("w2").submit("w3").submit("w4")
    log = log.run("w1", task("e1", [0, 1])).run("w2", task("e1", [2, 3])).run("w3", task("e2", [0, 1])).wait(100)
    log = log.complete("w1").complete("w2").run("w4", task("e1", [0, 1])).wait(100).complete("w4").complete("w3")
    record = record_of_log(log.records, FLEET)
    bars = bars_of(record, GanttChoice(from_s=0.0, length_s=200.0, machines=("e1",)))
    assert len(bars) == 1
    assert bars[0]["base"] == [0, 0, 100]
    assert bars[0]["x"] == [100, 100, 100]
    rows = bars[0]["y"]
    assert isinstance(rows, list)
    # The first two lanes, the last two, and the first two again, of a row that is 0.9 high around 0.
    assert rows == [pytest.approx(-0.225), pytest.approx(0.225), pytest.approx(-0.225)]
    second_half = bars_of(record, GanttChoice(from_s=150.0, length_s=50.0, machines=("e1", "e2")))
    assert second_half[0]["x"] == [50, 50]


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        (GanttChoice(machines=("m999",)), "there is no machine 'm999'"),
        (GanttChoice(from_s=1e9), "is not in the run of 'fifo'"),
        (GanttChoice(length_s=0.0), "longer than nothing"),
    ],
    ids=["machine", "window", "length"],
)
def test_a_choice_that_the_run_does_not_have_is_refused(tmp_path: Path, choice: GanttChoice, sentence: str) -> None:
    record = run("fifo", count=30)
    with pytest.raises(ValueError, match=sentence):
        write_report(tmp_path / "report.html", [record], [figures_of(record)], choice=choice)
    assert list(tmp_path.iterdir()) == []


def test_no_runs_make_no_page() -> None:
    with pytest.raises(ValueError, match="at least one run"):
        report_of([], [])


def test_the_same_runs_give_the_same_page() -> None:
    output = assert_same_output(
        """
from hashlib import sha256
from tests.simulator.report.test_report import page_of, run
page = page_of(run("fifo", count=80), run("urgent", count=80))
print(len(page), sha256(page.encode()).hexdigest())
"""
    )
    assert int(output.split()[0]) > 4_000_000
