"""The options of `topmast up`, which it hands to the host process."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from services.runtime.executor_kind import ExecutorKind


class HostOptions(BaseModel):
    """What to host; made by `topmast up`, passed to the host process as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    home: Path
    port: int = 7460
    listen_host: str = "127.0.0.1"
    database_url: str | None = None
    ray_address: str | None = None
    fleet_file: Path | None = None
    tenants_file: Path | None = None
    configuration_file: Path | None = None
    clock_speed: float | None = None
    clock_origin_s: float | None = None
    executor: ExecutorKind = ExecutorKind.RAY
