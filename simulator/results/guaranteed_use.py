"""What counts as guaranteed use of GPUs, and what as opportunistic (HiveD §3.3)."""

from __future__ import annotations

from collections.abc import Iterable


def is_guaranteed(
    guaranteed: bool, virtual_cluster: str | None, clusters: Iterable[str], with_cells: frozenset[str]
) -> bool:
    """Whether an attempt that has GPUs in these clusters is sure of them.

    Where there are cells, it must use those of a virtual cluster; elsewhere it must be within quota. It counts as it was
    when it was dispatched.
    """
    return virtual_cluster is not None or (guaranteed and with_cells.isdisjoint(clusters))
