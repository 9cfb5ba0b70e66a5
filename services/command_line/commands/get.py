"""topmast get: everything about one workload."""

from __future__ import annotations

from services.command_line.connection import connect
from services.command_line.options import AddressOption, JsonOption, WideOption, WorkloadArgument
from services.command_line.output import show, show_json
from services.command_line.waiting_view import waiting_table
from services.command_line.workload_view import (
    attempts_table,
    cells_table,
    details_table,
    placements_table,
    tunings_table,
)


def get(
    workload: WorkloadArgument, wide: WideOption = False, address: AddressOption = None, as_json: JsonOption = False
) -> None:
    """Show a workload: what was submitted, its state and why it waits, its attempts, where its tasks are."""
    with connect(address) as client:
        workload_details = client.get(workload)
    if as_json:
        show_json(workload_details)
        return
    tables = [details_table(workload_details)]
    if workload_details.region_diagnoses:
        tables.append(waiting_table(workload_details.region_diagnoses))
    if workload_details.attempts:
        tables.append(attempts_table(workload_details.attempts))
        newest = workload_details.attempts[-1]
        if newest.ended_s is None and newest.placements:
            tables.append(placements_table(newest))
        if newest.ended_s is None and newest.tunings:
            tables.append(tunings_table(newest))
        if newest.ended_s is None and newest.cells:
            tables.append(cells_table(newest))
    show(*tables, wide=wide)
