"""docs/formats.md: its examples are read, and its lists are those of the code."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from cluster_manager.cells.declared import declarations_of, fleet_with_virtual_clusters
from domain.identifiers import TenantId
from formats.capacity_requests_file import parse_requests
from formats.fleet_file import parse_fleet_file
from formats.problems import FormatError
from formats.profiles_file import read_profiles
from formats.tenants_file import parse_tenants, read_tenants
from formats.trace import COLUMNS, OTHER_NAMES, TraceReader
from formats.trace_workload import tenant_of_trace
from formats.workload_file import parse_workloads

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")


def block(language: str, first_line: str = "") -> str:
    (found,) = re.findall(rf"```{language}\n({re.escape(first_line)}.*?)```", PAGE, flags=re.DOTALL)
    return str(found)


def test_the_yaml_examples_are_valid() -> None:
    fleet = parse_fleet_file(block("yaml", "# fleet\n")).fleet
    assert [len(list(region.machines())) for region in fleet.regions] == [9]
    (serving,) = parse_fleet_file(block("yaml", "# inference\n")).fleet.regions[0].clusters
    assert serving.inference is not None
    asked = parse_requests(block("yaml", "# requests\n"))
    assert [len(one.capacity) for one in asked] == [2, 1, 0]
    tenants = parse_tenants(block("yaml", "# tenants\n"))
    assert [tenant.quota.gpus_in(tenant.quota.bucket("V100")) for tenant in tenants] == [8, 16]  # type: ignore[arg-type]  # plain name
    workloads = parse_workloads(block("yaml", "# workload\n"))
    assert [workload.emulated for workload in workloads] == [False, True, False]


def test_the_virtual_clusters_of_the_examples_are_those_of_their_fleet() -> None:
    fleet = parse_fleet_file(block("yaml", "# cells\n")).fleet
    tenants = parse_tenants(block("yaml", "# virtual clusters\n"))
    (region,) = fleet_with_virtual_clusters(fleet, declarations_of(tenants)).regions
    (owner,) = region.clusters[0].cells.virtual_clusters
    assert [(owned.chain, owned.level, owned.cells) for owned in owner.cells] == [
        ("v100", "rack", 1),
        ("v100", "socket", 1),
        ("P100", "machine", 2),
    ]
    assert [pin.name for pin in owner.pinned] == ["fast"]


def test_the_trace_example_is_valid() -> None:
    reader = TraceReader(io.StringIO(block("csv", "workload_id,")), "example", strict=True)
    assert [(row.workload_id, row.gpus, row.tables) for row in reader] == [
        ("w-000", 16, ("clicks", "images")),
        ("w-001", 1, ()),
    ]


def test_the_profiles_of_the_example_are_read(tmp_path: Path) -> None:
    file = tmp_path / "profiles.csv"
    file.write_text(block("csv", "model,"), encoding="utf-8")
    assert {model: profile.greatest for model, profile in read_profiles(file).items()} == {"resnet18": 2.4}


def test_the_message_is_one_that_is_given() -> None:
    message = block("text").strip()
    with pytest.raises(FormatError) as caught:
        parse_fleet_file(
            """
            regions:
              - region: e
                clusters:
                  - {cluster: a}
                  - {cluster: b, machine_groups: [{count: 1, gpu_models: A100, cpus: 1, memory_gib: 1}]}
            """
        )
    assert str(caught.value) == message


def test_every_column_of_a_trace_is_described() -> None:
    rows = PAGE[PAGE.index("## Trace CSV") : PAGE.index("**Tenants of a trace.**")]
    for column in COLUMNS:
        assert f"`{column}`" in rows
        for other in OTHER_NAMES.get(column, ()):
            assert f"`{other}`" in rows


def test_the_list_of_virtual_clusters_is_right() -> None:
    tenants = [tenant.tenant for tenant in read_tenants(ROOT / "examples" / "demo" / "tenants.yaml")]
    rows = re.findall(r"^\| (\w+) \| ([0-9a-f]{6}(?:, [0-9a-f]{6})*) \| [\d,]+ \|$", PAGE, flags=re.MULTILINE)
    assert [name for name, _ in rows] == tenants
    for name, clusters in rows:
        assert {tenant_of_trace(TenantId(cluster), tenants) for cluster in clusters.split(", ")} == {name}
