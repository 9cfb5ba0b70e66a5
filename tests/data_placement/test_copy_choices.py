"""Choices about copies become a policy: names resolved, what files say kept, nonsense refused with its field."""

from dataclasses import replace

import numpy as np
import pytest

from data_placement.copy_choices import CopyChoices, CorrelatedFailure, SpareShare
from data_placement.objective.goals import V2
from data_placement.objective.placement_state import state_of
from data_placement.objective.problem import problem_of
from data_placement.plan_choices import PlanChoices
from data_placement.replicas import ReplicaPolicy, plan_replicas
from formats.problems import FormatError
from tests.data_placement.warehouses import small_warehouse

REGIONS = small_warehouse(1).regions


def test_a_pair_counts_both_ways_unless_both_are_said() -> None:
    one = CopyChoices(correlated_failures=(CorrelatedFailure("region0", "region2", 0.4),)).policy(REGIONS)
    assert one.correlated_failures is not None
    np.testing.assert_array_equal(one.correlated_failures, [[0, 0, 0.4], [0, 0, 0], [0.4, 0, 0]])
    both = CopyChoices(
        correlated_failures=(
            CorrelatedFailure("region0", "region2", 0.4),
            CorrelatedFailure("region2", "region0", 0.1),
        )
    ).policy(REGIONS)
    assert both.correlated_failures is not None
    assert (both.correlated_failures[0, 2], both.correlated_failures[2, 0]) == (0.4, 0.1)


def test_what_the_warehouse_says_stays_where_nothing_else_is_said() -> None:
    regions = replace(
        REGIONS, correlated_failures=np.full((3, 3), 0.5), spare_gpu_share=np.array([0.1, np.nan, np.nan])
    )
    untouched = CopyChoices().policy(regions)
    assert untouched.correlated_failures is regions.correlated_failures
    assert untouched.spare_gpu_share is regions.spare_gpu_share
    said = CopyChoices(
        correlated_failures=(CorrelatedFailure("region0", "region1", 0.0),),
        spare_gpu_shares=(SpareShare("region1", 0.25),),
    ).policy(regions)
    assert said.correlated_failures is not None
    assert (said.correlated_failures[0, 1], said.correlated_failures[0, 2]) == (0.0, 0.5)
    np.testing.assert_array_equal(said.spare_gpu_share, [0.1, 0.25, np.nan])
    assert not CopyChoices(replicas=False).policy(regions).against_disasters


@pytest.mark.parametrize("replicas", [True, False])
def test_a_region_that_is_not_there_is_refused_with_its_field(replicas: bool) -> None:
    choices = CopyChoices(
        replicas=replicas,
        correlated_failures=(CorrelatedFailure("region0", "mars", 0.4),),
        spare_gpu_shares=(SpareShare("venus", 0.1),),
    )
    with pytest.raises(FormatError, match=r"correlated_failures\[0\]\.other: there is no region mars") as caught:
        choices.policy(REGIONS)
    assert [problem.field for problem in caught.value.problems] == [
        "correlated_failures[0].other",
        "spare_gpu_shares[0].region",
    ]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"correlated_failures": (CorrelatedFailure("a", "b", 1.5),)}, r"correlated_failures\[0\].probability"),
        ({"correlated_failures": (CorrelatedFailure("a", "a", 0.5),)}, r"correlated_failures\[0\].other"),
        ({"correlated_failures": (CorrelatedFailure("a", "b", 0.5),) * 2}, r"correlated_failures\[1\].region"),
        ({"spare_gpu_shares": (SpareShare("a", -0.1),)}, r"spare_gpu_shares\[0\].share"),
        ({"spare_gpu_shares": (SpareShare("a", 0.1),) * 2}, r"spare_gpu_shares\[1\].region"),
        ({"hot_storage_share": float("nan")}, "hot_storage_share"),
    ],
)
def test_choices_that_make_no_sense_are_refused_with_their_field(changes: dict[str, object], field: str) -> None:
    with pytest.raises(ValueError, match=field):
        PlanChoices(**changes)  # type: ignore[arg-type]  # fields by name


def test_a_region_that_keeps_gpus_to_spare_gets_the_copies() -> None:
    """ "... and the availability of hardware to handle increased load after a disaster." (MAST §3.5)"""
    warehouse = small_warehouse(11, tables=12, jobs=14, roomy=True)
    supply = np.full((2, 3), 500.0)
    warehouse = replace(warehouse, regions=replace(warehouse.regions, gpu_hours=supply, storage_bytes=np.full(3, 1e9)))
    problem = problem_of(warehouse, V2)
    state = state_of(problem, np.zeros(12, np.int32))
    policy = ReplicaPolicy(for_jobs=False, hot_storage_share=0.0)
    trained = np.unique(problem.tables[np.repeat(problem.training, np.diff(problem.table_start))])
    for region, mask in ((1, 0b010), (2, 0b100)):
        kept = np.zeros(3)
        kept[region] = 1.0
        copied = plan_replicas(warehouse, problem, state, replace(policy, spare_gpu_share=kept)).masks
        assert (copied[trained] == mask).all()
    with pytest.raises(ValueError, match="spare_gpu_share"):
        ReplicaPolicy(spare_gpu_share=np.array([2.0]))
