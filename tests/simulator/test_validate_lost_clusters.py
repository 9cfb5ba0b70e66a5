"""I13, kept and broken on purpose: nothing begins in a lost cluster, and nothing is left in one that is back."""

from __future__ import annotations

import pytest

from simulator.validation.report import Invariant
from tests.simulator.log_builder import LogBuilder
from tests.simulator.stories import ON_E1, ON_W1, Broken, log, sentences_about


def lost(builder: LogBuilder) -> LogBuilder:
    return builder.add(
        "cluster_lost", region="east", cluster="east-a", reason="its manager has held no lease for 662 s"
    )


def back(builder: LogBuilder) -> LogBuilder:
    return builder.add("cluster_back", region="east", cluster="east-a")


def test_what_a_lost_cluster_had_runs_elsewhere_and_the_cluster_takes_work_again() -> None:
    builder = lost(log().submit("a").run("a", ON_E1).wait(10)).evict("a", "machine_lost")
    builder = builder.run("a", ON_W1, attempt=2, region="west").wait(1_000).complete("a", attempt=2)
    builder = back(builder).submit("b").run("b", ON_E1).wait(1_000).complete("b")
    report = builder.validate()
    assert report.violations == 0, str(report)
    assert report.checks[Invariant.I13] == 2


BROKEN: Broken = {
    "begins in a lost cluster": (
        lost(log().submit("a")).run("a", ON_E1).wait(1_000).complete("a"),
        "attempt 1 of a is dispatched to cluster east-a, which is lost",
    ),
    "is back too soon": (
        back(lost(log().submit("a").run("a", ON_E1).wait(10))).evict("a", "machine_lost").cancel("a"),
        "cluster east-a is back while attempt 1 of a, which was lost with it, has not ended",
    ),
    "lost twice": (lost(lost(log().submit("a").cancel("a"))), "cluster east-a is lost, which it was before"),
    "back from nowhere": (back(log().submit("a").cancel("a")), "cluster east-a is back, but was not lost"),
}


@pytest.mark.parametrize(("builder", "words"), BROKEN.values(), ids=BROKEN)
def test_names_what_is_broken(builder: LogBuilder, words: str) -> None:
    found = sentences_about(builder, Invariant.I13)
    assert any(words in sentence for sentence in found), found
