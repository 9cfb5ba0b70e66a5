"""The options of `topmast up`, which it hands to the host process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from services.log_settings import LogSettings
from services.runtime.executor_kind import ExecutorKind
from services.runtime.tier_place import TierProcesses

LONGEST_GRACE_REAL_S = 120.0
"""So long at most running tasks may take to save, whatever their workloads say: who takes a service down wants it down."""


class HostOptions(BaseModel):
    """What to host; made by `topmast up`, handed to the host process as JSON, through a pipe."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    home: Path
    port: int = 7460
    listen_host: str = "127.0.0.1"
    database_url: Annotated[str | None, Field(repr=False)] = None
    ray_address: str | None = None
    fleet_file: Path | None = None
    tenants_file: Path | None = None
    configuration_file: Path | None = None
    clock_speed: float | None = None
    clock_origin_s: float | None = None
    executor: ExecutorKind = ExecutorKind.RAY
    metrics_port: Annotated[int, Field(ge=0, le=65_535)] | None = None
    """Of the process that all tiers share; None: as scheduler.yaml says."""
    logs: LogSettings = LogSettings()
    """As scheduler.yaml says: known before that is read by whoever writes a log."""
    tiers: TierProcesses | None = None
    """None: separate in a Ray of others, where they outlive this host; else shared."""

    standby: bool = False
    """Whether each tier has a second one, which takes its place when it dies."""

    @property
    def shares_processes(self) -> bool:
        """Whether all tiers are in one process."""
        if self.tiers is None:
            return self.ray_address is None
        return self.tiers is TierProcesses.SHARED

    @property
    def tiers_on_ray(self) -> bool:
        """Whether each tier is an actor of Ray."""
        return self.executor is ExecutorKind.RAY and not self.shares_processes
