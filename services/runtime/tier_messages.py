"""What the host and the processes of tiers that it starts itself tell each other. All of it is picklable."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from services.log_settings import LogSettings
from services.runtime.executor_kind import ExecutorKind
from services.runtime.tier_place import TierPlace


@dataclass(frozen=True, slots=True)
class ChildSettings:
    """What a process of tiers needs to know in order to get ready."""

    name: str
    """Of its log file."""
    home: Path
    executor: ExecutorKind
    kernels: bool
    """Whether it will decide anything: then it compiles what decides before it holds a lease."""
    configuration_file: Path | None
    shared: bool = False
    """Whether all tiers of the service are in this process."""
    metrics_port: int | None = None
    """Where it serves its metrics; None: as the configuration says."""
    logs: LogSettings = LogSettings()
    configuration: bytes | None = None
    """What stood in that file when the service was started, as a former process pickled it: the file is not read again."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What must be there before a tier can be started."""

    database_url: str = field(repr=False)
    ray_address: str | None


@dataclass(frozen=True, slots=True)
class StartTier:
    place: TierPlace


@dataclass(frozen=True, slots=True)
class EndTiers:
    """All of them, in order; then the process ends."""


HostMessage = ChildSettings | Surroundings | StartTier | EndTiers


@dataclass(frozen=True, slots=True)
class Warm:
    """It has read its configuration and compiled everything; it waits for its surroundings."""

    configuration: bytes


@dataclass(frozen=True, slots=True)
class Listening:
    name: str
    """Of the tier."""
    address: str


@dataclass(frozen=True, slots=True)
class WaitingForPort:
    """Another process listens where this tier is to."""

    listen: str


@dataclass(frozen=True, slots=True)
class CannotServe:
    """It ends, and another process would fare no better."""

    reason: str


ChildMessage = Warm | Listening | WaitingForPort | CannotServe
