"""The lender: which machines it lends, which go back and when, in a world that is nothing but states and attempts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.fleet import MachineState
from domain.identifiers import AttemptNumber, ClusterId, JobName, MachineId, WorkloadId
from domain.machine_life_cycle import MachineHappening, next_machine_state
from domain.placement import AttemptKey
from domain.plan import Reclaim, ScaleIn, TaskName
from regional_scheduler.loaning import Lender, LoanAction, MachineChange
from regional_scheduler.reclaiming.fewest_evictions import FewestEvictions
from regional_scheduler.reclaiming.fewest_workloads import FewestWorkloadsFirst
from regional_scheduler.reclaiming.least_preemption_cost import LeastPreemptionCost
from regional_scheduler.reclaiming.policy import (
    AttemptOnMachine,
    BadReclaim,
    MachineOnLoan,
    ReclaimChoice,
    ReclaimingPolicy,
)
from regional_scheduler.reclaiming.random_machines import RandomMachines

SERVING, ON_LOAN, RETURNING = MachineState.SERVING, MachineState.ON_LOAN, MachineState.RETURNING


def _flexible_task(machine: MachineId) -> TaskName:
    """The flexible task of an attempt that is on this machine."""
    return TaskName(JobName("train"), int(machine[1:]) + 100)


def key(name: str) -> AttemptKey:
    return AttemptKey(WorkloadId(name), AttemptNumber(1))


@dataclass
class LoanWorld:
    """An inference cluster s of machines s0, s1, ..., and attempts on them. Carries out what the lender answers."""

    count: int
    policy: ReclaimingPolicy = field(default_factory=FewestWorkloadsFirst)
    states: dict[MachineId, MachineState] = field(default_factory=dict)
    attempts: dict[AttemptKey, tuple[MachineId, ...]] = field(default_factory=dict)
    """Where their base tasks are."""
    flexible: dict[AttemptKey, tuple[MachineId, ...]] = field(default_factory=dict)
    leaving: dict[AttemptKey, None] = field(default_factory=dict)
    scaling_in: dict[AttemptKey, tuple[MachineId, ...]] = field(default_factory=dict)
    """What was taken out of `flexible` and has yet to be given up."""
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.machines = tuple(MachineId(f"s{number}") for number in range(self.count))
        self.lender = Lender(ClusterId("s"), self.machines)

    def begin(self, count: int) -> LoanWorld:
        for change in self.lender.begin(count):
            self.states[change.machine] = change.state
        return self

    def occupancy(self, machines: Sequence[MachineId]) -> list[MachineOnLoan]:
        return [
            MachineOnLoan(
                machine,
                tuple(
                    AttemptOnMachine(
                        attempt,
                        1,
                        len(places),
                        (_flexible_task(machine),) if machine in self.flexible[attempt] else (),
                        machine in places,
                    )
                    for attempt, places in sorted(self.attempts.items())
                    if machine in (*places, *self.flexible[attempt]) and attempt not in self.leaving
                ),
                tuple(sorted(attempt for attempt in self.leaving if machine in self.attempts[attempt])),
            )
            for machine in machines
        ]

    def lend(self, count: int) -> None:
        self.carry_out(self.lender.lend(count, self.states.__getitem__, self.occupancy, self.policy, self.rng))

    def run(self, name: str, *machines: str) -> None:
        """An attempt is put on these machines."""
        assert all(self.states[MachineId(machine)].takes_work for machine in machines)
        self.attempts[key(name)] = tuple(MachineId(machine) for machine in machines)
        self.flexible[key(name)] = ()

    def grow(self, name: str, machine: str) -> None:
        """The attempt gets a flexible task there."""
        assert self.states[MachineId(machine)].takes_work
        self.flexible[key(name)] += (MachineId(machine),)

    def scaled_in(self, *names: str) -> None:
        """These attempts have given up what they were to."""
        keys = [key(name) for name in names]
        for attempt in keys:
            del self.scaling_in[attempt]
        self.carry_out(self.lender.scaled_in(keys, self.states.__getitem__))

    def gone(self, *names: str) -> None:
        """These attempts have ended or left."""
        keys = [key(name) for name in names]
        for attempt in keys:
            del self.attempts[attempt], self.flexible[attempt]
            self.leaving.pop(attempt, None)
            self.scaling_in.pop(attempt, None)
        self.carry_out(self.lender.attempts_gone(keys, self.states.__getitem__))

    def happens(self, machine: str, happening: MachineHappening) -> None:
        name = MachineId(machine)
        self.states[name] = next_machine_state(name, self.states[name], happening)

    def fail(self, machine: str) -> None:
        """What ran there is lost."""
        self.happens(machine, MachineHappening.FAILED)
        self.gone(*(attempt.workload for attempt in self.attempts if MachineId(machine) in self.held(attempt)))

    def carry_out(self, actions: Sequence[LoanAction]) -> None:
        for action in actions:
            match action:
                case MachineChange(machine, happening, state, reason):
                    assert state is next_machine_state(machine, self.states[machine], happening)
                    assert reason
                    self.states[machine] = state
                    self.log.append(f"{machine} {happening}")
                case ScaleIn(attempt, released):
                    kept = [place for place in self.flexible[attempt] if _flexible_task(place) not in released]
                    given_up = [place for place in self.flexible[attempt] if place not in kept]
                    assert len(given_up) == len(released)
                    self.flexible[attempt] = tuple(kept)
                    self.scaling_in[attempt] = (*self.scaling_in.get(attempt, ()), *given_up)
                case Reclaim(machines, victims):
                    for machine in machines:
                        self.happens(machine, MachineHappening.ASKED_BACK)
                        self.log.append(f"{machine} asked_back")
                    self.leaving.update(dict.fromkeys(victims))

    def held(self, attempt: AttemptKey) -> tuple[MachineId, ...]:
        """The machines that the attempt is on, and those that it has yet to give up."""
        return (*self.attempts[attempt], *self.flexible[attempt], *self.scaling_in.get(attempt, ()))

    def states_told(self) -> str:
        return " ".join(self.states[machine].value for machine in self.machines)


def test_it_begins_with_the_first_on_loan() -> None:
    assert LoanWorld(3).begin(1).states_told() == "on_loan serving serving"


def test_the_first_that_work_come_then_those_that_are_down_then_those_that_were_about_to_go() -> None:
    world = LoanWorld(4).begin(1)
    world.run("a", "s0")
    world.lend(0)
    world.fail("s1")
    assert world.states_told() == "returning serving_down serving serving"
    world.lend(2)
    assert world.states_told() == "returning serving_down on_loan on_loan"
    world.lend(4)
    assert world.states_told() == "on_loan on_loan_down on_loan on_loan"
    assert world.log == ["s0 asked_back", "s2 lent", "s3 lent", "s1 lent", "s0 kept"]
    # It was kept: that a leaves now sends nothing back.
    world.gone("a")
    assert world.states_told() == "on_loan on_loan_down on_loan on_loan"


def test_a_machine_goes_back_when_the_last_attempt_has_left() -> None:
    world = LoanWorld(2).begin(2)
    world.run("a", "s0", "s1")
    world.run("b", "s0")
    world.lend(0)
    assert (world.states_told(), sorted(world.leaving)) == ("returning returning", [key("a"), key("b")])
    world.gone("a")
    assert world.states_told() == "returning serving"
    world.gone("b")
    assert world.log == ["s0 asked_back", "s1 asked_back", "s1 handed_back", "s0 handed_back"]


def test_an_attempt_with_flexible_tasks_there_goes_on_without_them() -> None:
    world = LoanWorld(3).begin(3)
    world.run("a", "s0")
    world.grow("a", "s1")
    world.grow("a", "s2")
    world.lend(2)
    assert (world.states_told(), world.leaving) == ("on_loan returning on_loan", {})
    # It has to leave as a whole now: what it has yet to give up on s1 is not all that s0 waits for.
    world.lend(0)
    assert (world.states_told(), sorted(world.leaving)) == ("returning returning returning", [key("a")])
    world.scaled_in("a")
    assert world.states_told() == "returning serving returning"
    world.gone("a")
    assert world.log[-3:] == ["s1 handed_back", "s0 handed_back", "s2 handed_back"]


def test_who_ends_before_it_has_scaled_in_keeps_no_machine() -> None:
    world = LoanWorld(2).begin(2)
    world.run("a", "s0")
    world.grow("a", "s1")
    world.lend(1)
    world.gone("a")
    assert world.states_told() == "on_loan serving"


def test_a_new_lender_waits_for_tasks_that_are_being_given_up() -> None:
    world = LoanWorld(2).begin(2)
    world.run("a", "s0")
    world.grow("a", "s1")
    world.lend(1)
    returning = [MachineOnLoan(MachineId("s1"), scaling_in=(key("a"),))]
    world.lender = Lender(ClusterId("s"), world.machines, returning)
    assert world.states_told() == "on_loan returning"
    world.scaled_in("a")
    assert world.states_told() == "on_loan serving"


def test_an_idle_machine_goes_back_at_once() -> None:
    world = LoanWorld(2).begin(2)
    world.lend(1)
    assert world.log == ["s0 asked_back", "s0 handed_back"]
    world.lend(1)
    assert len(world.log) == 2, "as many as before: nothing to do"


def test_a_machine_waits_for_those_that_were_leaving_anyhow() -> None:
    world = LoanWorld(1).begin(1)
    world.run("a", "s0")
    world.leaving[key("a")] = None
    world.lend(0)
    assert world.states_told() == "returning"
    world.gone("a")
    assert world.states_told() == "serving"


def test_failing_on_loan_ends_no_loan_and_failing_on_the_way_back_ends_the_wait() -> None:
    world = LoanWorld(2).begin(2)
    world.run("a", "s0")
    world.run("b", "s1")
    world.fail("s0")
    assert world.states_told() == "on_loan_down on_loan"
    world.happens("s0", MachineHappening.REPAIRED)
    assert world.states_told() == "on_loan on_loan"
    world.lend(0)
    world.fail("s1")
    assert world.states_told() == "serving serving_down"
    world.happens("s1", MachineHappening.REPAIRED)
    assert world.states_told() == "serving serving"


def test_a_loan_is_taken_back_while_its_machine_is_down() -> None:
    world = LoanWorld(1).begin(1)
    world.run("a", "s0")
    world.fail("s0")
    world.lend(0)
    assert world.states_told() == "serving_down"
    assert world.log == ["s0 asked_back", "s0 handed_back"]


def test_a_lost_attempt_that_is_still_held_keeps_the_machine_until_it_is_seen_to_be_gone() -> None:
    world = LoanWorld(1).begin(1)
    world.run("a", "s0")
    world.happens("s0", MachineHappening.FAILED)
    world.lend(0)
    assert world.states_told() == "returning_down"
    world.happens("s0", MachineHappening.REPAIRED)
    assert world.states_told() == "returning"
    world.gone("a")
    assert world.states_told() == "serving"


def test_a_new_lender_waits_for_what_the_old_one_waited_for() -> None:
    world = LoanWorld(2).begin(2)
    world.run("a", "s0")
    world.lend(0)
    returning = [machine for machine in world.machines if world.states[machine] is RETURNING]
    world.lender = Lender(ClusterId("s"), world.machines, world.occupancy(returning))
    world.gone("a")
    assert world.states_told() == "serving serving"


def test_a_choice_that_is_none_changes_nothing() -> None:
    @dataclass(frozen=True)
    class Nothing:
        name: str = "nothing"

        def choose(self, on_loan: Sequence[MachineOnLoan], count: int, rng: np.random.Generator) -> ReclaimChoice:
            return ReclaimChoice((), Reclaim((), ()))

    world = LoanWorld(2, Nothing()).begin(2)
    with pytest.raises(BadReclaim, match="nothing is asked for 1 of the machines s0, s1 and chooses none"):
        world.lend(1)
    assert (world.states_told(), world.log) == ("on_loan on_loan", [])


POLICIES = (FewestWorkloadsFirst(), RandomMachines(), LeastPreemptionCost(), FewestEvictions())
WHAT = ("lend", "run", "grow", "scaled_in", "gone", "fail", "repair", "lost")
Step = tuple[Literal["lend", "run", "grow", "scaled_in", "gone", "fail", "repair", "lost"], int, int]
STEPS = st.lists(st.tuples(st.sampled_from(WHAT), st.integers(0, 9), st.integers(1, 3)), max_size=40)


@given(st.integers(1, 5), st.integers(0, 5), STEPS, st.sampled_from(POLICIES))
def test_never_serves_and_trains_at_once(
    count: int, begins_with: int, steps: list[Step], policy: ReclaimingPolicy
) -> None:
    """Whatever happens: no attempt is on a machine that serves, and machines are asked back or lent as inference wants.

    A returning machine has attempts, all of which were asked to leave or to scale in (or lost), and none comes to it.
    """
    world, wanted = LoanWorld(count, policy), min(begins_with, count)
    world.begin(wanted)
    numbers = itertools.count()
    for what, which, width in steps:
        match what:
            case "lend":
                wanted = which % (count + 1)
                world.lend(wanted)
            case "run":
                if open_ := [machine for machine in world.machines if world.states[machine].takes_work]:
                    world.run(f"w{next(numbers)}", *open_[which % len(open_) :][:width])
            case "grow":
                _grow(world, which)
            case "scaled_in":
                if world.scaling_in:
                    world.scaled_in(sorted(world.scaling_in)[which % len(world.scaling_in)].workload)
            case "gone":
                if world.attempts:
                    world.gone(sorted(world.attempts)[which % len(world.attempts)].workload)
            case "fail":
                if not world.states[world.machines[which % count]].is_down:
                    world.fail(world.machines[which % count])
            case "lost":
                # As in the live service: down, and what ran there is held until it is seen to be gone.
                if not world.states[world.machines[which % count]].is_down:
                    world.happens(world.machines[which % count], MachineHappening.FAILED)
            case "repair":
                if world.states[world.machines[which % count]].is_down:
                    world.happens(world.machines[which % count], MachineHappening.REPAIRED)
        _check(world, wanted)
    # Once all have left that were asked to, every machine has arrived where inference wants it.
    world.gone(*(attempt.workload for attempt in world.leaving))
    world.scaled_in(*(attempt.workload for attempt in world.scaling_in))
    world.gone(*(attempt.workload for attempt in world.attempts))
    assert not any(state in {RETURNING, MachineState.RETURNING_DOWN} for state in world.states.values())


def _grow(world: LoanWorld, which: int) -> None:
    """One attempt that stays gets a flexible task on a machine where it has none."""
    staying = [attempt for attempt in sorted(world.attempts) if attempt not in world.leaving]
    open_ = [machine for machine in world.machines if world.states[machine].takes_work]
    if staying and open_:
        attempt, machine = staying[which % len(staying)], open_[which % len(open_)]
        if machine not in world.held(attempt):
            world.grow(attempt.workload, machine)


def _check(world: LoanWorld, wanted: int) -> None:
    on_loan = {MachineState.ON_LOAN, MachineState.ON_LOAN_DOWN}
    assert sum(state in on_loan for state in world.states.values()) == wanted
    for machine in world.machines:
        here = [attempt for attempt in world.attempts if machine in world.held(attempt)]
        state = world.states[machine]
        if state in {SERVING, MachineState.SERVING_DOWN}:
            assert not here, f"{machine} serves with {here} on it"
        if state in {RETURNING, MachineState.RETURNING_DOWN}:
            assert here, f"{machine} waits for nothing"
            assert all(attempt in world.leaving or machine in world.scaling_in.get(attempt, ()) for attempt in here), (
                f"{machine} goes back with {here} on it"
            )
