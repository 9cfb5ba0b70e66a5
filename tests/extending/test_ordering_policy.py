from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from services.configuration import load_configuration
from simulator.policies.registry import policy_called
from tests.extending.packages import ExamplePackage, blocks, package_of, section
from tests.simulator.baselines.runs import one_machine, row, run

TITLE = "An ordering policy"


def test_the_example_policy_orders_a_simulation(install: Callable[[ExamplePackage], None]) -> None:
    install(package_of(TITLE))
    rows = [row("runs", 0, 100, 4), row("narrow", 1, 200, 1), row("wide", 2, 50, 4), row("middle", 3, 20, 2)]
    starts = run(policy_called("widest_first"), one_machine(4), rows).first_starts
    assert starts == {"runs": 0.0, "wide": 100.0, "middle": 150.0, "narrow": 150.0}
    assert run("fifo", one_machine(4), rows).first_starts["narrow"] == 100.0


def test_the_example_policy_orders_a_priority_of_the_service(
    install: Callable[[ExamplePackage], None], tmp_path: Path
) -> None:
    install(package_of(TITLE))
    (settings,) = blocks(section(TITLE), "yaml")
    file = tmp_path / "scheduler.yaml"
    file.write_text(settings)
    rules = load_configuration(file).scan_settings().rules
    assert [rule.ordering.name for rule in rules[:4]] == ["credit", "credit", "most_gpus", "credit"]
    assert rules[2].ordering == policy_called("widest_first").ordering
