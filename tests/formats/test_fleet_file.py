from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given

from domain.table import Table
from formats.fleet_file import (
    FleetFile,
    dump_fleet,
    fleet_document,
    fleet_file_from_document,
    parse_fleet_file,
    read_fleet_file,
)
from formats.problems import FormatError
from tests.formats.format_values import fleet_files

EXAMPLES = Path(__file__).parents[2] / "examples"


def problems_of(text: str) -> dict[str, str]:
    with pytest.raises(FormatError) as caught:
        parse_fleet_file(text)
    return {problem.field: problem.description for problem in caught.value.problems}


def test_names_machines_after_their_place() -> None:
    fleet = parse_fleet_file(
        """
        regions:
          - region: east
            clusters:
              - cluster: east-a
                racks:
                  - rack: old
                    machines: [{machine: gpu-1, gpu_model: V100, gpus: 4, cpus: 48, memory_gib: 384}]
                machine_groups:
                  - {count: 3, machines_per_rack: 2, gpu_model: A100, gpus: 8, cpus: 96, memory_gib: 1152}
                  - {count: 1, cpus: 64, memory_gib: 256}
        """
    ).fleet
    cluster = fleet.region(fleet.regions[0].region).clusters[0]
    names = {str(rack.rack): [str(machine.machine) for machine in rack.machines] for rack in cluster.racks}
    assert names == {
        "old": ["gpu-1"],
        "east-a-r01": ["east-a-r01-m01", "east-a-r01-m02"],
        "east-a-r02": ["east-a-r02-m01"],
        "east-a-r03": ["east-a-r03-m01"],
    }
    assert fleet.gpu_models() == ("A100", "V100")
    assert [machine.gpus for machine in cluster.machines()] == [4, 8, 8, 8, 0]
    assert [machine.gpu_model for machine in cluster.machines()] == ["V100", "A100", "A100", "A100", ""]


def test_reads_sizes_in_gib_or_bytes() -> None:
    tables = parse_fleet_file(
        """
        regions: [{region: east, clusters: []}, {region: west, clusters: []}]
        tables:
          - {table: a, size_gib: 1.5, home: east, replicas: [west]}
          - {table: b, size_bytes: 7, home: west}
        """
    ).tables
    assert [table.size_bytes for table in tables] == [3 * 2**29, 7]
    assert [table.regions for table in tables] == [("east", "west"), ("west",)]


@given(fleet_files())
def test_a_fleet_survives_being_written_and_read(written: FleetFile) -> None:
    assert parse_fleet_file(dump_fleet(written.fleet, written.tables)) == written
    assert fleet_file_from_document(fleet_document(written.fleet, written.tables)) == written


@pytest.mark.parametrize("name", ["fleet.yaml", "demo/fleet.yaml"])
def test_the_examples_are_valid(name: str) -> None:
    read = read_fleet_file(EXAMPLES / name)
    assert sum(machine.gpus for region in read.fleet.regions for machine in region.machines()) > 0
    assert any(isinstance(table, Table) for table in read.tables)


def test_names_every_problem_with_its_place() -> None:
    found = problems_of(
        """
        regions:
          - region: east
            clusters:
              - cluster: c
                machine_group: []
              - cluster: "sp ace"
                machine_groups: [{count: yes, cpus: .inf, memory_gib: 1e3, gpu_models: x}]
              - cluster: d
                racks: [{rack: r, machines: [{machine: m, gpus: 63, cpus: 0, memory_gib: -1}]}]
        tables: [{table: t, home: east}]
        more: 1
        """
    )
    place = "regions[0].clusters"
    assert found[f"{place}[0].machine_group"].endswith("did you mean machine_groups?")
    assert "must be a name" in found[f"{place}[1].cluster"]
    assert found[f"{place}[1].machine_groups[0].count"] == "must be a whole number, not True"
    assert found[f"{place}[1].machine_groups[0].cpus"] == "must be a finite number, not inf"
    assert found[f"{place}[1].machine_groups[0].memory_gib"].startswith("must be a number, not '1e3': with an exponent")
    assert found[f"{place}[1].machine_groups[0].gpu_models"].endswith("did you mean gpu_model?")
    assert found[f"{place}[2].racks[0].machines[0].gpus"] == "must be at most 62, not 63"
    assert found[f"{place}[2].racks[0].machines[0].cpus"] == "must be greater than 0.0, not 0"
    assert found[f"{place}[2].racks[0].machines[0].memory_gib"] == "must be greater than 0.0, not -1"
    assert found["more"].startswith("is not a field that exists here")
    assert len(found) == 10


def test_names_problems_between_the_parts() -> None:
    found = problems_of(
        """
        regions:
          - region: east
            clusters:
              - {cluster: c, machine_groups: [{count: 1, cpus: 1, memory_gib: 1}]}
              - {cluster: c, racks: [{rack: r, machines: [{machine: c-r01-m01, cpus: 1, memory_gib: 1}]}]}
          - {region: east, clusters: []}
        tables: [{table: t, size_gib: 1, home: eats, replicas: [north]}, {table: t, size_gib: 1, size_bytes: 1, home: east}]
        """
    )
    assert found["regions[0].clusters[1]"].startswith("cluster c is already at regions[0].clusters[0]")
    assert found["regions[0].clusters[1].racks[0].machines[0]"].startswith("machine c-r01-m01 is already at")
    assert found["regions[1]"].startswith("region east is already at regions[0]")
    assert found["tables[0].home"] == "there is no region eats; did you mean east?"
    assert found["tables[0].replicas[0]"].startswith("there is no region north")
    assert found["tables[1]"] in {
        "table t is already at tables[0]; names are unique, rename one",
        "must have either size_gib or size_bytes",
    }


@pytest.mark.parametrize(
    ("machine", "field"),
    [
        ("{machine: m, gpus: 8, cpus: 1, memory_gib: 1}", "gpu_model"),
        ("{machine: m, gpu_model: A100, cpus: 1, memory_gib: 1}", "gpus"),
        ("{machine: m, gpu_model: any, gpus: 8, cpus: 1, memory_gib: 1}", "gpu_model"),
    ],
    ids=["model missing", "GPUs missing", "any is no model"],
)
def test_a_machine_has_both_gpus_and_model_or_neither(machine: str, field: str) -> None:
    found = problems_of(
        f"regions: [{{region: e, clusters: [{{cluster: c, racks: [{{rack: r, machines: [{machine}]}}]}}]}}]"
    )
    assert list(found) == [f"regions[0].clusters[0].racks[0].machines[0].{field}"]


def test_refuses_absurdly_many_machines_before_it_builds_them() -> None:
    group = "{count: 900000, cpus: 1, memory_gib: 1}"
    found = problems_of(f"regions: [{{region: e, clusters: [{{cluster: c, machine_groups: [{group}, {group}]}}]}}]")
    assert found == {"regions": "have 1800000 machines together; at most 1000000 are possible"}


def test_refuses_a_fleet_without_regions() -> None:
    assert problems_of("regions: []") == {"regions": "is empty; a fleet has at least one region"}


def test_says_which_file_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    with pytest.raises(FormatError, match=r"fleet\.yaml: cannot be read: No such file"):
        read_fleet_file(path)
    path.write_bytes(b"regions: \xff")
    with pytest.raises(FormatError, match=r"fleet\.yaml: after line 0: is not UTF-8"):
        read_fleet_file(path)


def test_a_cluster_names_its_mechanism_and_an_unknown_one_is_refused() -> None:
    text = """
        regions:
          - region: east
            clusters:
              - cluster: east-a
                mechanism: {mechanism}
                machine_groups: [{{count: 1, cpus: 96, memory_gib: 1152}}]
        """
    for name in ("packing", "cells"):
        assert parse_fleet_file(text.format(mechanism=name)).fleet.regions[0].clusters[0].mechanism == name
    assert problems_of(text.format(mechanism="packin")) == {
        "regions[0].clusters[0].mechanism": "there is no placement mechanism packin; did you mean packing?"
    }


def inference_problems(inference: str) -> dict[str, str]:
    return problems_of(
        "regions: [{region: east, clusters: [{cluster: c, inference: {"
        + inference
        + "}, machine_groups: [{count: 1, cpus: 8, memory_gib: 8}]}]}]"
    )


def test_inference_clusters_say_who_serves_there_and_how_machines_are_lent() -> None:
    at = "regions[0].clusters[0].inference"
    remedy = "must say who serves inference; give either address (host:port of its InferenceScheduler) or series (a CSV file to play)"
    assert inference_problems("headroom: 0.1") == {at: remedy}
    assert inference_problems("address: 'a:1', series: /load.csv") == {at: remedy}
    assert inference_problems("address: serving") == {f"{at}.address": "must be host:port, not serving"}
    assert inference_problems("series: load.csv") == {
        f"{at}.series": "must be an absolute path where the service runs, not load.csv"
    }
    assert "there is no forecast autoregresive; did you mean autoregressive?" in str(
        inference_problems("address: 'a:1', forecast: autoregresive")
    )
    assert f"{at}.reclaiming" in inference_problems("address: 'a:1', reclaiming: dearest")
    assert f"{at}.headroom" in inference_problems("address: 'a:1', headroom: 1.0")
