"""I1, I2 and I3, broken on purpose: at least one log for every rule."""

from __future__ import annotations

import pytest

from simulator.validation.report import Invariant
from tests.simulator.log_builder import LogBuilder, job, task
from tests.simulator.stories import ON_E1, ON_E2, ON_W1, Broken, edited, fields, log, moved, preemption, sentences_about

MACHINES: Broken = {
    "a GPU held twice": (
        log()
        .submit("a")
        .submit("b")
        .run("a", ON_E1)
        .run("b", task("e1", [1, 2]))
        .wait(100)
        .complete("a")
        .complete("b"),
        "GPU 1 of machine e1 goes to attempt 1 of b while attempt 1 of a holds it",
    ),
    "a GPU held twice by one gang": (
        log().submit("a", job(2, 1)).run("a", task("e1", [0]), task("e1", [0], 1)).wait(100).complete("a"),
        "GPU 0 of machine e1 goes to attempt 1 of a while attempt 1 of a holds it",
    ),
    "a GPU that is not there": (
        log().submit("a").run("a", task("e1", [3, 4])).wait(100).complete("a"),
        "is placed on GPUs [3, 4] of machine e1, which has 4 GPUs",
    ),
    "too many CPUs": (
        log()
        .submit("a", job(1, 1))
        .submit("b", job(1, 1))
        .run("a", task("e1", [0], cpus=20))
        .run("b", task("e1", [1], cpus=12.5))
        .wait(100)
        .complete("a")
        .complete("b"),
        "machine e1 has 32 CPUs, but with 12.5 more for attempt 1 of b 32.5 are held",
    ),
    "too much memory": (
        log().submit("a").run("a", task("e1", [0, 1], memory_gib=256.5)).wait(100).complete("a"),
        "machine e1 has 256 GiB of memory, but with 256.5 more for attempt 1 of a 256.5 are held",
    ),
    "too many CPUs after tuning": (
        log()
        .submit("a")
        .run("a", ON_E1)
        .add("tuned", workload="a", attempt=1, placement=[task("e1", [0, 1], cpus=33)])
        .wait(100)
        .complete("a"),
        "machine e1 has 32 CPUs, but with 33 more",
    ),
    "a machine that is not there": (
        log().submit("a").run("a", task("e9", [0, 1])).wait(100).complete("a"),
        "task 0 of job main is placed on machine e9, which is not in the fleet",
    ),
    "a machine of another cluster": (
        log().submit("a").run("a", {**ON_E1, "cluster": "east-b"}).wait(100).complete("a"),
        "on machine e1 as in cluster east-b of region east, but that machine is in cluster east-a of region east",
    ),
    "a machine of another region": (
        log().submit("a").run("a", ON_W1).wait(100).complete("a"),
        "on machine w1 as in cluster west-a of region east, but that machine is in cluster west-a of region west",
    ),
    "a start on a machine that is down": (
        log().submit("a").machine("machine_down", "e1").run("a", ON_E1).wait(100).complete("a"),
        "attempt 1 of a is put on machine e1, which is down",
    ),
    "a machine that is lent twice": (
        log().machine("loaned", "e1").machine("loaned", "e1").submit("a").run("a", ON_E1).wait(100).complete("a"),
        "machine e1 is on_loan: it cannot be lent (it can be: asked_back, failed)",
    ),
    "a machine that is drained while it serves inference": (
        log()
        .machine("reclaimed", "e1")
        .machine("machine_draining", "e1")
        .machine("loaned", "e1")
        .submit("a")
        .run("a", ON_E1)
        .wait(100)
        .complete("a"),
        "machine e1 is serving: it cannot be drained (it can be: lent, failed)",
    ),
    "a machine that moves without having been drained": (
        log().move_machine("e1", "east-b").submit("a").run("a", ON_E2).wait(100).complete("a"),
        "machine e1 moves while it is up: it has to be drained before",
    ),
    "a machine that moves with work on it": (
        log()
        .submit("a")
        .run("a", ON_E1)
        .machine("machine_draining", "e1")
        .move_machine("e1", "east-b")
        .wait(100)
        .complete("a"),
        "machine e1 moves while attempt 1 of a is on it",
    ),
    "a start on a machine where it was before it moved": (
        log()
        .machine("machine_draining", "e1")
        .move_machine("e1", "east-b")
        .submit("a")
        .run("a", ON_E1)
        .wait(100)
        .complete("a"),
        "is placed on machine e1 as in cluster east-a of region east, but that machine is in cluster east-b of region east",
    ),
    "a start on a machine that serves inference": (
        log()
        .machine("loaned", "e1")
        .submit("a")
        .machine("reclaimed", "e1")
        .machine("machine_up", "e1")
        .run("a", ON_E1)
        .wait(100)
        .complete("a"),
        "attempt 1 of a is put on machine e1, which serves inference and is not on loan",
    ),
    "a machine that goes back with work on it": (
        log().submit("a").run("a", ON_E1).machine("reclaimed", "e1").wait(100).complete("a"),
        "machine e1 goes back to inference while attempt 1 of a runs on it",
    ),
    "a start where a lost attempt has not ended": (
        log()
        .submit("a", job(1, 1))
        .submit("b", job(1, 1))
        .run("a", task("e1", [0]))
        .machine("machine_down", "e1")
        .machine("machine_up", "e1")
        .run("b", task("e1", [1]))
        .wait(100)
        .evict("a", "machine_lost")
        .cancel("a")
        .complete("b"),
        "which was lost with attempt 1 of a on it, and that has not ended since",
    ),
    "the newcomer does not wait for the victim": (
        moved(preemption(), 8, 7),
        "GPU 0 of machine e1 goes to attempt 1 of top while attempt 1 of low holds it",
    ),
    "an unknown machine": (
        edited(log().submit("a").machine("machine_down", "e1").cancel("a"), "machine_down", fields(machine="e9")),
        "machine_down names machine e9, which is not in the fleet",
    ),
}


def test_a_machine_that_is_lent_again_takes_work() -> None:
    story = log().submit("a").machine("reclaimed", "e1").wait(5).machine("loaned", "e1").run("a", ON_E1)
    story = story.wait(50).evict("a", "reclaimed").machine("reclaimed", "e1").wait(50).machine("loaned", "e1")
    report = story.run("a", ON_E1, attempt=2).wait(100).complete("a", attempt=2).validate()
    assert report.valid, str(report)


@pytest.mark.parametrize(("builder", "words"), MACHINES.values(), ids=MACHINES)
def test_names_what_is_broken_in_machines(builder: LogBuilder, words: str) -> None:
    found = sentences_about(builder, Invariant.I1)
    assert any(words in sentence for sentence in found), found


GANGS: Broken = {
    "a base task is missing": (
        log().submit("a", job(3, 1)).run("a", task("e1", [0]), task("e1", [1], 2)).wait(100).complete("a"),
        "the gang is torn: job main has 3 base tasks, but the placement lacks 1 of them (the first is task 1)",
    ),
    "a base task is missing at the start only": (
        edited(
            log().submit("a", job(2, 1)).run("a", task("e1", [0]), task("e1", [1], 1)).wait(100).complete("a"),
            "started",
            fields(placement=[task("e1", [0])]),
        ),
        "the gang is torn",
    ),
    "base tasks in two clusters": (
        log()
        .submit("a", {**job(2, 0), "cpus": 4, "memory_gib": 16})
        .run("a", task("e1", [], cpus=4), task("c1", [], 1, cpus=4))
        .wait(100)
        .complete("a"),
        "the base tasks of job main are in clusters east-a, east-b, but it did not ask for across_clusters",
    ),
    "a job is missing": (
        log().submit("a", job(), job(name="other")).run("a", ON_E1).wait(100).complete("a"),
        "job other has 1 base tasks, but the placement lacks 1 of them",
    ),
    "nothing is placed": (
        log().submit("a").run("a").wait(100).complete("a"),
        "the gang is torn",
    ),
    "a base task is resized away": (
        log()
        .submit("a", job(2, 1, max_tasks=4))
        .run("a", task("e1", [0]), task("e1", [1], 1))
        .add("resized", workload="a", attempt=1, placement=[task("e1", [0]), task("e1", [1], 2)])
        .wait(100)
        .complete("a"),
        "the first is task 1",
    ),
    "more tasks than the job may have": (
        log()
        .submit("a", job(1, 1, max_tasks=2))
        .run("a", task("e1", [0]))
        .add("resized", workload="a", attempt=1, placement=[task("e1", [n], n) for n in range(3)])
        .wait(100)
        .complete("a"),
        "job main may have at most 2 tasks (0 to 1), but the placement has 3, the last of which is task 2",
    ),
    "a task twice": (
        log().submit("a", job(2, 1)).run("a", *(task("e1", [n], n // 2) for n in range(3))).wait(100).complete("a"),
        "the placement has task 0 of job main twice",
    ),
    "a job that was not submitted": (
        log().submit("a").run("a", ON_E1, task("e2", [0], name="spy")).wait(100).complete("a"),
        "the placement has job spy, which the workload does not have",
    ),
    "fewer GPUs than asked for": (
        log().submit("a").run("a", task("e1", [0])).wait(100).complete("a"),
        "task 0 of job main asked for 2 GPUs, but got 1",
    ),
    "GPUs of another model": (
        log().submit("a", job(gpu_model="V100")).run("a", ON_E1).wait(100).complete("a"),
        "asked for GPUs of model V100, but machine e1 has A100",
    ),
    "fewer CPUs than asked for": (
        log().submit("a", job(cpus=8)).run("a", task("e1", [0, 1], cpus=7.5)).wait(100).complete("a"),
        "asked for 8 CPUs, but got 7.5",
    ),
    "less memory than asked for": (
        log().submit("a", job(memory_gib=32)).run("a", ON_E1).wait(100).complete("a"),
        "asked for 32 GiB of memory, but got 16",
    ),
}


@pytest.mark.parametrize(("builder", "words"), GANGS.values(), ids=GANGS)
def test_names_what_is_broken_in_gangs(builder: LogBuilder, words: str) -> None:
    found = sentences_about(builder, Invariant.I2)
    assert any(words in sentence for sentence in found), found


REGIONS: Broken = {
    "a region without the table": (
        log().submit("a", tables={"clicks": False}).run("a", ON_W1, region="west").wait(100).complete("a"),
        "is dispatched to region west, which does not hold its input table clicks (east did)",
    ),
    "a replica where the table must be fresh": (
        log().submit("a", tables={"images": True}).run("a", ON_E1).wait(100).complete("a"),
        "needs table images fresh, as only its home region west has it",
    ),
    "a table that is not there": (
        log().submit("a", tables={"ghost": False}).run("a", ON_E1).wait(100).complete("a"),
        "is dispatched although its input table ghost is not in the fleet",
    ),
    "a region that was not allowed": (
        log().submit("a", regions=["west"]).run("a", ON_E1).wait(100).complete("a"),
        "is dispatched to region east, but it may run in west only",
    ),
    "a region that is not there": (
        log().submit("a").run("a", ON_E1, region="mars").wait(100).complete("a"),
        "is dispatched to region mars, which is not in the fleet",
    ),
}


@pytest.mark.parametrize(("builder", "words"), REGIONS.values(), ids=REGIONS)
def test_names_what_is_broken_in_regions(builder: LogBuilder, words: str) -> None:
    found = sentences_about(builder, Invariant.I3)
    assert any(words in sentence for sentence in found), found
