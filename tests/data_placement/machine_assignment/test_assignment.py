from __future__ import annotations

from hypothesis import given, settings

from data_placement.machine_assignment.assignment import assign_machines
from data_placement.machine_assignment.greedy import assign_greedily
from data_placement.machine_assignment.measure import AssignmentCost, tallies_of
from data_placement.machine_assignment.outcome import outcomes_of
from data_placement.machine_assignment.problem import AssignmentProblem
from domain.capacity_requests import CapacityUnit, FailureDomain
from tests.data_placement.machine_assignment.small_problems import best_of_all, machine, problems, request
from tests.examples import examples


@settings(max_examples=examples(60), deadline=None)
@given(problems())
def test_never_another_cost_than_the_best_of_all_assignments(problem: AssignmentProblem) -> None:
    found = assign_machines(problem)
    best = AssignmentCost()
    for model in problem.by_model():
        best = best.plus(best_of_all(model))
    assert (found.cost, found.bound, found.optimal) == (best, best, True)


@settings(max_examples=examples(60), deadline=None)
@given(problems())
def test_never_a_machine_in_two_clusters_nor_moved_where_nothing_asks_for_it(problem: AssignmentProblem) -> None:
    found = assign_machines(problem)
    assert len({move.machine for move in found.moves}) == len(found.moves)
    here = {one.machine: one.cluster for one in problem.machines}
    asking = {one.cluster for one in problem.requests}
    for move in found.moves:
        assert here[move.machine] == move.from_cluster != move.to_cluster in asking


@settings(max_examples=examples(60), deadline=None)
@given(problems())
def test_never_a_greedy_assignment_with_less_than_before_or_better_than_the_program(problem: AssignmentProblem) -> None:
    found = assign_machines(problem, 0.0)
    exact = assign_machines(problem)
    assert exact.cost <= found.cost
    for model in problem.by_model():
        stays = {one.machine: one.cluster for one in model.machines}
        before, after = tallies_of(model, stays), tallies_of(model, assign_greedily(model))
        assert all(after[cluster].unmet <= before[cluster].unmet for cluster in before)


@settings(max_examples=examples(20), deadline=None)
@given(problems())
def test_never_two_answers_to_one_question(problem: AssignmentProblem) -> None:
    assert assign_machines(problem) == assign_machines(problem)


def test_the_idlest_machine_moves() -> None:
    machines = (machine("m1", "a", running=8), machine("m2", "a", running=1), machine("m3", "a", running=8))
    found = assign_machines(AssignmentProblem(machines, (request("b", 1), request("a", 1))))
    assert [(move.machine, move.to_cluster, move.running) for move in found.moves] == [("m2", "b", 1)]
    assert found.cost == AssignmentCost(unmet=0, unmet_spares=0, running=1, moves=1, spread=3)


def test_two_idle_machines_move_rather_than_one_that_runs_something() -> None:
    machines = (machine("m1", "a", gpus=8, running=1), machine("m2", "a", gpus=4), machine("m3", "a", gpus=4))
    found = assign_machines(AssignmentProblem(machines, (request("b", 8, unit=CapacityUnit.GPUS),)))
    assert [move.machine for move in found.moves] == ["m2", "m3"]


def test_what_is_beyond_the_share_of_a_rack_does_not_count() -> None:
    machines = tuple(machine(f"m{number}", "a", "r1" if number < 3 else "r3") for number in range(6))
    problem = AssignmentProblem(machines, (request("b", 4, most_per_rack=0.5),))
    found = assign_machines(problem)
    racks = [one.rack for one in machines if one.machine in {move.machine for move in found.moves}]
    assert sorted(racks) == ["r1", "r1", "r3", "r3"]


def test_spares_are_kept_for_the_failure_of_any_power_domain() -> None:
    machines = tuple(machine(f"m{number}", "a", ("x", "y", "z")[number % 3]) for number in range(9))
    problem = AssignmentProblem(machines, (request("b", 4, survives=FailureDomain.POWER_DOMAIN),))
    found = assign_machines(problem)
    (outcome,) = outcomes_of(problem, {move.machine: move.to_cluster for move in found.moves})
    assert (len(found.moves), outcome.has, outcome.spares, outcome.holds) == (6, 6, 2, True)
    assert outcome.sentence == (
        "b has 6 of 4 machines (machines with H100), and 2 spare; it holds if any one power domain fails"
    )


def test_clusters_of_a_pool_share_their_spares() -> None:
    machines = tuple(machine(f"m{number}", "a", ("x", "y", "z")[number % 3]) for number in range(9))
    alone = [request(name, 2, survives=FailureDomain.POWER_DOMAIN) for name in ("b", "c")]
    shared = [request(name, 2, survives=FailureDomain.POWER_DOMAIN, spare_pool="p") for name in ("b", "c")]
    assert assign_machines(AssignmentProblem(machines, tuple(alone))).cost.moves == 6
    found = assign_machines(AssignmentProblem(machines, tuple(shared)))
    assert (found.cost.unmet_spares, found.cost.moves) == (0, 6)
    greater = [request(name, 3, spares=2, spare_pool="p") for name in ("b", "c")]
    assert assign_machines(AssignmentProblem(machines, tuple(greater))).cost.moves == 8


def test_what_is_not_there_is_unmet_and_said() -> None:
    problem = AssignmentProblem((machine("m1", "a"),), (request("b", 2), request("a", 1)))
    found = assign_machines(problem)
    assert found.cost.unmet == 2
    assert [one.sentence for one in outcomes_of(problem, {})] == [
        "b has 0 of 2 machines (machines with H100)",
        "a has 1 of 1 machines (machines with H100)",
    ]


def test_without_time_the_greedy_assignment_is_the_answer_and_has_no_bound() -> None:
    machines = (machine("m1", "a"), machine("m2", "a"))
    found = assign_machines(AssignmentProblem(machines, (request("b", 1),)), 0.0)
    assert (found.solver, found.optimal, found.bound, found.cost.unmet) == ("greedy", False, AssignmentCost(), 0)


def test_without_requests_nothing_moves() -> None:
    found = assign_machines(AssignmentProblem((machine("m1", "a"),), ()))
    assert (found.moves, found.optimal) == ((), True)
