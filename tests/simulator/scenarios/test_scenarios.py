"""Small cases with answers that were worked out by hand: see `scenario_text` for how to read them."""

from __future__ import annotations

from copy import deepcopy
from difflib import unified_diff
from pathlib import Path

import pytest

from simulator.policies.registry import policies
from tests.simulator.scenarios.scenario_run import outcome_of
from tests.simulator.scenarios.scenario_text import Scenario, scenarios_of

FILES = sorted((Path(__file__).parent / "texts").glob("*.txt"))
SCENARIOS = {f"{path.stem}: {scenario.name}": scenario for path in FILES for scenario in scenarios_of(path)}
LINES_PER_FILE = 130


@pytest.mark.parametrize("name", SCENARIOS)
def test_it_ends_as_worked_out_by_hand(name: str) -> None:
    scenario = SCENARIOS[name]
    came = outcome_of(scenario)
    assert came == scenario.expected, _difference(scenario, came)


def test_there_are_many_and_each_says_why() -> None:
    assert len(SCENARIOS) >= 30
    assert [name for name, scenario in SCENARIOS.items() if len(scenario.because) < 20] == []
    asked = {name: [str(row.workload_id) for row in scenario.rows] for name, scenario in SCENARIOS.items()}
    answered = {name: [line.split()[0] for line in scenario.expected] for name, scenario in SCENARIOS.items()}
    assert asked == answered, "every job has a line of its own, in the order of the table"


def test_every_file_is_short_enough_to_be_read() -> None:
    lengths = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert {name: length for name, length in lengths.items() if length > LINES_PER_FILE} == {}


def test_names_are_there_once() -> None:
    assert len(SCENARIOS) == sum(len(scenarios_of(path)) for path in FILES)
    assert {scenario.policy for scenario in SCENARIOS.values()} <= set(policies())


def _difference(scenario: Scenario, came: list[str]) -> str:
    lines = unified_diff(scenario.expected, came, "worked out by hand", "what came", lineterm="")
    return "\n".join([scenario.name, *lines, f"because {scenario.because}"])


def test_a_wrong_answer_is_shown_with_what_came() -> None:
    scenario = deepcopy(SCENARIOS["queue_order: the first to come starts first"])
    came = outcome_of(scenario)
    scenario.expected[1] = "b 100-160 m1:4"
    assert came != scenario.expected
    assert "-b 100-160 m1:4\n+b 100-150 m1:4" in _difference(scenario, came)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("machins m1:4", "ValueError"),
        ("machines m1", "ValueError"),
        ("costs begin=3", "KeyError"),
        ("a 0 100", "ValueError"),
        ("a 0 much 4", "duration_s"),
        ("tenant t quota=4", "KeyError"),
        ("fails m1 at 3", "ValueError"),
    ],
)
def test_a_line_that_makes_no_sense_is_named(line: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.txt"
    path.write_text(f"What this is about.\n\n== odd\njob at runs gpus\n{line}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=rf"odd.txt:5: .*{said}.*{line.split(' ', maxsplit=1)[0]}"):
        scenarios_of(path)
