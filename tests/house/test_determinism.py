import pytest

from tests.house.determinism import assert_same_output

_FLEET_VALUES = """
from domain.identifiers import GpuModel
from domain.resources import Quota, ResourceVector
models = [GpuModel(name) for name in ("h100", "a100", "v100", "t4", "l4", "mi300")]
print(ResourceVector.of({model: 8 for model in set(models)}, cpus=64.0))
print(Quota.of({model: 8 for model in set(models)}))
"""


def test_values_built_from_unordered_mappings_are_ordered() -> None:
    assert "h100" in assert_same_output(_FLEET_VALUES)


def test_the_harness_notices_the_order_of_a_set() -> None:
    with pytest.raises(AssertionError, match="gives another output"):
        assert_same_output("print(list({f'machine-{number}' for number in range(100)}))")


def test_the_harness_refuses_silence() -> None:
    with pytest.raises(AssertionError, match="printed nothing"):
        assert_same_output("pass")


def test_the_harness_refuses_a_failing_snippet() -> None:
    with pytest.raises(AssertionError, match="exit code 3"):
        assert_same_output("raise SystemExit(3)")


def test_the_harness_hands_arguments_over() -> None:
    assert assert_same_output("import sys; print(sys.argv[1:])", ["east", "west"]) == "['east', 'west']\n"
