"""Skews for traces that have none: as in Tiresias's own simulation, every job trains one of the ten models of its Table 6."""

from __future__ import annotations

import zlib
from dataclasses import replace

from cluster_manager.skew.packlimit import SKEWS_OF_MODELS
from formats.trace import TraceRow

_MODELS = tuple(sorted(SKEWS_OF_MODELS))


def with_skew(row: TraceRow) -> TraceRow:
    """The row with a skew, if it has GPUs: its own, else that of the model that it names, else that of one chosen by the
    checksum of what it names, or of its id. The same row always gets the same."""
    if row.skew is not None or row.gpus == 0:
        return row
    name = "".join(character for character in row.model.lower() if character.isalnum())
    for model in _MODELS:
        if name.startswith(model):
            return replace(row, skew=SKEWS_OF_MODELS[model])
    said = name or str(row.workload_id)
    return replace(row, skew=SKEWS_OF_MODELS[_MODELS[zlib.crc32(said.encode("utf-8")) % len(_MODELS)]])
