"""The service of completed workloads as the scan loop knows it: the samples in the database, read once each."""

from __future__ import annotations

import asyncio
from functools import partial

import structlog

from global_scheduler.knowledge import Knowledge
from global_scheduler.scan_settings import ScanSettings
from global_scheduler.service_history import ServiceHistory
from services.database import completed_store
from services.database.completed_store import ServiceSamples
from services.database.engine import Database

_log = structlog.get_logger(__name__)


class CompletedService:
    """Follows the samples, if any priority's ordering goes by them.

    What is in force follows from the samples and their order alone, so that a service that starts anew goes on as it was.
    """

    def __init__(self, settings: ScanSettings) -> None:
        self.needed = any(rule.ordering.needs is Knowledge.COMPLETED for rule in settings.rules)
        self.history = ServiceHistory(settings.distribution, settings.samples_gpu_s) if self.needed else None
        self._last = 0

    async def catch_up(self, database: Database) -> None:
        """Reads the samples that have come since the last time."""
        history = self.history
        if history is None:
            return
        while True:
            samples = await database.run(partial(completed_store.load_samples, after=self._last))
            # In a thread: there may be many after a start.
            await asyncio.to_thread(_take, history, samples)
            self._last = samples.last
            if len(samples.tenants) < completed_store.SAMPLES_AT_ONCE:
                return
            _log.info("read samples of service", samples=len(samples.tenants))


def _take(history: ServiceHistory, samples: ServiceSamples) -> None:
    for tenant, gpu_s in zip(samples.tenants, samples.gpu_s.tolist(), strict=True):
        history.completed(tenant, gpu_s)
