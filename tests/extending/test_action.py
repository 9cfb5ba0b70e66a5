from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path

from regional_scheduler.plan_application import apply_plan
from regional_scheduler.region_capacity import RegionCapacity
from tests.cluster_manager.fleets import cluster, gpu_machine, hold, region, tasks_on
from tests.extending.packages import PAGE, ExamplePackage, modules_of, section


def test_the_example_plan_is_applied(install: Callable[[ExamplePackage], None]) -> None:
    install(ExamplePackage("halve-cpus", {}, modules_of("An action")))
    capacity = RegionCapacity(region(cluster("c", [gpu_machine("m0")])))
    key = hold(capacity, "w", tasks_on("m0", [0, 1], cpus=24.0, memory_gib=64.0))
    holding = capacity.holding(key)
    assert holding is not None
    apply_plan(capacity, importlib.import_module("halve_cpus").halve_cpus(capacity.region, holding), 10.0)
    after = capacity.holding(key)
    assert after is not None
    assert [(task.cpus, task.memory_gib, task.gpu_indices) for task in after.placements] == [(12.0, 64.0, (0, 1))]
    capacity.check()


def test_the_page_names_every_place_that_carries_actions_out() -> None:
    named = set(re.findall(r"^\| [^|]+ \| `([\w/]+\.py)` \|$", section("An action"), re.MULTILINE))
    root = PAGE.parents[1]
    packages = ("domain", "regional_scheduler", "services", "simulator")
    carrying_out = {
        str(path.relative_to(root))
        for package in packages
        for path in Path(root, package).rglob("*.py")
        if re.search(r"^    def reclaim\(self, action: Reclaim\)", path.read_text(), re.MULTILINE)
    }
    # The Protocol itself, and what only words the answer to an operator.
    assert carrying_out - named == {"domain/plan.py", "services/regional_scheduler/action_response.py"}
    assert named <= carrying_out
