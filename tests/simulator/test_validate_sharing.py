"""I4 and I5, broken on purpose: at least one log for every rule."""

from __future__ import annotations

import pytest

from simulator.validation.report import Invariant
from tests.simulator.log_builder import LogBuilder, job, task
from tests.simulator.stories import ON_E1, ON_E2, ON_W1, Broken, edited, fields, log, preemption, sentences_about

QUOTAS: Broken = {
    "too many GPUs of a model": (
        log()
        .submit("a", job(1, 3, gpu_model="A100"), tenant="ads")
        .submit("b", job(1, 2, gpu_model="A100"), tenant="ads")
        .run("a", task("e1", [0, 1, 2]))
        .run("b", ON_E2)
        .wait(100)
        .complete("a")
        .complete("b"),
        "tenant ads has a quota of 4 GPUs in bucket A100, but with 2 more 5 are in use as within quota",
    ),
    "too many GPUs of any model": (
        log()
        .submit("a", job(1, 1, gpu_model="V100"), tenant="ads")
        .submit("b", job(1, 2), tenant="ads")
        .run("a", task("w1", [0]), region="west")
        .run("b", ON_E2)
        .wait(100)
        .complete("a")
        .complete("b"),
        "tenant ads has a quota of 2 GPUs in bucket any, but with 2 more 3 are in use",
    ),
    "too many CPUs of a quota": (
        log()
        .submit("a", job(3, 0, cpus=6, memory_gib=1), tenant="ads")
        .run("a", *(task(m, [], n, cpus=6) for n, m in enumerate(("e1", "e2", "c1"))))
        .wait(100)
        .complete("a"),
        "tenant ads has a quota of 16 CPUs, but with 18 more 18 are in use as within quota",
    ),
    "quota counts from the dispatch": (
        log()
        .submit("a", job(1, 3, gpu_model="A100"), tenant="ads")
        .submit("b", job(1, 2, gpu_model="A100"), tenant="ads")
        .dispatch("a", task("e1", [0, 1, 2]))
        .dispatch("b", ON_E2)
        .cancel("a", attempt=1)
        .cancel("b", attempt=1),
        "tenant ads has a quota of 4 GPUs in bucket A100",
    ),
    "reclassified beyond the quota": (
        log()
        .submit("a", tenant="guests")
        .run("a", ON_E1, within_quota=False)
        .add("reclassified", workload="a", attempt=1, priority=5, level=0, within_quota=True)
        .wait(100)
        .complete("a"),
        "tenant guests has a quota of 0 GPUs in bucket any, but with 2 more 2 are in use as within quota",
    ),
    "started within a quota that was not there at the dispatch": (
        edited(
            log().submit("a", tenant="guests").run("a", ON_E1, within_quota=False).wait(100).complete("a"),
            "started",
            fields(within_quota=True, priority=5),
        ),
        "tenant guests has a quota of 0 GPUs in bucket any",
    ),
    "beyond quota with a good priority": (
        log().submit("a").dispatch("a", ON_E1, within_quota=False, priority=3).start("a").wait(100).complete("a"),
        "has priority 3 beyond its tenant's quota, where all have priority 6",
    ),
    "within quota with a foreign priority": (
        log().submit("a").dispatch("a", ON_E1, priority=0).start("a").wait(100).complete("a"),
        "has priority 0 within quota, but tenant vision has priority 3",
    ),
    "ranked better than its tenant": (
        log().submit("a").add("ranked", workload="a", priority=0, level=0, credit=1.0, within_quota=True).cancel("a"),
        "has priority 0 within quota, but tenant vision has priority 3",
    ),
    "a tenant that is not there": (
        log().submit("a", tenant="nobody").run("a", ON_E1).wait(100).complete("a"),
        "belongs to tenant nobody, which has no quota because it does not exist",
    ),
}


@pytest.mark.parametrize(("builder", "words"), QUOTAS.values(), ids=QUOTAS)
def test_names_what_is_broken_in_quotas(builder: LogBuilder, words: str) -> None:
    found = sentences_about(builder, Invariant.I4)
    assert any(words in sentence for sentence in found), found


def reclaimed(
    *,
    newcomer_in: str | None = "vision",
    victim_in: str | None = None,
    downgraded: bool = False,
    says: bool = True,
    evicting_says: bool = True,
) -> LogBuilder:
    """Cells of `top` that `low` uses opportunistically, or so it says: it leaves for a worse standing."""
    all_of_it, wide = task("e1", [0, 1, 2, 3]), job(1, 4, gpu_model="A100")
    builder = log().submit("low", wide, tenant="ads").submit("top", wide).run("low", all_of_it)
    if downgraded:
        builder.add("downgraded", workload="low", attempt=1, jobs=["main"])
    (
        builder.dispatch("top", all_of_it, evicts={"low": 1})
        .evict("low", "preempted", by=("top", 3, 0))
        .start("top")
        .wait(100)
        .complete("top")
        .cancel("low")
    )
    victims = [{"workload": "low", "attempt": 1, **({"own_cells": True} if says else {})}]
    of_newcomer = {} if newcomer_in is None else {"virtual_cluster": newcomer_in}
    edited(builder, "dispatched", fields(evicts=victims, **of_newcomer), workload="top")
    if victim_in is not None:
        edited(builder, "dispatched", fields(virtual_cluster=victim_in), workload="low")
    if evicting_says:
        edited(builder, "evicted", fields(own_cells=True))
    return builder


def test_owners_take_their_cells_back_whatever_the_standing() -> None:
    assert reclaimed().validate().valid
    assert reclaimed(victim_in="ads", downgraded=True).validate().valid


EVICTIONS: Broken = {
    "a victim of the same standing": (
        log()
        .submit("low")
        .submit("top")
        .run("low", ON_E1)
        .dispatch("top", ON_E1, evicts={"low": 1})
        .evict("low", "preempted", by=("top", 3, 0))
        .start("top")
        .wait(100)
        .complete("top")
        .cancel("low"),
        "attempt 1 of low at (priority, level) (3, 0) makes room for top at (3, 0), which is not strictly better",
    ),
    "a victim of a better priority": (
        log()
        .submit("low", tenant="ads")
        .submit("top")
        .run("low", ON_E1)
        .dispatch("top", ON_E1, evicts={"low": 1})
        .evict("low", "preempted", by=("top", 3, 0))
        .start("top")
        .wait(100)
        .complete("top")
        .cancel("low"),
        "attempt 1 of low at (priority, level) (1, 0) makes room for top at (3, 0)",
    ),
    "a victim that has become within quota": (
        log()
        .submit("low")
        .submit("top")
        .run("low", ON_E1, within_quota=False)
        .add("reclassified", workload="low", attempt=1, priority=3, level=0, within_quota=True)
        .dispatch("top", ON_E1, evicts={"low": 1})
        .evict("low", "preempted", by=("top", 3, 0))
        .start("top")
        .wait(100)
        .complete("top")
        .cancel("low"),
        "attempt 1 of low at (priority, level) (3, 0) makes room for top at (3, 0)",
    ),
    "the eviction boasts": (
        preemption(by_priority=0),
        "an eviction for top says that it is at (priority, level) (0, 0), but it was dispatched at (1, 0)",
    ),
    "cells of a newcomer that has none": (
        reclaimed(newcomer_in=None),
        "evicts attempt 1 of low from cells, but has none itself",
    ),
    "a victim in cells of its own": (
        reclaimed(victim_in="ads"),
        "attempt 1 of low is evicted from cells of top, but uses those of its own virtual cluster",
    ),
    "an eviction that alone says that it is from cells": (
        reclaimed(says=False),
        "an eviction for top says that it is from its cells, unlike its dispatch",
    ),
    "a dispatch that alone says that it evicts from cells": (
        reclaimed(evicting_says=False),
        "an eviction for top says that it is not from its cells, unlike its dispatch",
    ),
    "an eviction that the dispatch does not list": (
        edited(preemption(), "dispatched", fields(evicts=[]), workload="top"),
        "attempt 1 was evicted (line 7) for top, which was not dispatched",
    ),
    "an eviction for nobody": (
        log().submit("low").run("low", ON_E1).evict("low", "preempted", by=("ghost", 0, 0)).cancel("low"),
        "attempt 1 was evicted (line 4) for ghost, which was not dispatched",
    ),
    "an eviction of which the newcomer's dispatch says nothing": (
        log()
        .submit("low")
        .submit("top", tenant="ads")
        .run("low", ON_E1)
        .evict("low", "preempted", by=("top", 1, 0))
        .dispatch("top", ON_E1)
        .start("top")
        .wait(100)
        .complete("top")
        .cancel("low"),
        "is dispatched without a word of attempt 1 of low, which was evicted for it (line 5)",
    ),
    "a victim in another region": (
        log()
        .submit("low")
        .submit("top", tenant="ads")
        .run("low", ON_W1, region="west")
        .dispatch("top", ON_E1, evicts={"low": 1})
        .evict("low", "preempted", by=("top", 1, 0))
        .start("top")
        .wait(100)
        .complete("top")
        .cancel("low"),
        "is dispatched to region east, but evicts attempt 1 of low, which is in region west",
    ),
    "a victim that does not run": (
        log()
        .submit("low")
        .submit("top", tenant="ads")
        .dispatch("top", ON_E1, evicts={"low": 1})
        .start("top")
        .wait(100)
        .complete("top")
        .cancel("low"),
        "evicts attempt 1 of low, which is not live",
    ),
    "a loss without a lost machine": (
        log().submit("a").machine("machine_down", "e2").run("a", ON_E1).evict("a", "machine_lost").cancel("a"),
        "attempt 1 of a is evicted because a machine was lost, but none of its own was (e1)",
    ),
    "a drain without a draining machine": (
        log().submit("a").run("a", ON_E1).evicting("a", "drained").evict("a", "drained").cancel("a"),
        "attempt 1 of a is evicted because a machine was drained, but none of its own was (e1)",
    ),
}


@pytest.mark.parametrize(("builder", "words"), EVICTIONS.values(), ids=EVICTIONS)
def test_names_what_is_broken_in_evictions(builder: LogBuilder, words: str) -> None:
    found = sentences_about(builder, Invariant.I5)
    assert any(words in sentence for sentence in found), found
