"""What tiers tell of the workloads that pass through them, when it is over: from when to when what was done for which.

All spans of a workload are in one trace, whose number follows from the workload's id: so every tier knows it, over restarts too,
and nothing has to be stored or sent along. The first span is that of the submission; all others are its children.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from domain.identifiers import WorkloadId
from services.tracing.settings import TracingSettings

Metadata = Iterable[tuple[str, str | bytes]]
"""What a call brought along."""


class Traces(Protocol):
    """Times are real ones, in seconds since the epoch."""

    @property
    def wanted(self) -> bool:
        """Whether anybody wants them: else there is no need to ask the time for them."""
        ...

    def submitted(
        self, workload: WorkloadId, from_real_s: float, to_real_s: float, metadata: Metadata | None = None
    ) -> None:
        """It was accepted in a call that brought this along: a span of the caller is linked to."""
        ...

    def done(
        self, what: str, workload: WorkloadId, from_real_s: float, to_real_s: float, said: Mapping[str, str | int]
    ) -> None:
        """This was done for it, with what there is to say of it."""
        ...

    def close(self) -> None:
        """Sends what is left."""
        ...


class NoTraces:
    """Where nobody wants them."""

    @property
    def wanted(self) -> bool:
        return False

    def submitted(
        self, workload: WorkloadId, from_real_s: float, to_real_s: float, metadata: Metadata | None = None
    ) -> None:
        """Nothing."""

    def done(
        self, what: str, workload: WorkloadId, from_real_s: float, to_real_s: float, said: Mapping[str, str | int]
    ) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


def traces_of(settings: TracingSettings, process: str) -> Traces:
    """Those of a process of that name, as the configuration wants it."""
    if settings.endpoint is None:
        return NoTraces()
    from services.tracing.sent_traces import SentTraces, exporter_to

    return SentTraces(exporter_to(settings.endpoint), process, settings.share)
