"""Sees to it that a cluster's tasks outlive its manager's lease by the stated time at most.

A task with a process stops itself when it is not told in time that it may run on; for what is emulated, and sooner for
what can be reached, the guard does it. What was declared lost meanwhile is ended before anything is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from services.cluster_manager.task_permission import TaskPermission
from services.configuration import LeaseConfiguration
from services.database import attempt_store
from services.database.engine import Database
from services.execution.executor import Executor

_LONGEST_INTERVAL_REAL_S = 30.0

_log = structlog.get_logger(__name__)


class TaskGuard:
    """That of one cluster, while its manager works. Made on the event loop that it runs on."""

    def __init__(
        self,
        database: Database,
        held_until_real_s: Callable[[], float],
        configuration: LeaseConfiguration,
    ) -> None:
        """`held_until_real_s`: until when the manager is certain of its lease, on the loop's clock."""
        self._database = database
        self._configuration = configuration
        self._permission = TaskPermission(
            held_until_real_s, configuration.tasks_stop_after_real_s, asyncio.get_running_loop().time
        )

    def left_s(self) -> float:
        """So many real seconds tasks may run on from now if nothing more is heard of the lease."""
        return self._permission.left_s()

    async def end_what_is_over(self, executor: Executor) -> None:
        """Kills what was adopted and has ended for the database: it was declared lost, and may run elsewhere."""
        adopted = [status.key for status in executor.statuses() if not status.ended]
        if not adopted:
            return
        live = await self._database.run(
            lambda connection: attempt_store.live_among(connection, adopted), give_up_after_s=float("inf")
        )
        for key in adopted:
            if key not in live:
                _log.warning("it is over and ran on", workload=key.workload, attempt=key.attempt)
                await executor.stop(key, 0.0)

    async def run(self, executor: Executor) -> None:
        """Until cancelled."""
        interval_s = min(guard_interval_s(self._configuration), self._configuration.duration_real_s)
        while True:
            await asyncio.sleep(max(0.0, min(interval_s, self.left_s())))
            if self.left_s() <= 0.0 and any(not status.ended for status in executor.statuses()):
                _log.error("nothing allows tasks to run on: all of them are stopped")
                await executor.lose_all(
                    f"no lease allowed it to run on for {self._configuration.tasks_stop_after_real_s:g} s"
                )


def guard_interval_s(configuration: LeaseConfiguration) -> float:
    """So often tasks are told how long they may run on: often enough that a few lost calls do no harm."""
    return min(_LONGEST_INTERVAL_REAL_S, configuration.tasks_stop_after_real_s / 5)
