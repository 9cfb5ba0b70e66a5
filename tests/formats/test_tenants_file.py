from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given

from cluster_manager.cells.declared import declarations_of, fleet_with_virtual_clusters
from domain.identifiers import ANY_GPU_MODEL, GpuModel
from domain.resources import Quota
from domain.tenant import Tenant
from formats.fleet_file import read_fleet
from formats.problems import FormatError
from formats.tenants_file import (
    check_tenants,
    dump_tenants,
    parse_tenants,
    read_tenants,
    tenants_document,
    tenants_from_document,
)
from tests.formats.format_values import tenant_lists

EXAMPLES = Path(__file__).parents[2] / "examples"


def problems_of(text: str) -> dict[str, str]:
    with pytest.raises(FormatError) as caught:
        parse_tenants(text)
    return {problem.field: problem.description for problem in caught.value.problems}


def test_reads_quotas_by_model_and_plain_ones() -> None:
    ads, vision, students = parse_tenants(
        """
        tenants:
          - {tenant: ads, priority: 1, quota: {gpus: {A100: 64, any: 8}, cpus: 512}}
          - {tenant: vision, priority: 2, quota: {gpus: 16}, fair_share_weight: 2}
          - {tenant: students, priority: 6}
        """
    )
    assert ads == Tenant("ads", 1, Quota((("A100", 64), ("any", 8)), 512.0))  # type: ignore[arg-type]  # plain names
    assert vision.quota.gpus == (("any", 16),)
    assert (vision.quota.cpus, vision.fair_share_weight) == (None, 2.0)
    assert (students.quota, students.fair_share_weight) == (Quota(), 1.0)


def test_reads_quotas_at_several_priorities() -> None:
    ads, vision = parse_tenants(
        """
        tenants:
          - {tenant: ads, priority: 3, quota: {gpus: 8}, quotas: {0: {gpus: {A100: 2}}, "5": {gpus: 64, cpus: 9}}}
          - {tenant: vision, priority: 3, quotas: {3: {gpus: 16}, 1: {gpus: 4}}}
        """
    )
    a100 = GpuModel("A100")
    assert ads.quotas == (
        (0, Quota.of({a100: 2})),
        (3, Quota.of({ANY_GPU_MODEL: 8})),
        (5, Quota.of({ANY_GPU_MODEL: 64}, 9.0)),
    )
    assert vision.quota == Quota.of({ANY_GPU_MODEL: 16})
    assert vision.further_quotas == ((1, Quota.of({ANY_GPU_MODEL: 4})),)


def test_refuses_two_quotas_at_one_priority_and_priorities_that_there_are_not() -> None:
    both = problems_of("tenants: [{tenant: ads, priority: 3, quota: {gpus: 8}, quotas: {3: {gpus: 4}}}]")
    assert list(both) == ["tenants[0].quotas.3"]
    assert "tenants[0].quota already" in both["tenants[0].quotas.3"]
    (field,) = problems_of("tenants: [{tenant: ads, priority: 3, quotas: {7: {gpus: 4}}}]")
    assert field.startswith("tenants[0].quotas")


def test_a_quota_of_a_further_priority_must_name_a_model_of_the_fleet() -> None:
    tenants = parse_tenants("tenants: [{tenant: ads, priority: 3, quotas: {0: {gpus: {H100: 4}}}}]")
    assert [problem.field for problem in check_tenants(tenants, {"A100"})] == ["tenants[0].quotas.0.gpus.H100"]


@given(tenant_lists())
def test_tenants_survive_being_written_and_read(tenants: tuple[Tenant, ...]) -> None:
    assert parse_tenants(dump_tenants(tenants)) == tenants
    assert tenants_from_document(tenants_document(tenants)) == tenants


@pytest.mark.parametrize("folder", ["", "demo", "virtual_clusters"])
def test_the_examples_are_valid_and_fit_their_fleet(folder: str) -> None:
    tenants = read_tenants(EXAMPLES / folder / "tenants.yaml")
    assert len(tenants) >= 3
    fleet = read_fleet(EXAMPLES / folder / "fleet.yaml")
    assert check_tenants(tenants, fleet.gpu_models()) == []
    owned = fleet_with_virtual_clusters(fleet, declarations_of(tenants)).regions[0].clusters[0].cells.virtual_clusters
    assert [str(owner.virtual_cluster) for owner in owned] == (
        ["ads", "vision"] if folder == "virtual_clusters" else []
    )


def test_names_every_problem_with_its_place() -> None:
    found = problems_of(
        """
        tenants:
          - {tenant: ads, priority: 7, quota: {gpus: -1, cpus: .nan}}
          - {tenant: "", priority: "1", quota: {gpus: {A100: 1.5}, cores: 3}, fair_share_weight: 0}
          - {priority: true}
        """
    )
    assert found == {
        "tenants[0].priority": "must be at most 6, not 7",
        "tenants[0].quota.gpus.any": "must be at least 0, not -1",
        "tenants[0].quota.cpus": "must be a finite number, not nan",
        "tenants[1].tenant": "must be a name: 1 to 128 letters, digits or . _ : / -, beginning with a letter or digit,"
        " not ''",
        "tenants[1].priority": "must be a whole number, not '1'",
        "tenants[1].quota.gpus.A100": "must be a whole number, not 1.5",
        "tenants[1].quota.cores": "is not a field that exists here; known: cpus, gpus",
        "tenants[1].fair_share_weight": "must be at least 1e-06, not 0",
        "tenants[2].tenant": "is missing; add it",
        "tenants[2].priority": "must be a whole number, not True",
    }


def test_refuses_a_name_twice_and_an_empty_list() -> None:
    assert problems_of("tenants: [{tenant: a, priority: 1}, {tenant: a, priority: 2}]") == {
        "tenants[1].tenant": "tenant a is already at tenants[0]; names are unique, rename one"
    }
    assert problems_of("tenants: []") == {"tenants": "is empty; there must be at least one"}


def test_finds_quotas_for_models_that_no_machine_has() -> None:
    tenants = parse_tenants("tenants: [{tenant: a, priority: 1, quota: {gpus: {A10O: 8, any: 1}}}]")
    (problem,) = check_tenants(tenants, {"A100", "V100"})
    assert str(problem) == "tenants[0].quota.gpus.A10O: no machine has this GPU model; did you mean A100?"
