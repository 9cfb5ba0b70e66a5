"""Simulations of fleets that tenants share as virtual clusters, and of the private clusters that they would have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from formats.fleet_file import read_fleet
from formats.tenants_file import read_tenants
from services.command_line.exit_code import ExitCode
from tests.simulation.conftest import good, topmast
from tests.simulator.results.test_results_page import documented_keys

FLEET = ("--gpus", "320")
OF_TRACE = (*FLEET, "--vcs-of-trace")
FILE = """
tenants:
  - tenant: t0
    virtual_clusters: [{cluster: region-1-c01, gpus: 64, machines: 8}]
  - tenant: t1
    virtual_clusters: [{cluster: region-1-c01, cells: [{level: machine, cells: 16}]}]
  - tenant: idle
    virtual_clusters: [{cluster: region-1-c01, cells: [{level: gpu, cells: 3}]}]
"""


def figures(*arguments: object) -> dict[str, Any]:
    printed = json.loads(good("simulate", *arguments, "--json").stdout)
    assert isinstance(printed, dict)
    return printed


@pytest.mark.parametrize("policy", ["fifo", "las", "sjf"])
def test_owners_wait_as_long_as_in_private_clusters(trace: Path, policy: str) -> None:
    printed = figures(
        "--trace", trace, *OF_TRACE, "--policy", policy, "--against-private", "--set", "costs.checkpoint_save_s=0"
    )
    against = printed["against_private"]
    assert set(against) == documented_keys("### Against private clusters")
    assert (against["guaranteed"], against["later"], printed["excess_wait_s"]["max"]) == (300, 0, 0.0)
    assert set(against["by_tenant"]) == {"t0", "t1", "t2", "t3", "t4"}
    for tenant in against["by_tenant"].values():
        assert tenant["queueing_s"] == tenant["private_queueing_s"]
        assert tenant["completed_in_private_only"] == 0
    assert (printed["guaranteed"]["workloads"], printed["opportunistic"]) == (300, None)
    assert printed["inputs"]["vcs_of_trace"] is True


def test_with_quotas_what_is_beyond_them_is_opportunistic(trace: Path) -> None:
    alone = figures("--trace", trace, *OF_TRACE, "--policy", "fifo")
    printed = figures("--trace", trace, *OF_TRACE, "--policy", "fifo", "--with-quotas", "--against-private")
    assert printed["guaranteed"]["workloads"] + printed["opportunistic"]["workloads"] == 300
    assert printed["opportunistic"]["workloads"] > 50
    assert printed["queueing_s"]["mean"] < alone["queueing_s"]["mean"]
    assert printed["scan_passes"] > 0


def test_virtual_clusters_of_a_file(trace: Path, tmp_path: Path) -> None:
    """Tenants that own nothing use what is idle, in the log too; who owns cells and submits nothing is a tenant as well."""
    file, log = tmp_path / "vcs.yaml", tmp_path / "run.jsonl"
    file.write_text(FILE)
    arguments = (
        "--trace",
        trace,
        *FLEET,
        "--vcs",
        file,
        "--policy",
        "fifo",
        "--with-quotas",
        "--events",
        log,
        "--validate",
    )
    printed = figures(*arguments, "--against-private")
    assert printed["validation"]["valid"] is True
    files = ("--fleet", tmp_path / "run.fleet.yaml", "--tenants", tmp_path / "run.tenants.yaml")
    checked = json.loads(good("validate", log, *files, "--complete", "--json").stdout)
    assert checked["checks"] == printed["validation"]["checks"]
    assert set(printed["against_private"]["by_tenant"]) == {"t0", "t1"}
    for name, group in printed["by_tenant"].items():
        assert (group["guaranteed_gpu_s"] > 0) == (name in {"t0", "t1"}), name
    (cluster,) = read_fleet(tmp_path / "run.fleet.yaml").regions[0].clusters
    assert cluster.mechanism == "cells"
    owners = {tenant.tenant: tenant.virtual_clusters for tenant in read_tenants(tmp_path / "run.tenants.yaml")}
    assert [name for name, owned in owners.items() if owned] == ["t0", "t1", "idle"]
    told = json.loads(
        good("report", log, "--fleet", tmp_path / "run.fleet.yaml", "--out", tmp_path / "page.html", "--json").stdout
    )["runs"][0]
    assert told["guaranteed"] == printed["guaranteed"]
    assert told["by_tenant"] == printed["by_tenant"]


def test_runs_alone_are_found_again(trace: Path) -> None:
    arguments = ("--trace", trace, *OF_TRACE, "--policy", "fifo", "--against-private")
    first = good("simulate", *arguments)
    again = good("simulate", *arguments)
    assert (
        first.stdout.partition("AGAINST")[0].split("real time")[0]
        == again.stdout.partition("AGAINST")[0].split("real time")[0]
    )
    assert "comes from the cache" in again.stderr
    assert "events/s" not in again.stderr, "no tenant was run again"


def test_policies_are_compared_with_their_own_private_clusters(trace: Path) -> None:
    compared = good("compare", "--trace", trace, *OF_TRACE, "--policies", "fifo,las", "--against-private", "--json")
    runs = [
        run
        for of_policy in json.loads(compared.stdout)["runs"]
        for run in (of_policy if isinstance(of_policy, list) else [of_policy])
    ]
    assert [run["against_private"]["later"] for run in runs] == [0, 0]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--vcs-of-trace", "--gpus", "64"), "machines"),
        (("--gpus", "320", "--against-private"), "no tenant owns cells"),
    ],
)
def test_what_cannot_be_owned_is_refused(trace: Path, arguments: tuple[str, ...], complaint: str) -> None:
    refused = topmast("simulate", "--trace", trace, *arguments)
    assert refused.exit_code == ExitCode.REFUSED
    assert complaint in refused.output


def test_two_sources_of_virtual_clusters_are_refused(trace: Path, tmp_path: Path) -> None:
    file = tmp_path / "vcs.yaml"
    file.write_text(FILE)
    refused = topmast("simulate", "--trace", trace, *OF_TRACE, "--vcs", file)
    assert refused.exit_code != 0
    assert "say --vcs or --vcs-of-trace, not both" in refused.output
