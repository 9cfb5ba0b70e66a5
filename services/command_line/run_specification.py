"""What is said on the command line of `topmast run`, as the parts of a workload with one job."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import typer

from services.command_line.after_option import said_after
from services.command_line.array_options import array_option
from services.command_line.durations import duration_option
from services.command_line.environment_options import variables_of_options
from services.command_line.notification_options import notification_of_options

if TYPE_CHECKING:
    from topmast import (
        Affinity,
        Emulated,
        ModelProfile,
        Notification,
        RetryPolicy,
        RuntimeEnvironment,
        TableInput,
        WorkloadSpecification,
    )
    from topmast.specifications import SingleJob


def specified(**said: Unpack[SingleJob]) -> WorkloadSpecification:
    from topmast import single_job

    return single_job(**said)


class _Amounts(TypedDict):
    """How many tasks, and what each of them gets."""

    tasks: int
    max_tasks: int
    gpus: int
    gpu_model: str
    cpus: float | None
    memory_gib: float | None


def amounts(
    tasks: int, max_tasks: int, gpus: int, gpu_model: str, cpus: float | None, memory_gib: float | None
) -> _Amounts:
    return {
        "tasks": tasks,
        "max_tasks": max_tasks,
        "gpus": gpus,
        "gpu_model": gpu_model,
        "cpus": cpus,
        "memory_gib": memory_gib,
    }


class _WhatRuns(TypedDict):
    command: Sequence[str]
    python: str
    emulated: Emulated | None


def what_runs(command: Sequence[str], function: str, emulate_s: float | None) -> _WhatRuns:
    """Refuses nothing to run, and more than one thing."""
    from topmast import Emulated

    if emulate_s == 0:
        raise typer.BadParameter("is 0; work takes more than 0 seconds", param_hint="--emulate-s")
    if sum(bool(what) for what in (command, function, emulate_s)) != 1:
        raise typer.BadParameter("say what to run: -- COMMAND..., or --function, or --emulate-s; and only one of them")
    return {
        "command": command,
        "python": function,
        "emulated": Emulated(duration_s=emulate_s) if emulate_s else None,
    }


class _Called(TypedDict):
    tenant: str
    name: str
    labels: Mapping[str, str]
    array: str
    notify: Notification | None


def called(tenant: str, name: str, labels: Mapping[str, str], array: str, notify: tuple[str, str]) -> _Called:
    """And who is told of it."""
    from topmast import Notification

    told = notification_of_options(*notify)
    return {
        "tenant": tenant,
        "name": name,
        "labels": labels,
        "array": array_option(array),
        "notify": None if told is None else Notification(told.url, told.events),
    }


class _Environment(TypedDict):
    """What the tasks run in."""

    environment: Mapping[str, str]
    runtime: RuntimeEnvironment | None


def environment(files: Sequence[Path], said: Sequence[str], runtime: RuntimeEnvironment | None) -> _Environment:
    variables = variables_of_options(files, pairs(said, "--env", from_environment=True))
    return {"environment": variables, "runtime": runtime}


class _Where(TypedDict):
    """Where it may run, what it reads there, and how much its speed depends on the place."""

    consolidate: bool
    across_clusters: bool
    profile: ModelProfile | None
    regions: Sequence[str]
    tables: Sequence[TableInput | str]


def where(
    consolidate: bool,
    across_clusters: bool,
    skew: float | None,
    regions: Sequence[str],
    tables: Sequence[str],
    fresh_tables: Sequence[str],
) -> _Where:
    from topmast import ModelProfile, TableInput

    return {
        "consolidate": consolidate,
        "across_clusters": across_clusters,
        "profile": None if skew is None else ModelProfile(skew=skew),
        "regions": regions,
        "tables": [*tables, *(TableInput(fresh, fresh=True) for fresh in fresh_tables)],
    }


class _When(TypedDict):
    """Before what it goes, for how long it may run, and what becomes of it when it fails."""

    priority: int | None
    priority_class: str
    stop_grace_s: float | None
    max_time_s: float | None
    retry: RetryPolicy | None
    hold: bool
    after: Sequence[str]


def when(
    urgency: tuple[int | None, str],
    stop_grace_s: float | None,
    max_time: str,
    retries: tuple[int, Sequence[int] | None, Sequence[int] | None],
    hold: bool,  # as the others: `run` has no line to spare
    after: Sequence[str] | None,
) -> _When:
    """`urgency`: priority and priority class."""
    return {
        "priority": urgency[0],
        "priority_class": urgency[1],
        "stop_grace_s": stop_grace_s,
        "max_time_s": duration_option(max_time, "--max-time"),
        "retry": _retry(*retries),
        "hold": hold,
        "after": said_after(after),
    }


def _retry(max_retries: int, retry_on: Sequence[int] | None, no_retry_on: Sequence[int] | None) -> RetryPolicy | None:
    """What is said of retries; None: nothing. Who says after what to try again wants it tried once."""
    from topmast import RetryPolicy

    if not (max_retries or retry_on):
        if no_retry_on:
            raise typer.BadParameter("nothing is tried again; say --max-retries as well", param_hint="--no-retry-on")
        return None
    return RetryPolicy(max_retries=max_retries or 1, on_exit_codes=retry_on or (), never_on=no_retry_on or ())


class _InCells(TypedDict):
    """How close together the tasks are to be, and in which cells."""

    affinity: Affinity | None
    pinned_cell: str
    yields_to_downgrade: bool


def in_cells(within: str, prefer_within: str, pinned_cell: str, *, yields_to_downgrade: bool) -> _InCells:
    from topmast import Affinity

    if within and prefer_within:
        raise typer.BadParameter("give --within or --prefer-within, not both")
    level = within or prefer_within
    affinity = Affinity(within=level, hard=bool(within)) if level else None
    return {"affinity": affinity, "pinned_cell": pinned_cell, "yields_to_downgrade": yields_to_downgrade}


def pairs(said: Sequence[str], option: str, *, from_environment: bool = False) -> dict[str, str]:
    """NAME=VALUE, or NAME alone where that may mean the variable of this process."""
    found: dict[str, str] = {}
    for text in said:
        name, separator, value = text.partition("=")
        if not separator and from_environment and name in os.environ:
            value = os.environ[name]
        elif not (separator and name):
            hint = "; it is not set here" if from_environment and name else ""
            raise typer.BadParameter(f"'{text}' does not read NAME=VALUE{hint}", param_hint=option)
        found[name] = value
    return found
