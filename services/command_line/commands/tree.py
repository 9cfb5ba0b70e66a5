"""topmast tree: the workloads that wait for each other."""

from __future__ import annotations

from services.command_line.connection import connect
from services.command_line.graph_view import tree_lines
from services.command_line.options import AddressOption, JsonOption, WorkloadArgument
from services.command_line.output import note, show_json, show_line


def tree(workload: WorkloadArgument, address: AddressOption = None, as_json: JsonOption = False) -> None:
    """Show the workloads that wait for each other, with this one (<) among them: below each stand those that wait for it."""
    with connect(address) as client:
        graph = client.graph(workload)
    if as_json:
        show_json(graph)
    else:
        for line in tree_lines(graph, workload):
            show_line(line)
    if graph.incomplete:
        note(f"there are more than these {len(graph.workloads):,}, further away")
