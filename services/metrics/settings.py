"""The section `metrics` of scheduler.yaml: where processes of tiers serve their metrics, and how often the state is looked at."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from formats.schema import Schema

LOOPBACK = "127.0.0.1"


class MetricsSettings(Schema):
    """Where metrics are served, and what they may cost."""

    host: Annotated[str, Field(min_length=1)] = LOOPBACK
    """The address of this machine at which they can be read; nobody is asked who reads them."""
    port: Annotated[int, Field(ge=0, le=65_535)] | None = 0
    """0: any free one; null: they are not served. Where each tier has a process of its own on this machine, any number stands for 0."""
    state_every_real_s: float = Field(default=10.0, ge=1.0, le=3600.0)
    """So often the global scheduler counts the queue and what runs; less often where that takes long."""
