"""What a task's runner and its cluster manager say to each other."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from domain.placement import TaskPlacement
from services.execution.executor import AttemptOrder
from services.execution.memory_watch import MemorySettings
from services.execution.task_environment import Rendezvous
from services.execution.task_user import TaskSettings
from services.storage.store_urls import StoreUrls

COULD_NOT_START = 127
"""The exit code of a task whose program could not be started, as shells have it."""


class RunnerState(StrEnum):
    READY = "ready"
    """Its place is taken; nothing was started yet."""
    RUNNING = "running"
    ENDED = "ended"


class StopCause(StrEnum):
    """Why a task was asked to stop."""

    ASKED = "asked"
    GANG = "gang"
    """Another task of the attempt failed or was lost."""
    RELEASED = "released"
    """The attempt goes on without this flexible task."""
    NO_LEASE = "no_lease"
    """Nobody who holds the lease of its cluster has allowed it to run on: it may run elsewhere soon."""


@dataclass(frozen=True, slots=True)
class RunnerReport:
    """How a task stands. `version` grows with each change; `ended_real_s` orders the ends of an attempt's tasks."""

    version: int
    state: RunnerState
    started_s: float = 0.0
    exit_code: int | None = None
    """Negative: killed by that signal. None when it was never started."""
    failure: str = ""
    stop_cause: StopCause | None = None
    stopped_early: bool = False
    """It ended because it was asked to: not by itself, in the moment in which it was asked."""
    ended_real_s: float = 0.0
    out_of_memory: str = ""
    """It was ended for using too much memory; why, in a sentence."""
    saved_progress: float = 0.0
    """What is in the store of checkpoints, if there is one."""
    unprepared: str = ""
    """Why its machine did not get the files that it begins with, through no fault of theirs: nothing of it was started."""


@dataclass(frozen=True, slots=True)
class RunnerDescription:
    """All that a new cluster manager has to know. Of several orders of an attempt that of the last revision counts."""

    order: AttemptOrder
    placement: TaskPlacement
    placement_group: str
    report: RunnerReport
    clock_s: float = 0.0
    """The runner's own clock (see `TaskRunner.allow`)."""
    gives_tokens: bool = True
    """Runners of the version before do not say this: they have started their task without the token that it reports with."""


@dataclass(frozen=True, slots=True)
class TaskStart:
    """What a runner needs to know in order to start its task."""

    rendezvous: Rendezvous
    session_address: str
    started_s: float
    home: Path
    stores: StoreUrls
    allowed_until_s: float = math.inf
    """On the runner's own clock: what is started later than that is not started at all."""
    memory: MemorySettings = MemorySettings()
    tasks: TaskSettings = TaskSettings()
    session_token: str = field(default="", repr=False)
    session_authority: str = ""
    """PEM: whose certificate the cluster manager shows; empty: it is called in plain text."""
