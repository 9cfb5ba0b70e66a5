"""Virtual clusters of tenants.yaml in a fleet.yaml: what they are there, and what does not match."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings

from cluster_manager.cells.assignment import AssignmentProblem, assigned_cells
from cluster_manager.cells.declared import (
    declarations_of,
    field_problems,
    fleet_with_virtual_clusters,
    matched,
)
from cluster_manager.cells.hierarchy import chains_of
from domain.cells import CellHierarchy, ClusterCells, OwnedCells, PinnedCell, VirtualCluster
from domain.declared_cells import DeclaredCells, DeclaredPin, DeclaredVirtualCluster
from domain.fleet import Cluster, Fleet, Machine, Rack, Region
from domain.identifiers import ClusterId, MachineId, RackId, RegionId, TenantId
from formats.fleet_file import parse_fleet_file
from formats.problems import FormatError
from formats.tenants_file import parse_tenants
from formats.virtual_clusters import parse_virtual_clusters
from tests.cluster_manager.cells.worlds import Choices, Setting, choices, random_setting
from tests.examples import examples

FLEET = """
regions:
  - region: east
    clusters:
      - cluster: packed
        machine_groups: [{count: 1, gpu_model: V100, gpus: 8, cpus: 96, memory_gib: 512}]
      - cluster: divided
        mechanism: cells
        cells:
          hierarchies:
            - hierarchy: v100
              gpu_model: V100
              levels:
                - {level: gpu}
                - {level: socket, split: 4}
                - {level: machine, split: 2}
                - {level: rack, split: 4}
        machine_groups:
          - {count: 8, machines_per_rack: 4, gpu_model: V100, gpus: 8, cpus: 96, memory_gib: 512}
          - {count: 4, machines_per_rack: 2, gpu_model: P100, gpus: 4, cpus: 48, memory_gib: 256}
          - {count: 1, gpu_model: P100, gpus: 8, cpus: 48, memory_gib: 256}
          - {count: 2, cpus: 64, memory_gib: 256}
"""


def owned_by(declared: str, fleet: str = FLEET) -> dict[str, VirtualCluster]:
    described = fleet_with_virtual_clusters(parse_fleet_file(fleet).fleet, parse_virtual_clusters(declared))
    packed, divided = described.regions[0].clusters
    assert packed.cells.virtual_clusters == ()
    return {str(owner.virtual_cluster): owner for owner in divided.cells.virtual_clusters}


def problems(declared: str, fleet: str = FLEET) -> dict[str, str]:
    with pytest.raises(FormatError) as caught:
        owned_by(declared, fleet)
    return {problem.field: problem.description for problem in caught.value.problems}


def test_declarations_become_the_cells_of_their_hierarchies() -> None:
    owned = owned_by(
        """
        tenants:
          - tenant: vision
            virtual_clusters:
              - {cluster: divided, cells: [{level: machine, hierarchy: v100, cells: 1}, {level: socket, cells: 3}]}
              - {cluster: divided, gpu_model: P100, gpus: 8, machines: 2}
              - {cluster: divided, gpu_model: V100, gpus: 8, machines: 1}
          - tenant: ads
            virtual_clusters:
              - cluster: divided
                cells: [{level: rack, hierarchy: v100, cells: 1}]
                pinned: [{name: fast, level: socket, machine: divided-r01-m01, gpu: 5}]
          - tenant: guests
        """
    )
    assert owned == {
        "ads": VirtualCluster(
            "ads",  # type: ignore[arg-type]  # plain names
            (OwnedCells("v100", "rack", 1),),
            (PinnedCell("fast", "v100", "socket", MachineId("divided-r01-m01"), 5),),
        ),
        "vision": VirtualCluster(
            "vision",  # type: ignore[arg-type]  # plain name
            (OwnedCells("v100", "machine", 2), OwnedCells("v100", "socket", 3), OwnedCells("P100-4", "machine", 2)),
        ),
    }
    assert list(owned) == ["ads", "vision"]


def one(declared: str) -> str:
    return f"tenants: [{{tenant: a, virtual_clusters: [{declared}]}}]"


@pytest.mark.parametrize(
    ("declared", "field", "problem"),
    [
        ("{cluster: dividde, gpus: 8, machines: 1}", "cluster", "there is no cluster dividde; did you mean divided?"),
        ("{cluster: packed, gpus: 8, machines: 1}", "cluster", "packed has mechanism packing; virtual clusters need"),
        ("{cluster: divided, gpus: 8, machines: 1}", "gpu_model", "is missing: cluster divided has P100 and V100"),
        (
            "{cluster: divided, gpu_model: A100, gpus: 8, machines: 1}",
            "gpu_model",
            "has no such GPU model; did you mean V100",
        ),
        (
            "{cluster: divided, gpu_model: V100, gpus: 9, machines: 2}",
            "gpus",
            "9 GPUs in 2 machines .* a multiple of 2",
        ),
        ("{cluster: divided, gpu_model: V100, gpus: 6, machines: 2}", "gpus", r"there are 1 \(gpu\), 4 \(socket\), 8"),
        (
            "{cluster: divided, gpu_model: P100, gpus: 4, machines: 4}",
            "",
            "could be of hierarchy P100-4 or P100-8; say",
        ),
        (
            "{cluster: divided, cells: [{level: sokcet, cells: 1}]}",
            "cells[0].level",
            "no level sokcet; did you mean so",
        ),
        (
            "{cluster: divided, cells: [{level: gpu, cells: 1}]}",
            "cells[0].hierarchy",
            "is missing: several .* say v100",
        ),
        (
            "{cluster: divided, cells: [{hierarchy: v10, level: gpu, cells: 1}]}",
            "cells[0].hierarchy",
            "has no hierarchy v10; did you mean v100?",
        ),
        (
            "{cluster: divided, cells: [{hierarchy: P100-4, level: socket, cells: 1}]}",
            "cells[0].level",
            "hierarchy P100-4 has no level socket; known: gpu, machine, rack",
        ),
        (
            "{cluster: divided, pinned: [{name: p, level: socket, machine: divided-r09-m01}]}",
            "pinned[0].machine",
            "has no machine divided-r09-m01 with GPUs; did you mean",
        ),
        (
            "{cluster: divided, pinned: [{name: p, level: gpu, machine: divided-r03-m01, gpu: 4}]}",
            "pinned[0].gpu",
            "has no GPU 4; it has 4",
        ),
        (
            "{cluster: divided, pinned: [{name: p, level: gpu, machine: divided-r03-m01, hierarchy: v100}]}",
            "pinned[0].hierarchy",
            "is in hierarchy P100-4, not in v100",
        ),
        (
            "{cluster: divided, pinned: [{name: p, level: row, machine: divided-r01-m01}]}",
            "pinned[0].level",
            "hierarchy v100 has no level row",
        ),
        (
            (
                "{cluster: divided, pinned: [{name: p, level: gpu, machine: divided-r01-m01}, "
                "{name: p, level: gpu, machine: divided-r01-m02}]}"
            ),
            "pinned[1].name",
            "p is there already",
        ),
        (
            (
                "{cluster: divided, pinned: [{name: p, level: machine, machine: divided-r01-m01}, "
                "{name: q, level: gpu, machine: divided-r01-m01, gpu: 3}]}"
            ),
            "pinned[1]",
            "pinned cell q: the cell, or a part of it, is pinned already; pin another cell",
        ),
    ],
)
def test_what_does_not_match_is_named_with_a_remedy(declared: str, field: str, problem: str) -> None:
    found = problems(one(declared))
    assert list(found) == [f"tenants[0].virtual_clusters[0].{field}".rstrip(".")]
    assert re.search(problem, next(iter(found.values())))


def test_an_over_promised_level_is_named_and_by_how_much() -> None:
    declared = """
        tenants:
          - tenant: ads
            virtual_clusters: [{cluster: divided, cells: [{level: machine, hierarchy: v100, cells: 7}]}]
          - tenant: vision
            virtual_clusters: [{cluster: divided, cells: [{level: socket, cells: 2}, {level: machine, hierarchy: v100, cells: 2}]}]
        """
    assert problems(declared) == {
        "tenants[1].virtual_clusters[0].cells[1]": (
            "cluster divided, chain v100, level machine: virtual clusters own 9 cells (ads 7, vision 2), 1 more than the 8 "
            "that are left of this level once pinned cells and higher levels have theirs; own fewer cells there"
        )
    }


@pytest.mark.parametrize(
    ("old", "new", "field", "problem"),
    [
        (
            "level: rack, split: 4",
            "level: rack, split: 3",
            ".levels[3].split",
            "8 cells of level machine do not divide",
        ),
        ("level: machine, split: 2", "level: machine, split: 3", "", "machine divided-r01-m01 has 8 GPUs"),
        (
            "level: machine, split: 2",
            "level: machine, split: 1",
            ".levels[2].split",
            "make 4 GPUs, but its machines have 8",
        ),
        (
            "gpu_model: V100\n",
            "gpu_model: K80\n",
            ".gpu_model",
            "the cluster has no machine with K80; it has P100, V100: correct gpu_model, or leave the hierarchy out",
        ),
        (
            "gpu_model: V100\n",
            "gpu_model: V100\n              machines: [m9]\n",
            ".machines",
            "no machine m9 with V100 is there; correct its name in machines",
        ),
    ],
)
def test_a_hierarchy_that_does_not_divide_is_named(old: str, new: str, field: str, problem: str) -> None:
    changed = FLEET.replace(old, new)
    if "level: machine, split: 1" in new:
        changed = changed.replace("level: rack, split: 4", "level: rack, split: 2")
    found = problems("tenants: [{tenant: a, virtual_clusters: [{cluster: divided, gpus: 1, machines: 1}]}]", changed)
    assert list(found) == [f"regions[0].clusters[1].cells.hierarchies[0]{field}"]
    assert problem in next(iter(found.values()))


def test_machines_that_no_hierarchy_has_are_named() -> None:
    names = ", ".join(f"divided-r01-m{number:02d}" for number in range(1, 5))
    found = problems(
        one("{cluster: divided, gpu_model: V100, gpus: 8, machines: 1}"),
        FLEET.replace("gpu_model: V100\n", f"gpu_model: V100\n              machines: [{names}]\n"),
    )
    (problem,) = found.values()
    assert problem.startswith(
        "leave out divided-r02-m01, divided-r02-m02, divided-r02-m03, divided-r02-m04, which have"
    )


def test_problems_of_a_stored_tenant_keep_its_name() -> None:
    fleet = parse_fleet_file(FLEET).fleet
    tenants = parse_tenants(
        "tenants: [{tenant: a, priority: 1, virtual_clusters: [{cluster: none, gpus: 1, machines: 1}]}]"
    )
    (problem,) = matched(fleet, declarations_of(tenants)).problems
    assert (problem.tenant, problem.place, problem.field) == ("a", "", "virtual_clusters[0].cluster")
    (found,) = field_problems([problem], declarations_of(tenants))
    assert found.field == "tenants[0].virtual_clusters[0].cluster"


def described_by(setting: Setting) -> tuple[Fleet, dict[TenantId, tuple[DeclaredVirtualCluster, ...]]]:
    """The setting as files would say it."""
    machines = [
        (chain, Machine(machine, chain.gpu_model, chain.gpus_per_machine, 8.0, 8.0))
        for chain in setting.chains
        for machine in chain.machines
    ]
    cells = ClusterCells(tuple(CellHierarchy(chain.name, chain.gpu_model, chain.levels) for chain in setting.chains))
    racks = (Rack(RackId("r"), tuple(machine for _, machine in machines)),)
    fleet = Fleet((Region(RegionId("e"), (Cluster(ClusterId("c"), racks, "cells", cells),)),))
    declared: dict[TenantId, tuple[DeclaredVirtualCluster, ...]] = {
        TenantId(owner.virtual_cluster): (
            DeclaredVirtualCluster(
                ClusterId("c"),
                tuple(DeclaredCells(owned.level, owned.cells, owned.chain) for owned in owner.cells),
                tuple(DeclaredPin(pin.name, pin.level, pin.machine, pin.gpu, pin.chain) for pin in owner.pinned),
            ),
        )
        for owner in setting.owners
    }
    return fleet, declared


@given(choices())
@settings(max_examples=examples(100))
def test_never_refuses_what_a_cluster_can_hold_nor_accepts_what_it_cannot(choose: Choices) -> None:
    setting = random_setting(choose)
    fleet, declared = described_by(setting)
    extra = setting.chains[0]
    level = 1 + choose.below(extra.top)
    more = DeclaredCells(extra.name_of(level), 1 + choose.below(3), extra.name)
    greedy = declared | {TenantId("greedy"): (DeclaredVirtualCluster(ClusterId("c"), (more,)),)}
    for wanted in (declared, greedy):
        found = matched(fleet, wanted)
        cluster = found.fleet.regions[0].clusters[0]
        try:
            assigned_cells(chains_of(cluster, cluster.cells.hierarchies), cluster.cells.virtual_clusters)
        except AssignmentProblem:
            assert found.problems
        else:
            assert not found.problems
    assert not matched(fleet, declared).problems
