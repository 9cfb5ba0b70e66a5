"""Tiresias §3.3: "The DL models whose performance are sensitive to consolidated placement (Figure 3) have huge tensor(s);
their largest tensor size dominates the whole model (Table 6)."
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from cluster_manager.skew.consolidation import consolidated, consolidation_of
from cluster_manager.skew.packlimit import DEFAULT_PACKLIMIT, SENSITIVE_MODELS, SKEWS_OF_MODELS
from domain.identifiers import JobName
from domain.model_profile import ModelProfile
from domain.plan import Plan
from domain.rank import Standing
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification
from regional_scheduler.planner import plan_workload
from regional_scheduler.region_capacity import RegionCapacity
from tests.cluster_manager.fleets import cluster, gpu_machine, hold, region, tasks_on
from tests.cluster_manager.inventory_worlds import workload_of

TABLE_6 = {
    "vgg19": (548.1, 392.0, 0.715),
    "vgg16": (527.8, 392.0, 0.743),
    "vgg11": (506.8, 392.0, 0.773),
    "alexnet": (235.9, 144.0, 0.610),
    "resnet152": (230.2, 9.0, 0.039),
    "resnet101": (170.4, 9.0, 0.053),
    "resnet50": (97.7, 9.0, 0.092),
    "inception4": (162.9, 5.9, 0.036),
    "inception3": (91.0, 7.8, 0.086),
    "googlenet": (26.7, 3.9, 0.146),
}
"""Model size and largest tensor in MB, largest tensor ratio."""


def job_of(model: str) -> JobSpecification:
    """8 workers, as in Figure 3."""
    size, largest, _ = TABLE_6[model]
    profile = ModelProfile(largest_tensor_mib=largest, model_mib=size)
    return JobSpecification(JobName("train"), 8, TaskResources(gpus=1), Emulated(60.0), profile=profile)


@pytest.mark.parametrize("model", sorted(TABLE_6))
def test_table_6_the_skew_is_the_largest_tensor_over_the_model(model: str) -> None:
    profile = job_of(model).profile
    assert profile is not None
    assert profile.skew == pytest.approx(TABLE_6[model][2], abs=0.002)
    assert profile.skew == pytest.approx(SKEWS_OF_MODELS[model], abs=0.001)


def test_figure_3_mainly_vgg_and_alexnet_are_consolidated() -> None:
    """ "Figure 3 shows that the locality of workers mainly impacts the VGG family and AlexNet." """
    decided = {model for model in TABLE_6 if consolidation_of(job_of(model), None, DEFAULT_PACKLIMIT).consolidate}
    assert decided == SENSITIVE_MODELS == {"vgg19", "vgg16", "vgg11", "alexnet"}


def machines_of(model: str, idle_machines: int, fragments: int) -> dict[str, int]:
    """Where the job goes in a cluster of machines of 4 GPUs, of which some have two idle GPUs and some all."""
    names = [f"m{number}" for number in range(fragments + idle_machines)]
    inventory = RegionCapacity(region(cluster("c", [gpu_machine(name, 4) for name in names])))
    for name in names[:fragments]:
        hold(inventory, f"holder-{name}", tasks_on(name, range(2)))
    workload = workload_of("w", job_of(model))
    specification = replace(workload.specification, jobs=(job_of(model),))
    placed = replace(workload, specification=consolidated(specification, {}, DEFAULT_PACKLIMIT))
    plan = plan_workload(inventory, placed, Standing(6, 0), 1.0, within_quota=False)
    assert isinstance(plan, Plan)
    return dict(Counter(str(placement.machine) for placement in plan.placements))


@pytest.mark.parametrize("model", sorted(SENSITIVE_MODELS))
def test_section_3_3_2_above_packlimit_as_few_machines_as_possible(model: str) -> None:
    """ "If S_j is larger than PACKLIMIT, Tiresias attempts to consolidate the job in as few machines as possible." """
    assert machines_of(model, idle_machines=2, fragments=4) == {"m4": 4, "m5": 4}


@pytest.mark.parametrize("model", sorted(set(TABLE_6) - SENSITIVE_MODELS))
def test_section_3_3_2_below_packlimit_what_others_have_left_over(model: str) -> None:
    """ "For the rest, Tiresias allocates GPUs in machines to decrease fragmentation." """
    assert machines_of(model, idle_machines=2, fragments=4) == {"m0": 2, "m1": 2, "m2": 2, "m3": 2}
    assert machines_of(model, idle_machines=2, fragments=2) == {"m0": 2, "m1": 2, "m2": 4}


def test_section_3_3_2_it_attempts_to_but_does_not_wait() -> None:
    assert machines_of("vgg19", idle_machines=1, fragments=2) == {"m0": 2, "m1": 2, "m2": 4}
