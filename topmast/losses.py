"""Clusters and regions that an operator declares lost."""

from __future__ import annotations

from dataclasses import dataclass

from topmast.v1 import global_scheduler_pb2


@dataclass(frozen=True, slots=True)
class DeclaredLost:
    """What was declared lost. `clusters` were not lost before; `attempts` end for it, as workload#attempt."""

    clusters: tuple[str, ...]
    attempts: tuple[str, ...]


def declared_from_proto(message: global_scheduler_pb2.DeclareLostResponse) -> DeclaredLost:
    return DeclaredLost(tuple(message.clusters), tuple(message.attempts))
