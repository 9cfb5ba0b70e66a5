"""Whatever happens to emulated attempts, in whatever order: the fence holds, and no progress is invented."""

from dataclasses import dataclass, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from domain.identifiers import MachineId
from domain.placement import AttemptKey
from domain.workload import Emulated
from services.execution.attempt_register import AttemptRegister
from services.execution.emulation import Emulation
from services.execution.executor import ENDED_PHASES, AttemptOrder, AttemptPhase, AttemptStatus, StaleOrder
from tests.examples import examples
from tests.execution.orders import job, key, order, placement

WORKLOADS = ("a", "b")
FASTEST = 2.0
SLACK = 1e-6

LIVE_ORDER = {AttemptPhase.HELD: 0, AttemptPhase.RUNNING: 1, AttemptPhase.STOPPING: 2}


@dataclass
class PublishedEnd:
    """What the watcher of the statuses knows of one attempt."""

    order: AttemptOrder
    last: AttemptStatus | None = None
    ends: int = 0

    @property
    def start(self) -> float:
        """The progress that it can at most start from: restored, but not more than there is to do."""
        (work,) = (job.entry_point for job in self.order.specification.jobs)
        assert isinstance(work, Emulated)
        return min(self.order.progress, work.duration_s)


class EmulationMachine(RuleBasedStateMachine):
    """A regional scheduler that makes every mistake there is, and a reader that records what is published."""

    @initialize(checkpoint_time_s=st.sampled_from([0.0, 3.0]))
    def begin(self, checkpoint_time_s: float) -> None:
        self.now = 1000.0
        self.checkpoint_time_s = checkpoint_time_s
        self.register = AttemptRegister()
        self.emulation = Emulation(self.register, checkpoint_time_s)
        self.published: dict[AttemptKey, PublishedEnd] = {}
        self.newest = dict.fromkeys(WORKLOADS, 0)
        self.over_for_good: set[AttemptKey] = set()

    def hear(self, changed: list[AttemptStatus]) -> None:
        for status in changed:
            published = self.published.get(status.key)
            if published is None:
                assert status.phase is AttemptPhase.STOPPED, "nothing is told of attempts that were never ordered"
                continue
            self.check_transition(published, status)
            published.last = status
            published.ends += status.phase in ENDED_PHASES
            assert published.ends <= 1, f"{status.key} ended twice"

    def check_transition(self, published: PublishedEnd, status: AttemptStatus) -> None:
        before = published.last
        assert status.checkpoint_progress <= status.progress + SLACK
        if not status.reason.startswith("it was not running"):
            assert status.checkpoint_progress >= published.start - SLACK, "what was saved before is gone"
        ran_s = max(0.0, self.now - status.started_s) if status.started_s > 0 or status.phase in LIVE_ORDER else 0.0
        assert status.progress <= published.start + ran_s * FASTEST + SLACK, "progress was invented"
        if before is not None:
            assert before.phase not in ENDED_PHASES, f"{status.key} went on after its end"
            assert status.progress >= before.progress - SLACK
            assert status.checkpoint_progress >= before.checkpoint_progress - SLACK
            if status.phase in LIVE_ORDER:
                assert LIVE_ORDER[status.phase] >= LIVE_ORDER[before.phase], "phases go one way"

    @rule(
        workload=st.sampled_from(WORKLOADS),
        back=st.integers(-1, 2),
        duration_s=st.sampled_from([0.0, 5.0, 40.0]),
        interval_s=st.sampled_from([0.0, 7.0]),
        progress=st.sampled_from([0.0, 3.0, 40.0]),
        hold=st.booleans(),
        machine=st.sampled_from(["m0", "m1"]),
    )
    def execute(
        self,
        workload: str,
        back: int,
        duration_s: float,
        interval_s: float,
        progress: float,
        hold: bool,
        machine: str,
    ) -> None:
        number = max(1, self.newest[workload] - back)
        made = order(
            job(Emulated(duration_s, interval_s), tasks=1, max_tasks=2),
            workload=workload,
            attempt=number,
            placements=(placement(machine=machine),),
            hold=hold,
            progress=progress,
        )
        if made.key in self.over_for_good:
            return
        published = self.published.setdefault(made.key, PublishedEnd(made))
        try:
            self.hear(self.emulation.execute(replace(published.order, hold=hold), self.now))
        except StaleOrder:
            forgotten = published.ends == 1
            assert number < self.newest[workload] or forgotten or published.last is None
        self.newest[workload] = max(self.newest[workload], number)

    @rule(workload=st.sampled_from(WORKLOADS), back=st.integers(-1, 1), grace_s=st.sampled_from([0.0, 2.0, 10.0]))
    def stop(self, workload: str, back: int, grace_s: float) -> None:
        number = max(1, self.newest[workload] - back)
        if key(workload, number) not in self.over_for_good:
            self.newest[workload] = max(self.newest[workload], number)
            self.hear(self.emulation.stop(key(workload, number), grace_s, self.now))

    @rule(elapsed_s=st.sampled_from([0.0, 0.5, 4.0, 60.0]))
    def wait(self, elapsed_s: float) -> None:
        self.now += elapsed_s
        self.hear(self.emulation.advance(self.now))

    @rule(workload=st.sampled_from(WORKLOADS), tasks=st.integers(1, 2))
    def resize(self, workload: str, tasks: int) -> None:
        wanted = key(workload, self.newest[workload])
        if self.emulation.knows(wanted) and wanted in self.published and self.published[wanted].last is not None:
            machine = self.published[wanted].order.placements[0].machine
            placements = tuple(placement(task=task, machine=machine) for task in range(tasks))
            live = [status for status in self.emulation.statuses(self.now) if status.key == wanted]
            if live and live[0].phase in LIVE_ORDER:
                self.hear(self.emulation.resize(wanted, placements, live[0].revision + 1, float(tasks), self.now))

    @rule(machine=st.sampled_from(["m0", "m1"]), up=st.booleans())
    def change_machine(self, machine: str, up: bool) -> None:
        self.hear(self.emulation.set_machine(MachineId(machine), up, "test", self.now))

    @rule()
    def forget_what_ended(self) -> None:
        self.emulation.forget([status.key for status in self.emulation.statuses(self.now)])

    @precondition(
        lambda self: any(published.last is not None and published.ends == 0 for published in self.published.values())
    )
    @rule()
    def restart(self) -> None:
        """The cluster manager is killed; what it had told as running is ordered again.

        It remembers nothing: from now on it relies on its region not to ask for what is recorded as over.
        """
        self.hear(self.emulation.advance(self.now))
        live = {key for key, published in self.published.items() if published.last is not None and not published.ends}
        seen = {key(name, number) for name in WORKLOADS for number in range(1, self.newest[name] + 1)}
        self.over_for_good |= seen - live
        self.register = AttemptRegister()
        self.emulation = Emulation(self.register, self.checkpoint_time_s)
        for published in self.published.values():
            if published.last is None or published.ends:
                continue
            # A resize is not in the order any more, nor is a stop: both are given again by their sender.
            last, published.last = published.last, None
            started_s = last.started_s if last.phase is not AttemptPhase.HELD else 0.0
            held = last.phase is AttemptPhase.HELD
            self.hear(self.emulation.execute(replace(published.order, hold=held, started_s=started_s), self.now))

    @invariant()
    def never_two_attempts_of_a_workload_live(self) -> None:
        if not hasattr(self, "emulation"):
            return
        live = [status for status in self.emulation.statuses(self.now) if status.phase not in ENDED_PHASES]
        workloads = [status.key.workload for status in live]
        assert len(workloads) == len(set(workloads)), f"two attempts of one workload: {live}"
        for status in live:
            assert status.key.attempt >= self.newest[status.key.workload] or self.was_refused(status.key)

    def was_refused(self, older: AttemptKey) -> bool:
        """The newer number was only mentioned by a stop or a refused order, and did not get in."""
        newer = [
            published
            for key, published in self.published.items()
            if key.workload == older.workload and key.attempt > older.attempt
        ]
        return all(published.last is None for published in newer)


TestNeverTwoAttemptsAndProgressNeverInvented = EmulationMachine.TestCase
TestNeverTwoAttemptsAndProgressNeverInvented.settings = settings(max_examples=examples(150), stateful_step_count=40)
