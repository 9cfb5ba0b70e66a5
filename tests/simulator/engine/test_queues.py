"""Both queues against a plain sorted list: what is given out next, what is blocked, what the heads are."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from domain.identifiers import JobName, TenantId, WorkloadId
from domain.rank import Standing
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification, Workload, WorkloadSpecification
from global_scheduler.ordering.fewest_gpus import FewestGpus
from global_scheduler.service_history import ServiceHistory
from simulator.engine.columns import WorkloadColumns
from simulator.engine.one_workload import OneWorkload
from simulator.engine.queues import RankedQueue, ScannedQueue, WorkloadQueue
from simulator.engine.workloads import SimulatedWorkload

KINDS = 4


class SortedQueue:
    """What a queue does, without any index: every question looks at all."""

    def __init__(self, key: Callable[[SimulatedWorkload], tuple[float, ...]]) -> None:
        self._key = key
        self._waiting: list[SimulatedWorkload] = []
        self._given_out: set[int] = set()
        self._blocked: set[int] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, work: SimulatedWorkload, now: float) -> None:
        self._waiting.append(work)
        self._given_out.discard(work.index)

    def remove(self, work: SimulatedWorkload) -> None:
        self._waiting.remove(work)

    def begin_pass(self) -> None:
        self._given_out.clear()
        self._blocked.clear()

    def next(self) -> SimulatedWorkload | None:
        work = next((w for w in self._open() if w.index not in self._given_out), None)
        if work is not None:
            self._given_out.add(work.index)
        return work

    def block(self, kind: int) -> None:
        self._blocked.add(kind)

    def block_kinds(self, finds_nothing: Callable[[SimulatedWorkload], bool], *, again: bool) -> int:
        for work in self.heads():
            if finds_nothing(work):
                self._blocked.add(work.kind)
        return 0

    def heads(self) -> Sequence[SimulatedWorkload]:
        firsts: dict[int, SimulatedWorkload] = {}
        for work in self._open():
            if work.index not in self._given_out:
                firsts.setdefault(work.kind, work)
        return list(firsts.values())

    def in_order(self) -> Iterator[SimulatedWorkload]:
        return iter(sorted(self._waiting, key=self._key))

    def _open(self) -> list[SimulatedWorkload]:
        return [work for work in self.in_order() if work.kind not in self._blocked]


def workload(index: int, kind: int, gpus: int, level: int) -> SimulatedWorkload:
    job = JobSpecification(JobName("train"), 1, TaskResources(gpus=1), Emulated(60.0))
    specification = WorkloadSpecification("train", TenantId("research"), (job,))
    return SimulatedWorkload(
        index=index,
        workload=Workload(WorkloadId(f"w-{index:03}"), specification, float(index // 2)),
        tenant=0,
        base_gpus=gpus,
        submitted_s=float(index // 2),
        work_s=60.0,
        checkpoint_interval_s=0.0,
        kind=kind,
        eligible=(0,),
        standing=Standing(0, level),
    )


WORKLOADS = st.lists(
    st.tuples(st.integers(0, KINDS - 1), st.integers(0, 8), st.integers(0, 2)), min_size=1, max_size=12
).map(lambda facts: [workload(index, *fact) for index, fact in enumerate(facts)])
STEPS = st.lists(
    st.one_of(
        st.just(("begin", 0)),
        st.just(("next", 0)),
        st.tuples(st.just("start next"), st.just(0)),
        st.tuples(st.just("start head"), st.integers(0, KINDS)),
        st.tuples(st.just("block"), st.integers(0, KINDS - 1)),
        st.tuples(st.just("block kinds"), st.integers(0, 2**KINDS - 1)),
        st.tuples(st.just("block kinds again"), st.integers(0, 2**KINDS - 1)),
        st.tuples(st.just("add"), st.integers(0, 11)),
    ),
    max_size=40,
)


def by_size(work: SimulatedWorkload) -> tuple[float, ...]:
    return (work.standing.level, work.gpus, work.submitted_s, work.index)


@given(WORKLOADS, STEPS)
def test_a_queue_that_is_ranked_once_never_differs_from_a_sorted_list(
    works: list[SimulatedWorkload], steps: list[tuple[str, int]]
) -> None:
    queue, model = RankedQueue(OneWorkload(FewestGpus(), None, ServiceHistory(), scans=False)), SortedQueue(by_size)
    for work in works:
        queue.add(work, 0.0)
        model.add(work, 0.0)
    _same_course(queue, model, steps, may_add=True)


@given(WORKLOADS, STEPS)
def test_a_queue_that_is_ranked_by_passes_never_differs_from_a_sorted_list(
    works: list[SimulatedWorkload], steps: list[tuple[str, int]]
) -> None:
    columns = WorkloadColumns([work.workload.workload for work in works], {})
    queue, model = ScannedQueue(columns, works), SortedQueue(lambda work: (order.index(work.index),))
    for work in works:
        columns.submit(work)
        queue.add(work, 0.0)
        model.add(work, 0.0)
    order = np.lexsort(([work.index for work in works], [-work.gpus for work in works])).tolist()
    queue.rank(np.array(order, np.int64))
    # What comes in during a pass waits for the next pass.
    _same_course(queue, model, steps, may_add=False)


def _same_course(queue: WorkloadQueue, model: SortedQueue, steps: list[tuple[str, int]], *, may_add: bool) -> None:
    started: dict[int, SimulatedWorkload] = {}
    blocked: set[int] = set()

    def start(work: SimulatedWorkload | None) -> None:
        if work is not None:
            queue.remove(work)
            model.remove(work)
            started[work.index] = work

    queue.begin_pass()
    model.begin_pass()
    for step, number in steps:
        if step == "begin":
            queue.begin_pass()
            model.begin_pass()
        elif step in ("next", "start next"):
            given_out = queue.next()
            assert given_out is model.next()
            if step == "start next":
                start(given_out)
        elif step == "start head" and may_add:
            heads = model.heads()
            assert list(queue.heads()) == list(heads)
            start(heads[number] if number < len(heads) else None)
        elif step == "block":
            queue.block(workload(0, number, 0, 0))
            model.block(number)
        elif step in ("block kinds", "block kinds again"):
            again = step == "block kinds again"
            # What found nothing the last time finds nothing again; of the others, any may.
            blocked = {kind for kind in range(KINDS) if number >> kind & 1} | (blocked if again else set())
            queue.block_kinds(partial(_is_one_of, blocked), again=again)
            model.block_kinds(partial(_is_one_of, blocked), again=again)
        elif step == "add" and may_add and number in started:
            work = started.pop(number)
            queue.add(work, 0.0)
            model.add(work, 0.0)
        assert len(queue) == len(model)
        assert list(queue.in_order()) == list(model.in_order())


def test_what_found_nothing_is_not_asked_about_again_until_some_of_it_comes_or_goes() -> None:
    works = [workload(index, kind, 1, 0) for index, kind in enumerate((0, 0, 1, 2))]
    queue = RankedQueue(OneWorkload(FewestGpus(), None, ServiceHistory(), scans=False))
    for work in works[1:]:
        queue.add(work, 0.0)
    assert _asked(queue, again=False) == [1, 2, 3]
    assert _asked(queue, again=True) == []
    queue.add(works[0], 0.0)
    assert _asked(queue, again=True) == [0]
    queue.remove(works[2])
    queue.remove(works[3])
    queue.add(works[3], 0.0)
    assert _asked(queue, again=True) == [3]
    assert _asked(queue, again=False) == [0, 3]
    assert queue.next() is None


def _asked(queue: RankedQueue, *, again: bool) -> list[int]:
    """Whom the queue asks about at the beginning of a pass; none of them finds anything."""
    asked: list[int] = []

    def finds_nothing(work: SimulatedWorkload) -> bool:
        asked.append(work.index)
        return True

    queue.begin_pass()
    queue.block_kinds(finds_nothing, again=again)
    assert len(queue.heads()) == 0
    return asked


def _is_one_of(kinds: set[int], work: SimulatedWorkload) -> bool:
    return work.kind in kinds
