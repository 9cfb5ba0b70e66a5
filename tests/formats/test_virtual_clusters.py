from __future__ import annotations

import pytest
from hypothesis import given

from domain.cells import CellHierarchy, CellLevel
from domain.declared_cells import DeclaredCells, DeclaredMachines, DeclaredPin, DeclaredVirtualCluster
from formats.fleet_file import dump_fleet, parse_fleet_file
from formats.problems import FormatError
from formats.tenants_file import dump_tenants, parse_tenants
from formats.virtual_clusters import parse_virtual_clusters, virtual_clusters_document
from formats.yaml_document import dump_document
from tests.formats.format_values import virtual_cluster_lists

FLEET = """
regions:
  - region: east
    clusters:
      - cluster: east-a
        mechanism: cells
        cells:
          hierarchies:
            - hierarchy: v100
              gpu_model: V100
              levels:
                - {{level: gpu}}
                - {{level: switch, split: 2}}
                - {{level: machine, split: 4}}
                - {{level: rack, split: 2}}
        machine_groups: [{{count: 4, gpu_model: V100, gpus: 8, cpus: 96, memory_gib: 512}}]
      - cluster: east-b
{rest}
"""
PACKED = "        machine_groups: [{count: 1, cpus: 8, memory_gib: 8}]"


def fleet_problems(text: str) -> dict[str, str]:
    with pytest.raises(FormatError) as caught:
        parse_fleet_file(text)
    return {problem.field: problem.description for problem in caught.value.problems}


def tenant_problems(virtual_cluster: str) -> dict[str, str]:
    """Of a tenants.yaml, and of a file of virtual clusters alone: both say the same."""
    text = f"tenants: [{{tenant: a, priority: 1, virtual_clusters: [{virtual_cluster}]}}]"
    with pytest.raises(FormatError) as caught:
        parse_tenants(text)
    with pytest.raises(FormatError) as alone:
        parse_virtual_clusters(text)
    assert alone.value.problems == caught.value.problems
    return {problem.field: problem.description for problem in caught.value.problems}


def test_reads_hierarchies_and_writes_them_again() -> None:
    described = parse_fleet_file(FLEET.format(rest=PACKED))
    cells, packed = described.fleet.regions[0].clusters
    levels = (CellLevel("gpu"), CellLevel("switch", 2), CellLevel("machine", 4), CellLevel("rack", 2))
    assert cells.cells.hierarchies == (CellHierarchy("v100", "V100", levels),)  # type: ignore[arg-type]  # plain name
    assert packed.cells.hierarchies == ()
    assert parse_fleet_file(dump_fleet(described.fleet)) == described


@pytest.mark.parametrize(
    ("old", "new", "field", "problem"),
    [
        ("split: 4", "split: 0", "levels[2].split", "must be at least 1, not 0"),
        ("{level: gpu}", "{level: gpu, split: 2}", "levels[0].split", "the lowest level is a single GPU"),
        (
            "level: switch, split: 2",
            "level: switch",
            "levels[1].split",
            "is missing; say into how many cells of level gpu",
        ),
        ("level: switch", "level: gpu", "levels[1].level", "gpu is there already"),
        ("level: machine", "level: node", "levels", "has no level machine; call the level of a single machine so"),
        ("gpu_model: V100\n", "gpu_model: V100\n              machines: []\n", "machines", "is empty"),
        ("gpu_model: V100\n", "gpu_model: V100\n              machines: [m, m]\n", "machines", "names m twice"),
        ("split: 4", "splits: 4", "levels[2].splits", "did you mean split?"),
    ],
)
def test_a_hierarchy_that_makes_no_sense_is_named(old: str, new: str, field: str, problem: str) -> None:
    found = fleet_problems(FLEET.format(rest=PACKED).replace(old, new))
    assert problem in found[f"regions[0].clusters[0].cells.hierarchies[0].{field}"]


def test_only_a_cluster_of_cells_has_hierarchies() -> None:
    found = fleet_problems(FLEET.format(rest=PACKED).replace("mechanism: cells", "mechanism: packing"))
    assert "mechanism cells only, and this is packing" in found["regions[0].clusters[0].cells"]


def test_a_file_of_virtual_clusters_needs_nothing_else_and_may_be_a_tenants_file() -> None:
    declared = DeclaredVirtualCluster(
        "east-a",  # type: ignore[arg-type]  # plain names
        (DeclaredCells("rack", 1, "v100"),),
        (DeclaredPin("mine", "switch", "m1", 2),),  # type: ignore[arg-type]  # plain name
    )
    short = DeclaredVirtualCluster("east-a", machines=DeclaredMachines(32, 4))  # type: ignore[arg-type]  # plain name
    both = """[{cluster: east-a, cells: [{hierarchy: v100, level: rack, cells: 1}],
                pinned: [{name: mine, level: switch, machine: m1, gpu: 2}]},
               {cluster: east-a, gpus: 32, machines: 4}]"""
    alone = parse_virtual_clusters(f"tenants: [{{tenant: a, virtual_clusters: {both}}}, {{tenant: b}}]")
    assert alone == {"a": (declared, short), "b": ()}
    tenants = f"tenants: [{{tenant: a, priority: 0, quota: {{gpus: 32}}, virtual_clusters: {both}}}]"
    assert parse_virtual_clusters(tenants) == {"a": (declared, short)}
    assert parse_tenants(tenants)[0].virtual_clusters == (declared, short)
    assert parse_tenants(dump_tenants(parse_tenants(tenants))) == parse_tenants(tenants)


@given(virtual_cluster_lists())
def test_virtual_clusters_survive_being_written_and_read(owned: tuple[DeclaredVirtualCluster, ...]) -> None:
    document = {"tenants": [{"tenant": "a", "virtual_clusters": virtual_clusters_document(owned)}]}
    assert parse_virtual_clusters(dump_document(document)) == {"a": owned}


@pytest.mark.parametrize(
    ("declared", "field", "problem"),
    [
        ("{cluster: c}", "", "owns nothing; say cells, or gpus and machines, or pinned"),
        ("{cluster: c, gpus: 8}", ".machines", "is missing beside gpus"),
        ("{cluster: c, machines: 8}", ".gpus", "is missing beside machines"),
        ("{cluster: c, gpus: 8, machines: 0}", ".machines", "must be at least 1, not 0"),
        ("{cluster: c, gpus: 8, machines: 1, gpu_model: any}", ".gpu_model", "must be a real model"),
        ("{cluster: c, cells: [{level: gpu, cells: 0}]}", ".cells[0].cells", "must be at least 1, not 0"),
        ("{cluster: c, cells: [{level: gpu, cells: 1}], gpus: 8, machines: 1}", "", "says cells and gpus and machines"),
        ("{cluster: c, cells: [{level: gpu, cells: 1}], gpu_model: V100}", ".gpu_model", "goes with gpus and machines"),
        ("{cluster: c, cells: [{cells: 1}]}", ".cells[0].level", "is missing; add it"),
        ("{cluster: c, pinned: [{name: p, level: gpu, machine: m, gpu: -1}]}", ".pinned[0].gpu", "must be at least 0"),
        ("{cells: [{level: gpu, cells: 1}]}", ".cluster", "is missing; add it"),
        ("{cluster: c, cell: []}", ".cell", "did you mean cells?"),
    ],
)
def test_a_virtual_cluster_that_makes_no_sense_is_named(declared: str, field: str, problem: str) -> None:
    found = tenant_problems(declared)
    assert problem in found[f"tenants[0].virtual_clusters[0]{field}"]


def test_a_file_of_virtual_clusters_names_each_tenant_once_and_has_some() -> None:
    with pytest.raises(FormatError, match=r"tenants\[1\].tenant: tenant a is there already"):
        parse_virtual_clusters(
            "tenants: [{tenant: a}, {tenant: a, virtual_clusters: [{cluster: c, gpus: 1, machines: 1}]}]"
        )
    with pytest.raises(FormatError, match="have no virtual_clusters"):
        parse_virtual_clusters("tenants: [{tenant: a}]")
