"""Fleets from numbers, lists of nodes and files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.fleet import Fleet
from formats.fleet_file import check_fleet, dump_fleet, parse_fleet_file
from formats.problems import FormatError
from simulator.inputs.fleets import FleetSource, fleet_from, gpus_of_fleet, gpus_of_regions, parse_region_gpus

OURS = "node,gpu_model,gpus,cpus,memory_gib\nn1,T4,2,96,512\nn2,V100,8,,\nn3,,0,64,256\n"
V2023 = "sn,cpu_milli,memory_mib,gpu,model\nn1,64000,262144,2,P100\nn2,8000,65536,0,nan\n"
V2020 = "m1,P100,64,512,2\nm2,MISC,96,512,8\n"


def sizes(fleet: Fleet) -> list[int]:
    return [machine.gpus for region in fleet.regions for machine in region.machines()]


def test_a_number_of_gpus_is_enough() -> None:
    fleet = fleet_from(FleetSource(gpus=1344))
    assert (len(fleet.regions), sizes(fleet)) == (1, [8] * 168)
    (cluster,) = fleet.regions[0].clusters
    assert [len(rack.machines) for rack in cluster.racks] == [16] * 10 + [8]
    machine = cluster.racks[0].machines[0]
    assert (machine.machine, machine.gpu_model, machine.cpus, machine.memory_gib) == (
        "region-1-c01-r01-m01",
        "V100",
        96.0,
        512.0,
    )


def test_gpus_are_divided_among_regions_and_clusters() -> None:
    source = FleetSource(gpus=100, gpus_per_machine=4, regions=3, clusters_per_region=2, cpu_machines=5)
    fleet = fleet_from(source)
    assert gpus_of_regions(fleet) == (("region-1", 36), ("region-2", 32), ("region-3", 32))
    assert [len(list(cluster.machines())) for region in fleet.regions for cluster in region.clusters] == [
        6,
        5,
        5,
        5,
        5,
        4,
    ]
    assert sizes(fleet).count(0) == 5


def test_regions_have_the_names_and_sizes_that_are_asked_for() -> None:
    fleet = fleet_from(FleetSource(region_gpus=parse_region_gpus("itp01=29, itp10=6"), gpu_model="A100"))
    assert [region.region for region in fleet.regions] == ["itp01", "itp10"]
    assert sizes(fleet) == [8, 8, 8, 5, 6]
    last = list(fleet.regions[0].machines())[-1]
    assert (last.gpu_model, last.cpus, last.memory_gib) == ("A100", 60.0, 320.0)


@pytest.mark.parametrize(
    ("text", "machines"),
    [
        (OURS, [("n1", "T4", 2, 96.0, 512.0), ("n2", "V100", 8, 96.0, 512.0), ("n3", "", 0, 64.0, 256.0)]),
        (V2023, [("n1", "P100", 2, 64.0, 256.0), ("n2", "", 0, 8.0, 64.0)]),
        (V2020, [("m1", "P100", 2, 64.0, 512.0), ("m2", "MISC", 8, 96.0, 512.0)]),
        (
            "machine,gpu_type,cap_cpu,cap_mem,cap_gpu\n" + V2020,
            [("m1", "P100", 2, 64.0, 512.0), ("m2", "MISC", 8, 96.0, 512.0)],
        ),
    ],
    ids=["ours", "v2023", "v2020", "v2020 with header"],
)
def test_lists_of_nodes(text: str, machines: list[tuple[str, str, int, float, float]], tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text(text)
    fleet = fleet_from(FleetSource(file=path))
    found = [(m.machine, m.gpu_model, m.gpus, m.cpus, m.memory_gib) for m in fleet.regions[0].machines()]
    assert found == machines


def test_a_fleet_file_is_read_as_it_is(tmp_path: Path) -> None:
    fleet = fleet_from(FleetSource(gpus=24, regions=2))
    path = tmp_path / "fleet.yaml"
    path.write_text(dump_fleet(fleet))
    assert fleet_from(FleetSource(file=path)) == fleet == parse_fleet_file(dump_fleet(fleet)).fleet


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (FleetSource(), "say one of --fleet, --gpus and --region-gpus: none is given"),
        (FleetSource(gpus=8, region_gpus=(("a", 1),)), "--gpus and --region-gpus are given"),
        (FleetSource(gpus=0), "--gpus: must be from 1 to"),
        (FleetSource(gpus=8, regions=2), "--gpus: come to 1 machines, fewer than the 2 regions"),
        (FleetSource(gpus=8, gpus_per_machine=0), "--gpus-per-machine: must be from 1 to 62, not 0"),
        (FleetSource(gpus=8, gpu_model="any"), "--gpu-model: must be a model's name, not 'any'"),
        (FleetSource(region_gpus=(("a", 1), ("a", 2))), "--region-gpus: names a twice"),
        (FleetSource(gpus=8, cpus_per_gpu=float("nan")), "--cpus-per-gpu: must be from"),
    ],
    ids=["nothing", "two", "no GPUs", "too many regions", "empty machines", "any", "twice", "nan"],
)
def test_numbers_that_make_no_sense_are_refused(source: FleetSource, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        fleet_from(source)
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["itp01", "itp01=", "=5", "a=1,,b=2", "a=-1", "a b=1"])
def test_region_sizes_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(FormatError, match="must be name=GPUs"):
        parse_region_gpus(text)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("n1,T4,x,96,512", "line 2, column gpus: must be a whole number"),
        ("n1,,2,96,512", "line 2, column gpu_model: is empty"),
        ("n1,T4,2,96", "line 2, column the row: has 4 cells"),
        ("n1,,0,,512", "line 2, column cpus: must be more than 0"),
        ("n1,T4,2,96,512\nn1,T4,2,96,512", "line 3, column node: n1 is on an earlier line"),
        ("", "lists no node"),
    ],
    ids=["number", "model", "short", "no CPUs", "twice", "empty"],
)
def test_a_bad_node_is_refused_with_line_and_column(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text(OURS.splitlines()[0] + "\n" + line + "\n")
    with pytest.raises(FormatError) as caught:
        fleet_from(FleetSource(file=path))
    assert message in str(caught.value)


@given(
    gpus=st.integers(1, 3000),
    per_machine=st.integers(1, 16),
    regions=st.integers(1, 5),
    clusters=st.integers(1, 4),
    per_rack=st.integers(1, 20),
    cpu_machines=st.integers(0, 30),
)
def test_never_makes_another_number_of_gpus_or_the_same_name_twice(
    gpus: int, per_machine: int, regions: int, clusters: int, per_rack: int, cpu_machines: int
) -> None:
    source = FleetSource(
        gpus=gpus,
        gpus_per_machine=per_machine,
        regions=regions,
        clusters_per_region=clusters,
        machines_per_rack=per_rack,
        cpu_machines=cpu_machines,
    )
    try:
        fleet = fleet_from(source)
    except FormatError:
        assert -(-gpus // per_machine) < regions
        return
    assert gpus_of_fleet(fleet) == gpus
    assert len(fleet.regions) == regions
    assert check_fleet(fleet) == []
    assert max(len(rack.machines) for r in fleet.regions for c in r.clusters for rack in c.racks) <= per_rack
