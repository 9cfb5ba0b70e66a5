"""Is this workload acceptable? The one answer for workload files and for what arrives over the network.

Written out by hand, since the service asks more than 10,000 times a second: a workload without problems costs
a few microseconds. Whether any region could host the gang is the regional schedulers' question, not this one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection

from domain.affinity import NO_JOB_AFFINITY
from domain.identifiers import ANY_GPU_MODEL, IDENTIFIER_PATTERN
from domain.model_profile import ModelProfile
from domain.priority_class import IMPORTANCE
from domain.resources import TaskResources
from domain.tenant import HIGHEST_PRIORITY, LOWEST_PRIORITY, Tenant
from domain.workload import (
    Command,
    Emulated,
    JobSpecification,
    PythonCallable,
    RetryPolicy,
    TableInput,
    WorkloadSpecification,
)
from domain.workload_array import BadArray, parse_array
from formats.across_clusters_checks import check_across_clusters
from formats.affinity_checks import check_affinity
from formats.dependency_checks import check_dependencies
from formats.exit_code_checks import check_exit_codes
from formats.notification_checks import check_notification
from formats.problems import FieldProblem, in_quotes, suggestion
from formats.runtime_checks import check_runtime
from formats.scaling_curves import NOT_ELASTIC, check_curve
from formats.schema import GREATEST_CPUS_PER_MACHINE, GREATEST_GPUS_PER_MACHINE, GREATEST_MEMORY_GIB

GREATEST_JOBS = 100
GREATEST_TASKS = 100_000
"""Of one job, and of all jobs of a workload together."""
GREATEST_TABLES = 1_000
GREATEST_PARTITIONS = 1_000_000
GREATEST_AGE_S = 10 * 366 * 86_400.0
GREATEST_REGIONS = 1_000
GREATEST_LABELS = 64
GREATEST_ARRAY_CHARACTERS = 32_768
GREATEST_LABEL_CHARACTERS = 1_024
GREATEST_ENVIRONMENT = 256
GREATEST_ENVIRONMENT_CHARACTERS = 32_768
GREATEST_ARGUMENTS = 1_024
GREATEST_COMMAND_CHARACTERS = 131_072
"""Linux takes at most 128 KiB in one argument."""
GREATEST_DURATION_S = 10 * 366 * 86_400.0
GREATEST_CHECKPOINTS = 100_000
"""Of one emulated job: duration over checkpoint interval."""
GREATEST_RETRIES = 1_000
GREATEST_BACKOFF_S = 7 * 86_400.0
GREATEST_STOP_GRACE_S = 86_400.0
LEAST_MAX_TIME_S = 1.0
GREATEST_MODEL_MIB = 1e9
"""Of a model or one of its tensors: a pebibyte, nearly."""
RESERVED_ENVIRONMENT_PREFIX = "TOPMAST_"
"""What the cluster manager passes to a task (rank, attempt, checkpoint directory, ...)."""

_is_name = re.compile(IDENTIFIER_PATTERN).fullmatch
_is_variable = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}").fullmatch
_is_callable = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*").fullmatch

is_package_name = re.compile(r"[0-9a-f]{64}", re.ASCII).fullmatch
PACKAGE_RULE = "must be a SHA-256: 64 hexadecimal digits in small letters"

_NAME_RULE = "must be a name: 1 to 128 letters, digits or . _ : / -, beginning with a letter or digit"


def check_workload(
    specification: WorkloadSpecification,
    tenants: Collection[str] | None = None,
    gpu_models: Collection[str] | None = None,
    tables: Collection[str] | None = None,
    regions: Collection[str] | None = None,
    owner: Tenant | None = None,
) -> tuple[FieldProblem, ...]:
    """Every problem of the workload, in the order of its fields; empty when it is acceptable.

    The collections are the names that exist (sets or mappings: they are searched); None where that is not known,
    as for a file that is read without a fleet. `owner` is its tenant, where that is known. Field paths are those of workload.yaml and of the protos.
    """
    problems: list[FieldProblem] = []
    _check_name(specification.name, "name", problems)
    _check_known(specification.tenant, "tenant", tenants, "tenant", problems)
    if specification.priority is not None:
        _check_priority(specification.priority, owner, problems)
    _check_jobs(specification.jobs, gpu_models, problems)
    if specification.tables:
        names = [table.table for table in specification.tables]
        paths = [f"tables[{index}].table" for index in range(len(names))]
        _check_references(names, paths, "tables", GREATEST_TABLES, tables, "table", problems)
        _check_ages(specification.tables, problems)
        _check_newest_partitions(specification.tables, problems)
    if specification.regions:
        paths = [f"regions[{index}]" for index in range(len(specification.regions))]
        _check_references(specification.regions, paths, "regions", GREATEST_REGIONS, regions, "region", problems)
    if specification.labels:
        _check_labels(specification.labels, problems)
    _check_retry(specification.retry, problems)
    _check_number(specification.stop_grace_s, "stop_grace_s", 0.0, GREATEST_STOP_GRACE_S, problems)
    if specification.package and not is_package_name(specification.package):
        problems.append(FieldProblem("package", PACKAGE_RULE))
    if specification.max_time_s is not None:
        _check_number(specification.max_time_s, "max_time_s", LEAST_MAX_TIME_S, GREATEST_DURATION_S, problems)
    if specification.priority_class and specification.priority_class not in IMPORTANCE:
        found = in_quotes(specification.priority_class)
        hint = suggestion(specification.priority_class, IMPORTANCE, "priority class")
        problems.append(FieldProblem("priority_class", f"must be one of {', '.join(IMPORTANCE)}, not {found}; {hint}"))
    if specification.after:
        problems += check_dependencies(specification.after)
    if specification.array:
        _check_array(specification.array, problems)
    if specification.array and specification.after:
        problems.append(FieldProblem("after", "is not for arrays: submit the elements as workloads, or hold the array"))
    if specification.notify is not None:
        problems += check_notification(specification.notify)
    return tuple(problems)


def _check_array(written: str, problems: list[FieldProblem]) -> None:
    if len(written) > GREATEST_ARRAY_CHARACTERS:
        described = f"has {len(written)} characters; at most {GREATEST_ARRAY_CHARACTERS} are possible: write ranges"
        problems.append(FieldProblem("array", described))
        return
    try:
        parse_array(written)
    except BadArray as bad:
        problems.append(FieldProblem("array", str(bad)))


def _check_priority(priority: int, owner: Tenant | None, problems: list[FieldProblem]) -> None:
    """Asked for may be any priority at which the tenant has a quota, be it an empty one."""
    if not HIGHEST_PRIORITY <= priority <= LOWEST_PRIORITY:
        described = f"is {priority}; it must be from {HIGHEST_PRIORITY} (the highest) to {LOWEST_PRIORITY}, or left out"
        problems.append(FieldProblem("priority", described))
    elif owner is not None and priority not in owner.priorities:
        problems.append(FieldProblem("priority", no_quota_at(priority, owner)))


def no_quota_at(priority: int, tenant: Tenant) -> str:
    """Why a workload of this tenant may not ask for that priority."""
    named = ", ".join(map(str, tenant.priorities))
    return (
        f"is {priority}, at which tenant {tenant.tenant} has no quota: it has quotas at {named}; ask for one of these,"
        f" or for none, which is {tenant.priority}"
    )


def _check_jobs(
    jobs: tuple[JobSpecification, ...], gpu_models: Collection[str] | None, problems: list[FieldProblem]
) -> None:
    if not jobs:
        problems.append(FieldProblem("jobs", "is empty; a workload has at least one job"))
        return
    if len(jobs) > GREATEST_JOBS:
        problems.append(FieldProblem("jobs", f"are {len(jobs)}; at most {GREATEST_JOBS} are possible"))
        return
    first_place: dict[str, int] = {}
    emulated = 0
    for index, job in enumerate(jobs):
        path = f"jobs[{index}]"
        _check_name(job.name, path + ".name", problems)
        first = first_place.setdefault(job.name, index)
        if first != index:
            problems.append(FieldProblem(path + ".name", f"is already the name of jobs[{first}]; rename one"))
        _check_job(job, path, gpu_models, problems)
        emulated += isinstance(job.entry_point, Emulated)
    if 0 < emulated < len(jobs):
        problems.append(FieldProblem("jobs", "are partly emulated; either all jobs of a workload are, or none"))
    if len(jobs) > 1 and not problems:
        tasks = sum(job.greatest_tasks for job in jobs)
        if tasks > GREATEST_TASKS:
            problems.append(FieldProblem("jobs", f"have {tasks} tasks together; at most {GREATEST_TASKS} are possible"))


def _check_job(
    job: JobSpecification, path: str, gpu_models: Collection[str] | None, problems: list[FieldProblem]
) -> None:
    if _check_count(job.tasks, path + ".tasks", 1, GREATEST_TASKS, problems) and job.max_tasks != 0:
        within = _check_count(job.max_tasks, path + ".max_tasks", 0, GREATEST_TASKS, problems)
        if within and job.max_tasks < job.tasks:
            description = f"is {job.max_tasks}, less than the {job.tasks} tasks; make it at least that, or 0"
            problems.append(FieldProblem(path + ".max_tasks", description))
    _check_resources(job.resources, path + ".resources", gpu_models, problems)
    _check_entry_point(job.entry_point, path, problems)
    if job.environment:
        _check_environment(job.environment, path + ".environment", problems)
    if job.scaling:
        problems += check_curve(job.scaling, path + ".scaling")
        if job.max_tasks <= job.tasks:
            problems.append(FieldProblem(path + ".scaling", NOT_ELASTIC))
    if job.profile is not None:
        _check_profile(job.profile, path + ".profile", problems)
    if job.affinity is not NO_JOB_AFFINITY:
        problems += check_affinity(job, path)
    if job.across_clusters:
        problems += check_across_clusters(job, path)
    if job.runtime is not None:
        problems += check_runtime(job, path + ".runtime")


def _check_resources(
    resources: TaskResources, path: str, gpu_models: Collection[str] | None, problems: list[FieldProblem]
) -> None:
    gpus_known = _check_count(resources.gpus, path + ".gpus", 0, GREATEST_GPUS_PER_MACHINE, problems)
    with_gpus = gpus_known and resources.gpus > 0
    model = resources.gpu_model
    if model != ANY_GPU_MODEL:
        if gpus_known and not with_gpus:
            if model:
                description = f"is {in_quotes(model)}, but gpus is 0; ask for GPUs or leave gpu_model out"
                problems.append(FieldProblem(path + ".gpu_model", description))
        else:
            _check_known(model, path + ".gpu_model", gpu_models, "GPU model", problems)
    for field, amount, greatest in (
        (".cpus", resources.cpus, GREATEST_CPUS_PER_MACHINE),
        (".memory_gib", resources.memory_gib, GREATEST_MEMORY_GIB),
    ):
        if amount is None:
            if gpus_known and not with_gpus:
                problems.append(
                    FieldProblem(path + field, "is missing; a task without GPUs must say how much it needs")
                )
        elif _check_number(amount, path + field, 0.0, greatest, problems) and amount == 0 and not with_gpus:
            problems.append(FieldProblem(path + field, "must be more than 0 for a task without GPUs"))


def _check_entry_point(entry_point: object, path: str, problems: list[FieldProblem]) -> None:
    if isinstance(entry_point, Emulated):
        _check_emulated(entry_point, path + ".emulated", problems)
    elif isinstance(entry_point, Command):
        _check_command(entry_point.arguments, path + ".command", problems)
    elif isinstance(entry_point, PythonCallable):
        target = entry_point.target
        if len(target) > 512 or not _is_callable(target):
            description = f"must be 'module:function', such as training.digits:main, not {in_quotes(target)}"
            problems.append(FieldProblem(path + ".python", description))
    else:
        problems.append(FieldProblem(path, "must have one of command, python and emulated"))


def _check_emulated(emulated: Emulated, path: str, problems: list[FieldProblem]) -> None:
    duration_s, interval_s = emulated.duration_s, emulated.checkpoint_interval_s
    duration_known = _check_number(duration_s, path + ".duration_s", 0.0, GREATEST_DURATION_S, problems)
    if duration_known and duration_s == 0:
        problems.append(FieldProblem(path + ".duration_s", "must be more than 0 seconds"))
    interval_known = _check_number(interval_s, path + ".checkpoint_interval_s", 0.0, GREATEST_DURATION_S, problems)
    if duration_known and interval_known and interval_s > 0 and duration_s > interval_s * GREATEST_CHECKPOINTS:
        description = (
            f"of {interval_s:g} s means {duration_s / interval_s:.3g} checkpoints; at most {GREATEST_CHECKPOINTS}"
            f" are possible, so make it at least {duration_s / GREATEST_CHECKPOINTS:g} s (or 0: none)"
        )
        problems.append(FieldProblem(path + ".checkpoint_interval_s", description))


def _check_profile(profile: ModelProfile, path: str, problems: list[FieldProblem]) -> None:
    largest_mib, model_mib = profile.largest_tensor_mib, profile.model_mib
    sizes = largest_mib is not None or model_mib is not None
    if profile.stated_skew is not None:
        _check_number(profile.stated_skew, path + ".skew", 0.0, 1.0, problems)
        if sizes:
            problems.append(FieldProblem(path, "has a skew and sizes, of which it is the ratio; keep one or the other"))
        return
    if not sizes:
        problems.append(FieldProblem(path, "is empty; give skew, or largest_tensor_mib and model_mib"))
        return
    known = True
    for field, amount, other in (
        (".largest_tensor_mib", largest_mib, "model_mib"),
        (".model_mib", model_mib, "largest_tensor_mib"),
    ):
        if amount is None:
            problems.append(FieldProblem(path + field, f"is missing beside {other}; add it, or give skew alone"))
            known = False
        elif not _check_number(amount, path + field, 0.0, GREATEST_MODEL_MIB, problems):
            known = False
        elif amount == 0:
            problems.append(FieldProblem(path + field, "must be more than 0 MiB"))
            known = False
    if known and largest_mib is not None and model_mib is not None and largest_mib > model_mib:
        description = f"is {largest_mib:g}, more than the whole model with {model_mib:g}; a skew is at most 1"
        problems.append(FieldProblem(path + ".largest_tensor_mib", description))


def _check_ages(tables: tuple[TableInput, ...], problems: list[FieldProblem]) -> None:
    for index, table in enumerate(tables[:GREATEST_TABLES]):
        if table.max_age_s is None:
            continue
        path = f"tables[{index}].max_age_s"
        if table.fresh:
            problems.append(
                FieldProblem(path, "stands beside fresh, for which only the home will do; keep one of them")
            )
        else:
            _check_number(table.max_age_s, path, 0.0, GREATEST_AGE_S, problems)


def _check_newest_partitions(tables: tuple[TableInput, ...], problems: list[FieldProblem]) -> None:
    for index, table in enumerate(tables[:GREATEST_TABLES]):
        newest = table.newest_partitions
        if newest is not None and not 1 <= newest <= GREATEST_PARTITIONS:
            problems.append(
                FieldProblem(
                    f"tables[{index}].newest_partitions",
                    f"is {newest}; it must be from 1 to {GREATEST_PARTITIONS}, or left out for the whole table",
                )
            )


def _check_command(arguments: tuple[str, ...], path: str, problems: list[FieldProblem]) -> None:
    if not arguments or not arguments[0]:
        problems.append(FieldProblem(path, "is empty; give the program and its arguments as a list"))
        return
    if len(arguments) > GREATEST_ARGUMENTS:
        problems.append(
            FieldProblem(path, f"has {len(arguments)} arguments; at most {GREATEST_ARGUMENTS} are possible")
        )
        return
    for index, argument in enumerate(arguments):
        if not _check_text(argument, f"{path}[{index}]", GREATEST_COMMAND_CHARACTERS, problems):
            return
    characters = sum(len(argument) for argument in arguments)
    if characters > GREATEST_COMMAND_CHARACTERS:
        description = f"has {characters} characters; at most {GREATEST_COMMAND_CHARACTERS} are possible: use a file"
        problems.append(FieldProblem(path, description))


def _check_environment(environment: tuple[tuple[str, str], ...], path: str, problems: list[FieldProblem]) -> None:
    if len(environment) > GREATEST_ENVIRONMENT:
        description = f"has {len(environment)} variables; at most {GREATEST_ENVIRONMENT} are possible"
        problems.append(FieldProblem(path, description))
        return
    seen: set[str] = set()
    for key, value in environment:
        if not _is_variable(key):
            description = f"has the variable {in_quotes(key)}; a variable is letters, digits and _, not first a digit"
            problems.append(FieldProblem(path, description))
            continue
        if key.startswith(RESERVED_ENVIRONMENT_PREFIX):
            description = (
                f"has the variable {key}; names beginning with {RESERVED_ENVIRONMENT_PREFIX} are set by Topmast"
            )
            problems.append(FieldProblem(path, description))
        if key in seen:
            problems.append(FieldProblem(path, f"has the variable {key} twice"))
        seen.add(key)
        _check_text(value, f"{path}.{key}", GREATEST_ENVIRONMENT_CHARACTERS, problems)


def _check_labels(labels: tuple[tuple[str, str], ...], problems: list[FieldProblem]) -> None:
    if len(labels) > GREATEST_LABELS:
        problems.append(FieldProblem("labels", f"are {len(labels)}; at most {GREATEST_LABELS} are possible"))
        return
    seen: set[str] = set()
    for key, value in labels:
        if not _is_name(key):
            problems.append(FieldProblem("labels", f"has the key {in_quotes(key)}; a key {_NAME_RULE}"))
            continue
        if key in seen:
            problems.append(FieldProblem("labels", f"has the key {key} twice"))
        seen.add(key)
        _check_text(value, f"labels.{key}", GREATEST_LABEL_CHARACTERS, problems)


def _check_retry(retry: RetryPolicy, problems: list[FieldProblem]) -> None:
    _check_count(retry.max_retries, "retry.max_retries", 0, GREATEST_RETRIES, problems)
    _check_number(retry.backoff_s, "retry.backoff_s", 0.0, GREATEST_BACKOFF_S, problems)
    _check_number(retry.backoff_cap_s, "retry.backoff_cap_s", 0.0, GREATEST_BACKOFF_S, problems)
    if retry.on_exit_codes or retry.never_on:
        problems += check_exit_codes(retry)


def _check_references(
    names: Collection[str],
    paths: Collection[str],
    whole: str,
    greatest: int,
    known: Collection[str] | None,
    what: str,
    problems: list[FieldProblem],
) -> None:
    if len(names) > greatest:
        problems.append(FieldProblem(whole, f"are {len(names)}; at most {greatest} are possible"))
        return
    first_place: dict[str, str] = {}
    for name, path in zip(names, paths, strict=True):
        _check_known(name, path, known, what, problems)
        first = first_place.setdefault(name, path)
        if first != path:
            problems.append(FieldProblem(path, f"is {in_quotes(name)} again, as {first}; name it once"))


def _check_known(
    name: object, path: str, known: Collection[str] | None, what: str, problems: list[FieldProblem]
) -> None:
    if known is not None and name in known:
        return
    if not isinstance(name, str) or not _is_name(name):
        problems.append(FieldProblem(path, _name_problem(name)))
    elif known is not None:
        problems.append(FieldProblem(path, f"there is no {what} {name}; {suggestion(name, known, what)}"))


def _check_name(name: object, path: str, problems: list[FieldProblem]) -> None:
    if not isinstance(name, str) or not _is_name(name):
        problems.append(FieldProblem(path, _name_problem(name)))


def _name_problem(name: object) -> str:
    return f"is empty; it {_NAME_RULE}" if name == "" else f"{_NAME_RULE}, not {in_quotes(name)}"


def _check_text(text: object, path: str, greatest: int, problems: list[FieldProblem]) -> bool:
    """Free text: anything that Unix and a database can hold."""
    if not isinstance(text, str):
        description = f"must be text (put it in quotes), not {in_quotes(text)}"
    elif len(text) > greatest:
        description = f"has {len(text)} characters; at most {greatest} are possible"
    elif "\0" in text:
        description = "has a NUL character; remove it"
    elif not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        description = "has half of a surrogate pair, which is not a character; remove it"
    else:
        return True
    problems.append(FieldProblem(path, description))
    return False


def _check_count(value: object, path: str, least: int, greatest: int, problems: list[FieldProblem]) -> bool:
    if type(value) is int and least <= value <= greatest:
        return True
    problems.append(FieldProblem(path, f"must be a whole number from {least} to {greatest}, not {in_quotes(value)}"))
    return False


def _check_number(value: object, path: str, least: float, greatest: float, problems: list[FieldProblem]) -> bool:
    # A comparison with NaN is false, so NaN and the infinities end below.
    if (type(value) is float or type(value) is int) and least <= value <= greatest:
        return True
    description = f"must be a number from {least:g} to {greatest:.12g}, not {in_quotes(value)}"
    if isinstance(value, float) and not math.isfinite(value):
        description = f"must be a finite number from {least:g} to {greatest:.12g}, not {value}"
    problems.append(FieldProblem(path, description))
    return False
