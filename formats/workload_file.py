"""workload.yaml: what a user submits. The same fields as the protos, in the words of domain/workload.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from pydantic import BeforeValidator

from domain.dependencies import dependency_of
from domain.identifiers import ANY_GPU_MODEL, GpuModel, JobName, RegionId, TableId, TenantId
from domain.model_profile import ModelProfile
from domain.notification import Notification
from domain.resources import TaskResources
from domain.scaling import ScalingPoint
from domain.workload import (
    DEFAULT_STOP_GRACE_S,
    Command,
    Emulated,
    EntryPoint,
    JobSpecification,
    PythonCallable,
    RetryPolicy,
    TableInput,
    WorkloadSpecification,
)
from formats.affinity_fields import AffinitySchema, affinity_documents, affinity_of, affinity_problems
from formats.problems import FieldProblem, FormatError
from formats.runtime_fields import RuntimeSchema, runtime_document, runtime_of
from formats.scaling_curves import curve_of_mapping
from formats.schema import Schema, parse_schema
from formats.workload_checks import check_workload
from formats.yaml_document import load_documents

_RETRY = RetryPolicy()
_ENTRY_POINTS = ("command", "python", "emulated")


class ResourcesSchema(Schema):
    gpus: int = 0
    gpu_model: str = str(ANY_GPU_MODEL)
    cpus: float | None = None
    memory_gib: float | None = None


class EmulatedSchema(Schema):
    duration_s: float
    checkpoint_interval_s: float = 0.0


class ProfileSchema(Schema):
    skew: float | None = None
    largest_tensor_mib: float | None = None
    model_mib: float | None = None


class JobSchema(Schema):
    name: str
    tasks: int = 1
    max_tasks: int = 0
    resources: ResourcesSchema
    command: list[str] | None = None
    python: str | None = None
    emulated: EmulatedSchema | None = None
    environment: dict[str, str] = {}
    consolidate: bool = False
    across_clusters: bool = False
    profile: ProfileSchema | None = None
    scaling: Annotated[dict[int, float] | None, BeforeValidator(curve_of_mapping)] = None
    affinity: AffinitySchema | None = None
    pinned_cell: str = ""
    yields_to_downgrade: bool = False
    runtime: RuntimeSchema | None = None


def _table_by_name(value: object) -> object:
    """A plain name is a table that need not be fresh."""
    return {"table": value} if isinstance(value, str) else value


class TableInputSchema(Schema):
    table: str
    fresh: bool = False
    max_age_s: float | None = None
    newest_partitions: int | None = None


class RetrySchema(Schema):
    max_retries: int = _RETRY.max_retries
    backoff_s: float = _RETRY.backoff_s
    backoff_cap_s: float = _RETRY.backoff_cap_s
    on_exit_codes: list[int] = []
    never_on: list[int] = []


def _notification_by_url(value: object) -> object:
    """A plain URL is told of everything."""
    return {"url": value} if isinstance(value, str) else value


class NotificationSchema(Schema):
    url: str
    events: list[str] = []


class WorkloadSchema(Schema):
    name: str
    tenant: str
    jobs: list[JobSchema]
    tables: list[Annotated[TableInputSchema, BeforeValidator(_table_by_name)]] = []
    regions: list[str] = []
    labels: dict[str, str] = {}
    retry: RetrySchema = RetrySchema()
    stop_grace_s: float = DEFAULT_STOP_GRACE_S
    priority: int | None = None
    working_directory: str | None = None
    """A folder, from where the file is; whoever submits packs it. What is submitted names the package."""
    package: str = ""
    max_time_s: float | None = None
    hold: bool = False
    priority_class: str = ""
    after: list[str] = []
    array: str | int = ""
    """One index alone is a number to YAML."""
    notify: Annotated[NotificationSchema | None, BeforeValidator(_notification_by_url)] = None


@dataclass(frozen=True, slots=True)
class WorkloadDocument:
    """A workload of a file, and the folder that it wants packed (None: it does not say)."""

    specification: WorkloadSpecification
    working_directory: str | None = None


def parse_workloads(
    text: str, source: str = "workload.yaml", complete: Callable[[object, str], object] = lambda document, _: document
) -> tuple[WorkloadSpecification, ...]:
    """The workloads of a YAML text, one per document; raises FormatError with every problem of the first bad one.

    `complete` gets each document, and its source, before it is read: the files that it names may be put into it.
    """
    return tuple(document.specification for document in parse_workload_documents(text, source, complete))


def parse_workload_documents(
    text: str, source: str = "workload.yaml", complete: Callable[[object, str], object] = lambda document, _: document
) -> tuple[WorkloadDocument, ...]:
    """The same, with the working directories that they name."""
    documents = load_documents(text, source, numbered_fields=("scaling",))
    if not documents:
        raise FormatError(source, [FieldProblem("", "is empty; it must describe a workload")])
    if len(documents) == 1:
        return (_read_document(complete(documents[0], source), source),)
    named = [(document, f"{source} (document {number})") for number, document in enumerate(documents, 1)]
    return tuple(_read_document(complete(document, name), name) for document, name in named)


def workload_from_document(document: object, source: str = "workload") -> WorkloadSpecification:
    """The workload of a parsed document; raises FormatError with every problem.

    Checked by itself: whether its tenant, GPU models, tables and regions exist only the service knows.
    """
    return _read_document(document, source).specification


def _read_document(document: object, source: str) -> WorkloadDocument:
    schema = parse_schema(WorkloadSchema, document, source)
    problems = [
        problem
        for index, job in enumerate(schema.jobs)
        for problem in (
            *_entry_point_problems(job, index),
            *affinity_problems(job.affinity, f"jobs[{index}].affinity"),
        )
    ]
    if problems:
        raise FormatError(source, problems)
    specification = WorkloadSpecification(
        name=schema.name,
        tenant=TenantId(schema.tenant),
        jobs=tuple(_job(job) for job in schema.jobs),
        tables=tuple(
            TableInput(TableId(table.table), table.fresh, table.max_age_s, table.newest_partitions)
            for table in schema.tables
        ),
        regions=tuple(RegionId(region) for region in schema.regions),
        labels=tuple(sorted(schema.labels.items())),
        retry=_retry(schema.retry),
        stop_grace_s=float(schema.stop_grace_s),
        priority=schema.priority,
        package=schema.package,
        max_time_s=None if schema.max_time_s is None else float(schema.max_time_s),
        hold=schema.hold,
        priority_class=schema.priority_class,
        after=tuple(dependency_of(text) for text in schema.after),
        array=str(schema.array),
        notify=None if schema.notify is None else Notification(schema.notify.url, tuple(schema.notify.events)),
    )
    found = [*check_workload(specification), *_working_directory_problems(schema)]
    if found:
        raise FormatError(source, found)
    return WorkloadDocument(specification, schema.working_directory)


def _working_directory_problems(schema: WorkloadSchema) -> list[FieldProblem]:
    if schema.working_directory is None:
        return []
    if schema.package:
        return [FieldProblem("working_directory", "stands beside package, which is a packed one; keep one of them")]
    if not schema.working_directory or "\0" in schema.working_directory:
        return [FieldProblem("working_directory", "must be a folder, such as . for the one in which this file is")]
    return []


def _retry(schema: RetrySchema) -> RetryPolicy:
    return RetryPolicy(
        schema.max_retries,
        float(schema.backoff_s),
        float(schema.backoff_cap_s),
        tuple(schema.on_exit_codes),
        tuple(schema.never_on),
    )


def _table_document(table: TableInput) -> dict[str, object]:
    bound: dict[str, object] = {} if table.max_age_s is None else {"max_age_s": table.max_age_s}
    if table.newest_partitions is not None:
        bound["newest_partitions"] = table.newest_partitions
    return {"table": str(table.table), "fresh": table.fresh} | bound


def workload_document(specification: WorkloadSpecification) -> dict[str, object]:
    """The workload as a document with every field that it says or that has a default; `workload_from_document` gives the
    same workload back (labels and environment sorted by key).
    """
    asked: dict[str, object] = {} if specification.priority is None else {"priority": specification.priority}
    if specification.package:
        asked["package"] = specification.package
    if specification.max_time_s is not None:
        asked["max_time_s"] = specification.max_time_s
    if specification.hold:
        asked["hold"] = True
    if specification.priority_class:
        asked["priority_class"] = specification.priority_class
    if specification.after:
        asked["after"] = [str(dependency) for dependency in specification.after]
    if specification.array:
        asked["array"] = specification.array
    if specification.notify is not None:
        asked["notify"] = {"url": specification.notify.url, "events": [*specification.notify.events]}
    return asked | {
        "name": specification.name,
        "tenant": str(specification.tenant),
        "jobs": [_job_document(job) for job in specification.jobs],
        "tables": [_table_document(table) for table in specification.tables],
        "regions": [str(region) for region in specification.regions],
        "labels": dict(specification.labels),
        "retry": {
            "max_retries": specification.retry.max_retries,
            "backoff_s": specification.retry.backoff_s,
            "backoff_cap_s": specification.retry.backoff_cap_s,
            **({"on_exit_codes": [*specification.retry.on_exit_codes]} if specification.retry.on_exit_codes else {}),
            **({"never_on": [*specification.retry.never_on]} if specification.retry.never_on else {}),
        },
        "stop_grace_s": specification.stop_grace_s,
    }


def _entry_point_problems(job: JobSchema, index: int) -> list[FieldProblem]:
    given = [field for field in _ENTRY_POINTS if getattr(job, field) is not None]
    if len(given) == 1:
        return []
    found = f"has {' and '.join(given)}; keep one" if given else "says nothing to run; add command, python or emulated"
    return [FieldProblem(f"jobs[{index}]", found)]


def _job(schema: JobSchema) -> JobSpecification:
    resources = schema.resources
    return JobSpecification(
        name=JobName(schema.name),
        tasks=schema.tasks,
        resources=TaskResources(
            resources.gpus,
            GpuModel(resources.gpu_model),
            float(resources.cpus) if resources.cpus is not None else None,
            float(resources.memory_gib) if resources.memory_gib is not None else None,
        ),
        entry_point=_entry_point(schema),
        max_tasks=schema.max_tasks,
        environment=tuple(sorted(schema.environment.items())),
        consolidate=schema.consolidate,
        profile=None if schema.profile is None else _profile(schema.profile),
        scaling=tuple(ScalingPoint(tasks, float(speed)) for tasks, speed in (schema.scaling or {}).items()),
        affinity=affinity_of(schema.affinity, schema.pinned_cell, yields_to_downgrade=schema.yields_to_downgrade),
        across_clusters=schema.across_clusters,
        runtime=runtime_of(schema.runtime),
    )


def _profile(schema: ProfileSchema) -> ModelProfile:
    skew, largest_mib, model_mib = (
        None if amount is None else float(amount)
        for amount in (schema.skew, schema.largest_tensor_mib, schema.model_mib)
    )
    return ModelProfile(skew, largest_mib, model_mib)


def _entry_point(schema: JobSchema) -> EntryPoint:
    if schema.command is not None:
        return Command(tuple(schema.command))
    if schema.python is not None:
        return PythonCallable(schema.python)
    if schema.emulated is not None:
        return Emulated(float(schema.emulated.duration_s), float(schema.emulated.checkpoint_interval_s))
    raise ValueError("a job without an entry point has been refused before")


def _job_document(job: JobSpecification) -> dict[str, object]:
    resources: dict[str, object] = {"gpus": job.resources.gpus, "gpu_model": str(job.resources.gpu_model)}
    if job.resources.cpus is not None:
        resources["cpus"] = job.resources.cpus
    if job.resources.memory_gib is not None:
        resources["memory_gib"] = job.resources.memory_gib
    return {
        "name": str(job.name),
        "tasks": job.tasks,
        "max_tasks": job.max_tasks,
        "resources": resources,
        **_entry_point_document(job.entry_point),
        "environment": dict(job.environment),
        "consolidate": job.consolidate,
        **({"across_clusters": True} if job.across_clusters else {}),
        **({} if job.profile is None else {"profile": _profile_document(job.profile)}),
        **({"scaling": {str(tasks): speed for tasks, speed in job.scaling}} if job.scaling else {}),
        **affinity_documents(job.affinity),
        **runtime_document(job.runtime),
    }


def _profile_document(profile: ModelProfile) -> dict[str, float]:
    amounts = {
        "skew": profile.stated_skew,
        "largest_tensor_mib": profile.largest_tensor_mib,
        "model_mib": profile.model_mib,
    }
    return {field: amount for field, amount in amounts.items() if amount is not None}


def _entry_point_document(entry_point: EntryPoint) -> dict[str, object]:
    match entry_point:
        case Command(arguments):
            return {"command": list(arguments)}
        case PythonCallable(target):
            return {"python": target}
        case Emulated(duration_s, checkpoint_interval_s):
            return {"emulated": {"duration_s": duration_s, "checkpoint_interval_s": checkpoint_interval_s}}
