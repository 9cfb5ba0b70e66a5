"""The tail of the queue: behind thousands that wait for a busy model, one for an idle model starts within seconds (decision 062).

The walk takes rounds of a tenth of a second, and a scan pass ranks the queue anew every half second, as in a busy service.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.fleet import Fleet
from domain.identifiers import ANY_GPU_MODEL, GpuModel, TenantId, WorkloadId
from domain.resources import Quota
from domain.tenant import LOWEST_PRIORITY, Tenant
from formats.trace import TraceRow
from regional_scheduler.auction import RoundOutcome, Won
from regional_scheduler.queue_walk import QueueWalk, WalkStep
from simulator.engine import auction_rounds, scheduling
from simulator.engine.auction_rounds import AuctionRounds
from simulator.engine.settings import AuctionRoundSettings
from simulator.policies.registry import policy_called
from tests.examples import examples
from tests.simulator.engine.checked_run import NO_COSTS, UNLIMITED, CheckedRun, checked_run, machine, region

BUSY, IDLE = GpuModel("H100"), GpuModel("A100")
FOR_GOOD_S = 1e6
PENDING, SHAPES = 3_000, 200
MANY, LAST = TenantId("many"), TenantId("last")
BETWEEN_SUBMISSIONS_S = 0.5
BOUND_S = 5.0
"""From submission to start, for a workload that has room: the bound of the service (design §7)."""
PROBES_S = (1.25, 20.25, 27.75)
"""When workloads for the idle model are submitted."""
END_S = 60.0

TENANTS = (
    Tenant(LAST, LOWEST_PRIORITY, Quota.of({})),
    Tenant(MANY, 1, Quota.of({ANY_GPU_MODEL: UNLIMITED})),
)


def fleet() -> Fleet:
    """64 GPUs of the busy model in two regions, 8 of the idle one."""
    busy = [[machine(f"{name}{number}", 8, BUSY) for number in range(4)] for name in ("e", "w")]
    return Fleet((region("east", busy[0]), region("west", busy[1], [machine("idle", 8, IDLE)])))


def asks(name: str, at_s: float, shape: int, duration_s: float = FOR_GOOD_S) -> TraceRow:
    """One for the busy model, of one of many shapes: so many GPUs, and CPUs of its own."""
    gpus, cpus, memory_gib = 1 + shape % 8, 1 + shape // 8 % 12, 1 + shape // 96
    return TraceRow(
        WorkloadId(name),
        MANY,
        at_s,
        duration_s,
        gpus,
        gpu_model=BUSY,
        cpus=float(cpus * gpus),
        memory_gib=float(memory_gib * gpus),
    )


def probe(name: str, at_s: float) -> TraceRow:
    """One for the idle model, behind all others in the queue."""
    return TraceRow(WorkloadId(name), LAST, at_s, 1.0, 1, gpu_model=IDLE)


def holders(first_lasts_s: float = FOR_GOOD_S) -> list[TraceRow]:
    """They have all GPUs of the busy model."""
    return [asks(f"holder-{number}", 0.0, 7, FOR_GOOD_S if number else first_lasts_s) for number in range(8)]


def busy_queue(last_s: float = FOR_GOOD_S) -> list[TraceRow]:
    """Thousands that wait for the busy model, one more every half second; and the probes.

    One machine is for those of them, which last so long: then there is room for every kind, again and again.
    """
    backlog = [asks(f"pending-{number:04}", 1.0, number % SHAPES, last_s) for number in range(PENDING)]
    further = [
        asks(f"further-{number:03}", 2.0 + BETWEEN_SUBMISSIONS_S * number, number % SHAPES, last_s)
        for number in range(int((END_S - 2.0) / BETWEEN_SUBMISSIONS_S))
    ]
    return [
        *holders(last_s),
        *backlog,
        *further,
        *(probe(f"probe-{number}", at_s) for number, at_s in enumerate(PROBES_S)),
    ]


def in_rounds(rows: Sequence[TraceRow], window: int, round_latency_s: float, **changed: float) -> CheckedRun:
    """A pass after every change of the queue, unless it is said otherwise."""
    rounds = AuctionRoundSettings(window=window, round_latency_s=round_latency_s)
    update = {"scan_period_s": 0.0, "auction_rounds": rounds, "stop_after_s": END_S, **changed}
    return checked_run(
        policy_called("mast"), rows, fleet(), TENANTS, NO_COSTS.model_copy(update=update), check_every_events=0
    )


def starts_of_probes(run: CheckedRun) -> list[str]:
    """When each worked, and how long it had waited."""
    starts = run.starts()
    told = []
    for number, at_s in enumerate(PROBES_S):
        start_s = starts[f"probe-{number}"]
        waited = "never started" if math.isnan(start_s) else f"started at {start_s:.2f}, after {start_s - at_s:.2f} s"
        told.append(f"probe-{number} submitted at {at_s:.2f} {waited}")
    return told


def longest_wait_s(run: CheckedRun) -> float:
    """Of the probes."""
    starts = run.starts()
    return max(starts[f"probe-{number}"] - at_s for number, at_s in enumerate(PROBES_S))


NEVER = [f"probe-{number} submitted at {at_s:.2f} never started" for number, at_s in enumerate(PROBES_S)]


def test_one_for_an_idle_model_starts_in_time() -> None:
    """Kinds that found nothing are passed over, so that the tail is one round away once a walk has asked each of them.

    The backlog comes at 1.0. Three rounds ask the first 192; that of 1.3 begins at the head again, because of the pass at 1.25,
    and asks what is left: eight kinds, eight times each. That of 1.4 asks the first probe. The others find all kinds asked.
    """
    run = in_rounds(busy_queue(), window=64, round_latency_s=0.1)
    assert starts_of_probes(run) == [
        "probe-0 submitted at 1.25 started at 1.50, after 0.25 s",
        "probe-1 submitted at 20.25 started at 20.35, after 0.10 s",
        "probe-2 submitted at 27.75 started at 27.85, after 0.10 s",
    ]
    assert longest_wait_s(run) <= BOUND_S


class WithoutKinds(AuctionRounds):
    """As auctions once were: nothing is known of kinds, and each pass begins at the head with all of them."""

    def _store_refusals(self, outcome: RoundOutcome) -> None:
        for verdict in outcome.verdicts:
            if not isinstance(verdict, Won):
                work = self._world.by_name[verdict.lot.workload.workload]
                self._passed_over.asked_in_walk[work.index] = self._walk.number


def restarting(walk: QueueWalk, newest_scan_pass: int, *, has_room: bool) -> WalkStep | None:
    """Every scan pass takes the walk back to the head, and all are asked again."""
    if has_room or walk.scan_pass != newest_scan_pass:
        return WalkStep(QueueWalk(walk.number + 1, newest_scan_pass, ended=False, at_head=True), begins=True)
    if walk.ended:
        return None
    return WalkStep(QueueWalk(walk.number, newest_scan_pass, ended=False, at_head=False), begins=False)


def test_it_never_starts_where_each_pass_begins_at_the_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """A walk past 3,000 takes 47 rounds, 4.7 s, and a pass comes every half second."""
    monkeypatch.setattr(scheduling, "AuctionRounds", WithoutKinds)
    monkeypatch.setattr(auction_rounds, "next_step", restarting)
    assert starts_of_probes(in_rounds(busy_queue(), window=64, round_latency_s=0.1)) == NEVER


def with_releases() -> CheckedRun:
    """Rounds of a quarter of a second; those that run end after a third, and there is room for all 200 kinds again."""
    return in_rounds(busy_queue(0.35), window=64, round_latency_s=0.25)


def test_one_for_an_idle_model_starts_although_room_for_all_others_comes_free_all_the_time() -> None:
    """Of two rounds one goes on, and asks kinds that this walk has not asked yet."""
    run = with_releases()
    assert starts_of_probes(run) == [
        "probe-0 submitted at 1.25 started at 2.50, after 1.25 s",
        "probe-1 submitted at 20.25 started at 20.75, after 0.50 s",
        "probe-2 submitted at 27.75 started at 28.25, after 0.50 s",
    ]
    assert longest_wait_s(run) <= BOUND_S


def test_it_never_starts_where_a_walk_asks_again_before_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kinds for which there is room again are all that such a walk asks."""
    monkeypatch.setattr(WalkStep, "asks_again", property(lambda _step: True))
    assert starts_of_probes(with_releases()) == NEVER


@settings(max_examples=examples(40))
@given(data=st.data())
def test_never_a_longer_wait_than_a_walk_past_all_kinds(data: st.DataObject) -> None:
    """Whatever is submitted and released when: a round decides one at least; every second one goes on, and such rounds ask a
    kind that finds nothing once."""
    kinds = data.draw(st.integers(1, 12), label="kinds")
    window, latency_s = data.draw(st.sampled_from((1, 2, 5, 64))), data.draw(st.sampled_from((0.05, 0.4, 1.0)))
    period_s = data.draw(st.sampled_from((0.0, 1.0)))
    times = data.draw(st.lists(st.floats(1.0, 30.0), min_size=kinds, max_size=60), label="submitted")
    lasts_s = data.draw(st.sampled_from((FOR_GOOD_S, 0.3, 1.0, 4.0)), label="lasts")
    waiting = [asks(f"pending-{number:02}", at_s, number % kinds, lasts_s) for number, at_s in enumerate(times)]
    probed_s = data.draw(st.floats(1.0, 30.0), label="probed")
    run = in_rounds(
        [*holders(lasts_s), *waiting, probe("probe", probed_s)],
        window,
        latency_s,
        scan_period_s=period_s,
        stop_after_s=0.0,
    )
    started_s = run.starts()["probe"]
    dispatched_s = run.record.attempts.dispatched_s
    meanwhile = int(((dispatched_s >= probed_s) & (dispatched_s <= started_s)).sum())
    # Half of the rounds go back to the head; the others have each kind once, whoever starts, and the probe.
    most_rounds = 2 * (kinds + meanwhile) + 4
    assert started_s - probed_s <= period_s + most_rounds * latency_s + 1e-6
