"""26 scenarios recorded from HiveD's public implementation: whatever every correct one must do, ours does."""

from __future__ import annotations

import gzip
import json

import pytest

from cluster_manager.cells.cell_cluster import CellCluster
from cluster_manager.cells.health import owned_cell_states
from cluster_manager.cells.invariants import check_cells
from cluster_manager.cells.virtual_view import ViewKey
from cluster_manager.cells.work import Work
from domain.identifiers import VirtualClusterId
from tests.cluster_manager.cells.conftest import ABSENT, CASES
from tests.cluster_manager.cells.hived_cluster import Json
from tests.cluster_manager.cells.hived_driver import Answer, HivedDriver

_FILE = CASES / "cases.json.gz"
_RECORDED: Json = json.loads(gzip.decompress(_FILE.read_bytes())) if _FILE.is_file() else {"tests": []}
SCENARIOS = {test["name"]: test for test in _RECORDED["tests"]}


@pytest.mark.skipif(not SCENARIOS, reason=ABSENT)
def test_all_scenarios_are_here() -> None:
    assert len(SCENARIOS) == 26
    assert sum(len(test["steps"]) for test in SCENARIOS.values()) == 391


@pytest.mark.skipif(not SCENARIOS, reason=ABSENT)
@pytest.mark.parametrize("name", sorted(SCENARIOS) or ["no cases"])
def test_what_every_correct_implementation_must_do(name: str) -> None:
    scenario = SCENARIOS[name]
    driver = HivedDriver(_RECORDED["clusters"], scenario["pods"])
    bound: dict[str, Answer] = {}
    for step in scenario["steps"]:
        before = _seats(driver) if hasattr(driver, "cells") else {}
        answer = _carry_out(driver, step)
        if answer is not None:
            bound[step["pod"]] = answer
            check_must(driver, step, answer, bound, before)
        if hasattr(driver, "cells"):
            check_cells(driver.cells)


def _seats(driver: HivedDriver) -> dict[str, tuple[object, ...]]:
    return {str(key): (work.view, work.tasks, work.leaving) for key, work in driver.cells.work.items()}


def _carry_out(driver: HivedDriver, step: Json) -> Answer | None:
    match step["op"]:
        case "configure":
            outcome = driver.configure(step["cluster"])
            assert outcome == step.get("must", {}).get("outcome", "ok"), step
        case "set_all_nodes_healthy":
            driver.set_nodes(None, usable=True)
        case "set_node_bad" | "set_node_healthy":
            driver.set_nodes([step["node"]], usable=step["op"] == "set_node_healthy")
        case "schedule":
            commit = step.get("commitIfBound", False)
            answer = driver.schedule(step["pod"], step["phase"], step["suggestedNodes"], commit=commit)
            if commit and answer.outcome == step["observed"]["outcome"] == "bind":
                driver.name_alike(step["pod"], step["observed"])
            return answer
        case "add_allocated_pod":
            driver.add_allocated(step["pod"], step["bindInfo"])
        case "delete_allocated_pod":
            driver.delete_allocated(step["pod"])
        case "delete_unallocated_pod":
            driver.delete_unallocated(step["pod"])
        case "assert":
            check_state(driver, step["assert"])
        case other:
            raise AssertionError(f"there is no step {other}")
    return None


def check_must(
    driver: HivedDriver,
    step: Json,
    answer: Answer,
    bound: dict[str, Answer],
    before: dict[str, tuple[object, ...]],
) -> None:
    group = driver._pods[step["pod"]]["affinityGroup"]["name"]
    for key, expected in step.get("must", {}).items():
        match key:
            case "outcome":
                legal = ("bind", "wait", "preempt") if expected == "not_panic" else (expected,)
                assert answer.outcome in legal, step
            case "nodeIn":
                assert answer.node in expected, step
            case "notNodes":
                assert answer.node not in expected, step
            case "leafCells":
                assert len(answer.gpus) == expected, step
            case "notSameNodeAs":
                assert answer.node not in {bound[pod].node for pod in expected}, step
            case "preemptsNobody":
                assert answer.outcome != "preempt" or not expected, step
            case "victimsUnion":
                assert answer.victims == set(expected), step
            case "victimsSubsetOf":
                assert answer.victims, step
                assert answer.victims <= set(expected), step
            case "groupsLazyPreempted":
                assert set(expected) <= answer.downgraded, step
                assert all(driver.cells.work[name].downgraded for name in expected), step
            case "groupsKeepVirtualPlacement":
                assert all(before[name] == _seats(driver)[name] for name in expected), step
            case "groupsDeleted":
                assert not set(expected) & set(driver.groups), step
            case "createsPreemptingGroup":
                there = group in driver.groups and driver.groups[group].state == "Preempting"
                assert there == expected, step
            case other:
                raise AssertionError(f"no check for {other}")


def check_state(driver: HivedDriver, expected: Json) -> None:
    cells = driver.cells
    match expected["kind"]:
        case "group_absent":
            assert expected["group"] not in driver.groups
            assert expected["group"] not in cells.work
        case "group_present":
            assert expected["group"] in cells.work
        case "group_state":
            assert _state(driver, expected["group"]) == expected["state"]
        case "group_lazy_preempted":
            assert cells.work[expected["group"]].view is None
        case "group_guaranteed":
            work = cells.work[expected["group"]]
            assert work.view is not None
            assert not work.leaving
        case "preassigned_cells_healthiness":
            _check_health(cells, expected)
        case "after_preemption_cancelled":
            assert expected["group"] not in cells.work
            assert not any(work.leaving for work in cells.work.values())
        case "free_list":
            number = _chain_number(cells, expected)
            chain = cells.chains[number]
            assert cells.buddies[number].free == [0] * chain.top + [chain.counts[chain.top]]
        case "safety_counters":
            check_cells(cells)
        case other:
            raise AssertionError(f"no check for {other}")


def _state(driver: HivedDriver, name: str) -> str:
    work: Work = driver.cells.work[name]
    return "BeingPreempted" if work.leaving else driver.groups[name].state


def _chain_number(cells: CellCluster, expected: Json) -> int:
    return [chain.name for chain in cells.chains].index(expected["chain"])


def _check_health(cells: CellCluster, expected: Json) -> None:
    number = _chain_number(cells, expected)
    level = cells.chains[number].name_of(expected["level"])
    states = owned_cell_states(cells, ViewKey(VirtualClusterId(expected["vc"]), expected["chain"]))
    states = tuple(state for state in states if state.level == level)
    if expected["which"] == "free":
        states = tuple(state for state in states if state.bound_to is None)
    assert states
    assert all(state.usable == (expected["healthiness"] == "Healthy") for state in states), states
