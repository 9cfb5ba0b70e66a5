"""Columns that are kept up to date: live attempts stay in order from pass to pass, as if each pass had sorted them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from simulator.engine.columns import WorkloadColumns
from simulator.engine.workloads import SimulatedWorkload
from tests.simulator.engine.test_queues import workload

NAMES = ("f", "b", "h", "a", "g", "c", "e", "d")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("dispatch", "start", "end", "leave", "pass")),
        st.integers(0, len(NAMES) - 1),
        st.sampled_from((0.0, 0.0, 1.0)),
    ),
    max_size=60,
)


@given(STEPS)
def test_never_another_order_of_live_attempts_than_by_start_and_name(steps: list[tuple[str, int, float]]) -> None:
    columns = WorkloadColumns(NAMES, {"any": 0})
    works = [workload(index, 0, 1 + index % 3, 0) for index in range(len(NAMES))]
    for work in works:
        work.charges = {"any": work.gpus}
        columns.submit(work)
        columns.queue(work)
    since_s: dict[int, float] = {}
    leaving: set[int] = set()
    now = 0.0
    for what, index, passes_s in (*steps, ("pass", 0, 0.0)):
        now += passes_s
        work = works[index]
        match what:
            case "dispatch" if index not in since_s:
                work.attempts, work.dispatched_s, work.started_s = work.attempts + 1, now, float("nan")
                since_s[index] = now
                columns.dispatch(work)
            case "start" if index in since_s:
                work.started_s = since_s[index] = now
                columns.start(work)
            case "leave" if index in since_s:
                leaving.add(index)
                columns.leave(work)
            case "end" if index in since_s:
                del since_s[index]
                leaving.discard(index)
                columns.end(work)
            case "pass":
                _same_attempts(columns, works, since_s, leaving)
            case _:
                pass  # not of what it is at the moment


def _same_attempts(
    columns: WorkloadColumns, works: list[SimulatedWorkload], since_s: dict[int, float], leaving: set[int]
) -> None:
    running = columns.running_columns()
    order = sorted(since_s, key=lambda index: (since_s[index], NAMES[index]))
    assert list(running.workloads) == [NAMES[index] for index in order]
    assert running.started_s.tolist() == [since_s[index] for index in order]
    assert running.attempt.tolist() == [works[index].attempts for index in order]
    assert running.leaving.tolist() == [index in leaving for index in order]
    assert running.demand.amount.tolist() == [works[index].gpus for index in order]
