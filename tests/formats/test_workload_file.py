from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given

from domain.affinity import NO_JOB_AFFINITY, CellAffinity, JobAffinity, TaskGroup
from domain.model_profile import ModelProfile
from domain.workload import Command, Emulated, PythonCallable, RetryPolicy, TableInput, WorkloadSpecification
from formats.fleet_file import read_fleet_file
from formats.problems import FormatError
from formats.tenants_file import read_tenants
from formats.workload_checks import check_workload
from formats.workload_file import (
    parse_workload_documents,
    parse_workloads,
    workload_document,
    workload_from_document,
)
from formats.yaml_document import dump_document
from tests.formats.format_values import workloads

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALLEST = "name: w\ntenant: t\njobs: [{name: j, resources: {gpus: 1}, emulated: {duration_s: 5}}]"


def parse_workload(text: str) -> WorkloadSpecification:
    (workload,) = parse_workloads(text)
    return workload


def problems_of(text: str) -> dict[str, str]:
    with pytest.raises(FormatError) as caught:
        parse_workload(text)
    return {problem.field: problem.description for problem in caught.value.problems}


def test_reads_every_field() -> None:
    workload = parse_workload(
        """
        name: resnet
        tenant: vision
        jobs:
          - name: trainer
            tasks: 2
            max_tasks: 4
            resources: {gpus: 8, gpu_model: A100, cpus: 64, memory_gib: 512.5}
            command: [python, train.py]
            environment: {B: "2", A: "1"}
            consolidate: true
            profile: {largest_tensor_mib: 392, model_mib: 548.1}
          - name: reader
            resources: {cpus: 4, memory_gib: 16}
            python: "readers.images:main"
        tables: [images, {table: labels, fresh: true}]
        regions: [east, west]
        labels: {team: x}
        retry: {max_retries: 3, backoff_s: 5, backoff_cap_s: 50}
        stop_grace_s: 12
        """
    )
    trainer, reader = workload.jobs
    assert (trainer.tasks, trainer.max_tasks, trainer.consolidate) == (2, 4, True)
    assert trainer.profile == ModelProfile(largest_tensor_mib=392.0, model_mib=548.1)
    assert reader.profile is None
    assert trainer.entry_point == Command(("python", "train.py"))
    assert trainer.environment == (("A", "1"), ("B", "2"))
    assert (trainer.resources.cpus, trainer.resources.memory_gib) == (64.0, 512.5)
    assert (reader.tasks, reader.max_tasks, reader.resources.gpus) == (1, 0, 0)
    assert reader.entry_point == PythonCallable("readers.images:main")
    assert workload.tables == (TableInput("images"), TableInput("labels", True))  # type: ignore[arg-type]  # plain names
    assert workload.regions == ("east", "west")
    assert workload.labels == (("team", "x"),)
    assert workload.retry == RetryPolicy(3, 5.0, 50.0)
    assert workload.stop_grace_s == 12.0


def test_reads_how_close_together_tasks_are_to_be() -> None:
    (one,) = parse_workload(
        """
        name: gang
        tenant: vision
        jobs:
          - name: train
            tasks: 12
            resources: {gpus: 1}
            python: "train:main"
            affinity:
              within: row
              hard: false
              groups:
                - {count: 2, within: rack, groups: [{count: 2, tasks: 2, within: machine}]}
                - {tasks: 4}
            pinned_cell: corner
            yields_to_downgrade: true
        """
    ).jobs
    machine, rack = CellAffinity("machine"), CellAffinity("rack")
    pairs = TaskGroup(4, rack, (TaskGroup(2, machine, count=2),), 2)
    assert one.affinity == JobAffinity(CellAffinity("row", hard=False), (pairs, TaskGroup(4)), "corner", True)
    assert one.affinity.is_hard
    assert parse_workload(SMALLEST).jobs[0].affinity == NO_JOB_AFFINITY


def test_fills_in_what_need_not_be_said() -> None:
    workload = parse_workload(SMALLEST)
    assert workload.jobs[0].entry_point == Emulated(5.0)
    assert workload.jobs[0].resources.gpu_model == "any"
    assert (workload.retry, workload.stop_grace_s, workload.regions) == (RetryPolicy(), 30.0, ())


@given(workloads())
def test_a_workload_survives_being_written_and_read(workload: WorkloadSpecification) -> None:
    assert parse_workload(dump_document(workload_document(workload))) == workload
    assert workload_from_document(workload_document(workload)) == workload


def test_the_example_is_valid_with_its_fleet_and_tenants() -> None:
    described = read_fleet_file(EXAMPLES / "fleet.yaml")
    fleet = described.fleet
    workload = parse_workload((EXAMPLES / "workload.yaml").read_text())
    found = check_workload(
        workload,
        {tenant.tenant for tenant in read_tenants(EXAMPLES / "tenants.yaml")},
        set(fleet.gpu_models()),
        {table.table for table in described.tables},
        {region.region for region in fleet.regions},
    )
    assert found == ()


def test_reads_several_workloads_and_says_which_one_is_wrong() -> None:
    assert [w.name for w in parse_workloads(f"{SMALLEST}\n---\n{SMALLEST}")] == ["w", "w"]
    with pytest.raises(FormatError, match=r"^workload\.yaml \(document 2\): name: is missing"):
        parse_workloads(f"{SMALLEST}\n---\ntenant: t\njobs: []")
    with pytest.raises(FormatError, match="is empty"):
        parse_workloads("")


@pytest.mark.parametrize(
    ("old", "new", "field", "words"),
    [
        ("emulated: {duration_s: 5}", "", "jobs[0]", "says nothing to run; add command, python or emulated"),
        ("emulated:", "command: [x], emulated:", "jobs[0]", "has command and emulated; keep one"),
        (
            "emulated:",
            "profile: {skew: 1.2}, emulated:",
            "jobs[0].profile.skew",
            "must be a number from 0 to 1, not 1.2",
        ),
        ("emulated:", "profile: {skew: -1}, emulated:", "jobs[0].profile.skew", "must be a number from 0 to 1, not -1"),
        ("emulated:", "profile: {}, emulated:", "jobs[0].profile", "give skew, or largest_tensor_mib and model_mib"),
        ("emulated:", "profile: {skw: 1}, emulated:", "jobs[0].profile.skw", "did you mean skew?"),
        (
            "emulated:",
            "profile: {skew: 0.5, model_mib: 3}, emulated:",
            "jobs[0].profile",
            "has a skew and sizes, of which it is the ratio; keep one or the other",
        ),
        (
            "emulated:",
            "profile: {model_mib: 3}, emulated:",
            "jobs[0].profile.largest_tensor_mib",
            "is missing beside model_mib; add it, or give skew alone",
        ),
        (
            "emulated:",
            "profile: {largest_tensor_mib: 5, model_mib: 3}, emulated:",
            "jobs[0].profile.largest_tensor_mib",
            "is 5, more than the whole model with 3; a skew is at most 1",
        ),
        (
            "emulated:",
            "profile: {largest_tensor_mib: 0, model_mib: 3}, emulated:",
            "jobs[0].profile.largest_tensor_mib",
            "must be more than 0 MiB",
        ),
        ("emulated: {duration_s: 5}", "command: python x.py", "jobs[0].command", "must be a list"),
        ("emulated: {duration_s: 5}", "command: [sleep, 5]", "jobs[0].command[1]", "must be text (put it in quotes)"),
        ("gpus: 1", "gpus: 1, cpu: 3", "jobs[0].resources.cpu", "did you mean cpus?"),
        ("gpus: 1", "gpus: 1.5", "jobs[0].resources.gpus", "must be a whole number, not 1.5"),
        ("gpus: 1", "gpus: 99", "jobs[0].resources.gpus", "must be a whole number from 0 to 62, not 99"),
        ("tenant: t", "tenant: t\nlabels: {a: 1}", "labels.a", "must be text (put it in quotes), not 1"),
        ("tenant: t", "tenant: t\ntables: [3]", "tables[0]", "must be a mapping"),
        ("tenant: t", "tenant: t\ntables: [{tabel: x}]", "tables[0].tabel", "did you mean table?"),
        ("tenant: t", "tenant: t\nretry: 3", "retry", "must be a mapping"),
        ("name: w", "name: NO", "name", "must be text (put it in quotes), not False"),
    ],
    ids=lambda value: value if "[" not in value and "\n" not in value else "",
)
def test_names_the_field_and_the_remedy(old: str, new: str, field: str, words: str) -> None:
    assert old in SMALLEST
    found = problems_of(SMALLEST.replace(old, new, 1))
    assert field in found
    assert words in found[field]


@pytest.mark.parametrize(
    ("added", "words"),
    [
        ("working_directory: .\npackage: " + "a" * 64, "keep one of them"),
        ("working_directory: ''", "must be a folder"),
    ],
    ids=["both", "empty"],
)
def test_refuses_a_working_directory_that_says_nothing(added: str, words: str) -> None:
    assert words in problems_of(f"{SMALLEST}\n{added}\n")["working_directory"]


def test_reads_the_working_directory_beside_the_workload() -> None:
    (document,) = parse_workload_documents(f"{SMALLEST}\nworking_directory: ../project\n")
    assert document.working_directory == "../project"
    assert document.specification == parse_workloads(SMALLEST)[0]


def test_refuses_what_is_no_mapping() -> None:
    assert problems_of("- a") == {
        "": "must be a mapping with the fields name, tenant, jobs, tables, regions, labels, retry, stop_grace_s, priority,"
        " working_directory, package, max_time_s, hold, priority_class, after, array, notify, but it is a list"
    }


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        pytest.param("affinity: {hard: true}", "affinity.hard", "says nothing without a level", id="no level"),
        pytest.param(
            "across_clusters: true, tasks: 2, max_tasks: 4",
            "across_clusters",
            "cannot be beside max_tasks: what is split over clusters keeps its tasks",
            id="elastic across clusters",
        ),
        pytest.param(
            "across_clusters: true, affinity: {within: rack}",
            "across_clusters",
            "cannot be beside a hard affinity within one rack",
            id="hard across clusters",
        ),
        pytest.param(
            "across_clusters: true, affinity: {groups: [{tasks: 1}]}",
            "across_clusters",
            "cannot be beside affinity.groups",
            id="groups across clusters",
        ),
        pytest.param(
            "across_clusters: true, pinned_cell: mine",
            "across_clusters",
            "cannot be beside pinned_cell",
            id="pinned across clusters",
        ),
        pytest.param("affinity: {within: ''}", "affinity.within", "must be the name of a level of cells", id="empty"),
        pytest.param("pinned_cell: 'a b'", "pinned_cell", "must be the name of a pinned cell", id="pinned"),
        pytest.param(
            "consolidate: true, affinity: {within: rack}", "affinity.within", "is given beside consolidate", id="both"
        ),
        pytest.param(
            "tasks: 5, affinity: {groups: [{count: 2, tasks: 2}]}",
            "affinity.groups",
            "have 4 tasks together, but jobs[0].tasks is 5; add a group of 1 for the rest",
            id="too few",
        ),
        pytest.param(
            "affinity: {groups: [{tasks: 1, groups: [{tasks: 2, within: machine}]}]}",
            "affinity.groups[0].groups",
            "have 2 tasks together, but jobs[0].affinity.groups[0].tasks is 1; take some away",
            id="too many",
        ),
        pytest.param(
            "affinity: {groups: [{count: 0, tasks: 1}]}",
            "affinity.groups[0].count",
            "must be a whole number from 1 on, not 0",
            id="count",
        ),
        pytest.param(
            "affinity: {groups: [{}]}", "affinity.groups[0].tasks", "is missing or 0; say how many", id="no tasks"
        ),
        pytest.param(
            "tasks: 2000, affinity: {groups: [" + ", ".join(["{tasks: 1}"] * 2000) + "]}",
            "affinity.groups",
            "are too many: at most 200 groups, 16 within each other, are possible; say count",
            id="too many groups",
        ),
    ],
)
def test_names_what_is_wrong_with_an_affinity(fields: str, field: str, words: str) -> None:
    problems = problems_of(SMALLEST.replace("name: j", f"name: j, {fields}"))
    assert words in problems[f"jobs[0].{field}"]


def test_cells_are_for_tasks_with_gpus() -> None:
    problems = problems_of(
        "name: w\ntenant: t\njobs: [{name: j, resources: {cpus: 1, memory_gib: 1}, emulated: {duration_s: 5}, "
        "affinity: {within: switch}, pinned_cell: corner, yields_to_downgrade: true}]"
    )
    assert set(problems) == {"jobs[0].affinity.within", "jobs[0].pinned_cell", "jobs[0].yields_to_downgrade"}
    assert "or say machine or rack" in problems["jobs[0].affinity.within"]
