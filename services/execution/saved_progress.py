"""How far a workload can go on from where it is, whoever saved that."""

from __future__ import annotations

import asyncio
from pathlib import Path

from domain.placement import AttemptKey
from services.execution.checkpoint_copies import stored_progress
from services.execution.task_paths import TaskPaths
from services.storage.storage_folder import StoreFailed
from services.storage.store_urls import StoreUrls
from topmast.training.checkpoints import newest_progress

_ANSWER_REAL_S = 10.0


async def saved_progress(home: Path, stores: StoreUrls, key: AttemptKey) -> float:
    """The progress of the newest checkpoint of this attempt or an older one, in the store if there is one, else on the disk; 0 when there is
    none. Raises OSError, StoreFailed."""
    if stores.checkpoints:
        try:
            async with asyncio.timeout(_ANSWER_REAL_S):
                return await asyncio.to_thread(stored_progress, stores.checkpoints, key)
        except TimeoutError as error:
            raise StoreFailed(f"the store of checkpoints does not answer within {_ANSWER_REAL_S:g} s") from error
    directory = TaskPaths(home).checkpoint_directory(key.workload)
    return await asyncio.to_thread(newest_progress, directory, key.attempt) or 0.0
