"""docs/events.md is taken at its word: its examples are a valid log, its tables say what the validator wants."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster_manager.cells.declared import declarations_of, fleet_with_virtual_clusters
from domain.events import EventKind
from domain.eviction import EvictionRule
from formats.event_log import event_from_record
from formats.fleet_file import read_fleet_file
from formats.tenants_file import read_tenants
from simulator.validate import validate
from simulator.validation.report import Invariant, ValidationReport
from tests.simulator.log_builder import Json

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "events.md").read_text(encoding="utf-8")
RESERVED = {"invariant_broken", "run_ended"}
COMMON = {"t", "event", "workload", "attempt", "tenant", "priority", "level", "region", "cluster"}


def records_in(text: str) -> list[Json]:
    blocks = re.findall(r"```jsonl\n(.*?)```", text, flags=re.DOTALL)
    return [json.loads(line) for block in blocks for line in block.splitlines()]


def sections() -> Iterator[tuple[str, str]]:
    """Kind and text of every `###` section."""
    for part in PAGE.split("\n### ")[1:]:
        kind, _, text = part.partition("\n")
        yield kind, text.split("\n## ")[0]


def table_fields(text: str) -> Iterator[tuple[str, bool]]:
    """Field and whether it is always required, from the section's table."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) == 4:
            for field in re.findall(r"`(\w+)`", cells[0]):
                yield field, cells[2] == "yes"


def check(records: list[Json], example: str = "examples") -> ValidationReport:
    tenants = read_tenants(ROOT / example / "tenants.yaml")
    described = read_fleet_file(ROOT / example / "fleet.yaml")
    rule = EvictionRule(minimum_run_time_s=60.0, evictions_per_workload_and_hour=1)
    fleet = fleet_with_virtual_clusters(described.fleet, declarations_of(tenants))
    return validate(records, fleet, tenants, tables=described.tables, complete=True, rule=rule)


KINDS, WITH_VIRTUAL_CLUSTERS = PAGE.split("\n## A log with virtual clusters\n")
EXAMPLE, SHARED = records_in(KINDS), records_in(WITH_VIRTUAL_CLUSTERS)
SECTIONS = dict(sections())
REQUIRED = [(kind, field) for kind, text in SECTIONS.items() for field, required in table_fields(text) if required]


def test_has_a_section_for_every_kind() -> None:
    assert set(SECTIONS) == {kind.value for kind in EventKind} - RESERVED
    assert all(f"`{kind}`" in PAGE for kind in RESERVED)


def test_the_examples_are_one_valid_log() -> None:
    report = check(EXAMPLE)
    assert report.valid, str(report)
    assert set(report.events_by_kind) == set(SECTIONS)
    # I6 is about virtual clusters, of which the example's fleet has none; I7 is about profiles, which are not given.
    assert all(report.checks[invariant] > 0 for invariant in set(Invariant) - {Invariant.I6, Invariant.I7})


def test_the_example_with_virtual_clusters_is_a_valid_log_too() -> None:
    report = check(SHARED, "examples/virtual_clusters")
    assert report.valid, str(report)
    assert report.checks[Invariant.I6] == 1


def test_never_waits_an_owner_in_the_example_while_it_has_cells() -> None:
    """The same log without the attempt that uses all that its tenant owns."""
    ends = [record for record in SHARED if record["workload"] == "a-1"]
    idle = [record for record in SHARED if record not in ends and record.get("cause") != "preempted"]
    found = check(idle, "examples/virtual_clusters").shown
    assert [v.invariant for v in found if v.invariant is Invariant.I6] == [Invariant.I6]


@pytest.mark.parametrize("kind", SECTIONS)
def test_an_example_has_the_fields_of_its_table(kind: str) -> None:
    like_machine_down = kind in ("machine_draining", "machine_up")
    text = SECTIONS["machine_down" if like_machine_down else kind]
    documented = {field for field, _ in table_fields(text)} | COMMON
    examples = [record for record in records_in(SECTIONS[kind]) if record["event"] == kind]
    assert examples
    for record in examples:
        assert set(record) <= documented
        assert event_from_record(record).as_json() == record


@pytest.mark.parametrize(("kind", "field"), REQUIRED, ids=[f"{kind}.{field}" for kind, field in REQUIRED])
def test_never_passes_over_a_required_field_that_is_missing(kind: str, field: str) -> None:
    place = next(index for index, record in enumerate(EXAMPLE) if record["event"] == kind)
    damaged = {name: value for name, value in EXAMPLE[place].items() if name != field}
    report = check([*EXAMPLE[:place], damaged, *EXAMPLE[place + 1 :]])
    found = [v for v in report.shown if v.line == place + 1 and v.invariant is Invariant.LOG]
    assert found, f"no check misses {field} in {kind}:\n{report}"
    assert field in found[0].sentence


@pytest.mark.parametrize("field", ["t", "event"])
def test_never_passes_over_a_record_without_time_or_kind(field: str) -> None:
    damaged = {name: value for name, value in EXAMPLE[0].items() if name != field}
    assert not check([damaged, *EXAMPLE[1:]]).valid
