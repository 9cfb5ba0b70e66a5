"""The generic trace CSV of docs/formats.md, and whatever has its columns under a usual name."""

from __future__ import annotations

from simulator.inputs.importers.importer import RenamedTrace

TOPMAST_TRACE = RenamedTrace(
    name="topmast",
    title="the generic trace CSV",
    header=("submit_s", "duration_s", "gpus"),
)
