from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from services.configuration import Configuration
from simulator.policies.registry import policy_called
from tests.extending.packages import ExamplePackage, package_of
from tests.regional_scheduler.elastic.test_resizing import ElasticWorld

TITLE = "An elastic policy"


def test_the_example_policy_shares_out_idle_gpus_and_spares_who_may_not_grow(
    install: Callable[[ExamplePackage], None],
) -> None:
    install(package_of(TITLE))
    elastic = policy_called("equal_growth").elastic
    assert elastic is not None
    assert Configuration(elastic="equal_growth").elastic_policy() == elastic
    world = ElasticWorld(training=2)
    world.run("one", "t0*3", base=1, most=4)
    world.run("other", "t1", base=1, most=4)
    world.run("killed", "t1", base=1, most=4)
    world.attempts["killed"] = replace(world.attempts["killed"], may_grow=False)
    # Three GPUs are idle: two make the two alike, the last goes to the first of them by name.
    assert world.told(elastic) == {"one": "+t0", "other": "+t1 t1"}
    world.attempts["killed"] = replace(world.attempts["killed"], may_grow=True)
    assert set(world.told(elastic)) == {"killed", "other"}
