"""Settings from documents and `key=value` changes."""

from __future__ import annotations

import pytest

from formats.problems import FormatError
from simulator.engine.settings import CostSettings, SimulationSettings, settings_from


def test_nothing_said_gives_the_defaults() -> None:
    assert settings_from(None, [], "nothing") == SimulationSettings()


def test_changes_come_after_the_document_and_reach_into_groups() -> None:
    document = {"costs": {"restore_s": 5, "container_start_s": 7.5}, "scan_period_s": 300}
    settings = settings_from(document, ["costs.restore_s=0", "failures.machine_mtbf_s=2e6"], "a document")
    assert settings.costs == CostSettings(restore_s=0.0, container_start_s=7.5)
    assert settings.failures.machine_mtbf_s == 2_000_000.0
    assert settings.scan_period_s == 300.0
    assert document["costs"] == {"restore_s": 5, "container_start_s": 7.5}


def test_whole_numbers_stay_whole_where_they_must() -> None:
    assert settings_from(None, ["failures.racks_per_power_domain=4"], "x").failures.racks_per_power_domain == 4


@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param("costs.restore=3", "did you mean restore_s", id="unknown"),
        pytest.param("costs.restore_s", "must be key=value", id="without a value"),
        pytest.param("costs.restore_s=soon", "costs.restore_s", id="no number"),
        pytest.param("costs.restore_s=-1", "costs.restore_s", id="negative"),
        pytest.param("costs.restore_s=inf", "costs.restore_s", id="infinite"),
        pytest.param("costs=3", "is a group of settings", id="a group"),
        pytest.param("scan_period_s.x=3", "scan_period_s", id="no group"),
    ],
)
def test_a_wrong_change_names_its_field(change: str, says: str) -> None:
    with pytest.raises(FormatError, match=says):
        settings_from({"scan_period_s": 60}, [change], "a document")


def test_a_document_must_be_a_mapping() -> None:
    with pytest.raises(FormatError, match="must be a mapping"):
        settings_from([1, 2], [], "a list")
