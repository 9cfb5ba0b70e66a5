"""Lists of nodes as CSV, one per line: ours (node, gpu_model, gpus, cpus, memory_gib) and Alibaba's own two.

Alibaba's are `openb_node_list_*.csv` of v2023 (sn, cpu_milli, memory_mib, gpu, model) and `pai_machine_spec.csv` of
v2020 (machine, gpu_type, cap_cpu, cap_mem, cap_gpu), the latter also without its header line.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

from domain.fleet import NO_GPU_MODEL, Machine
from domain.identifiers import GpuModel, MachineId
from formats.problems import FieldProblem, FormatError
from formats.schema import GREATEST_CPUS_PER_MACHINE, GREATEST_GPUS_PER_MACHINE, GREATEST_MEMORY_GIB
from formats.text_stream import read_lines
from formats.trace_cells import BadCell, name_cell, number_cell, whole_cell

OURS = ("node", "gpu_model", "gpus", "cpus", "memory_gib")
V2023 = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
V2020 = ("machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu")
SHOWN_PROBLEMS = 20


def is_node_list(file: Path) -> bool:
    """Whether a file is a list of nodes rather than a fleet.yaml: its first line is cells."""
    first = next((line for _, line in islice(read_lines(file), 1)), "")
    cells = tuple(first.strip().split(","))
    return any(set(columns) <= set(cells) for columns in (OURS, V2023, V2020)) or len(cells) == len(V2020)


def read_node_list(file: Path, cpus_per_gpu: float, memory_gib_per_gpu: float) -> list[Machine]:
    """The machines of a list, in its order; what a line leaves empty is made up from the GPUs.

    Raises FormatError with the lines and columns that make no sense: a fleet has no bad machines.
    """
    source = str(file)
    reader = csv.reader(line for _, line in read_lines(file))
    try:
        lines = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader if cells]
    except csv.Error as error:
        raise FormatError(source, [FieldProblem(f"line {reader.line_num}", f"is not CSV: {error}")]) from error
    header = tuple(lines[0][1]) if lines else ()
    if not any(set(columns) <= set(header) for columns in (OURS, V2023, V2020)):
        header = V2020
    else:
        lines = lines[1:]
    machines: dict[str, Machine] = {}
    problems: list[FieldProblem] = []
    for number, cells in lines:
        try:
            machine = _machine(_cells(header, cells), cpus_per_gpu, memory_gib_per_gpu)
        except BadCell as error:
            problems.append(FieldProblem(f"line {number}, column {error.column}", error.description))
            continue
        if machine.machine in machines:
            described = f"{machine.machine} is on an earlier line; names are unique"
            problems.append(FieldProblem(f"line {number}, column {header[0]}", described))
        machines[machine.machine] = machine
    if not machines and not problems:
        problems.append(FieldProblem("", "lists no node"))
    if problems:
        raise FormatError(source, problems[:SHOWN_PROBLEMS])
    return list(machines.values())


def _cells(header: tuple[str, ...], cells: list[str]) -> dict[str, str]:
    if len(cells) != len(header):
        raise BadCell("the row", f"has {len(cells)} cells, but a node has {len(header)}: {', '.join(header)}")
    return dict(zip(header, cells, strict=True))


def _machine(cells: Mapping[str, str], cpus_per_gpu: float, memory_gib_per_gpu: float) -> Machine:
    names, cpu_unit, memory_unit = _layout(cells)
    node, model, gpus_column, cpus_column, memory_column = names
    gpus = whole_cell(gpus_column, cells[gpus_column] or "0", 0, GREATEST_GPUS_PER_MACHINE)
    cpus = _amount(cpus_column, cells[cpus_column], cpu_unit, cpus_per_gpu * gpus, GREATEST_CPUS_PER_MACHINE)
    memory = _amount(memory_column, cells[memory_column], memory_unit, memory_gib_per_gpu * gpus, GREATEST_MEMORY_GIB)
    if gpus and not cells[model]:
        raise BadCell(model, f"is empty; say which model the {gpus} GPUs are")
    return Machine(
        MachineId(name_cell(node, cells[node])),
        GpuModel(name_cell(model, cells[model])) if gpus else NO_GPU_MODEL,
        gpus,
        cpus,
        memory,
    )


def _layout(cells: Mapping[str, str]) -> tuple[tuple[str, str, str, str, str], float, float]:
    """Which columns are name, model, GPUs, CPUs and memory; and what a CPU and a GiB are there."""
    if "node" in cells:
        return ("node", "gpu_model", "gpus", "cpus", "memory_gib"), 1.0, 1.0
    if "sn" in cells:
        return ("sn", "model", "gpu", "cpu_milli", "memory_mib"), 1000.0, 1024.0
    return ("machine", "gpu_type", "cap_gpu", "cap_cpu", "cap_mem"), 1.0, 1.0


def _amount(column: str, cell: str, unit: float, otherwise: float, greatest: float) -> float:
    value = number_cell(column, cell) / unit if cell else otherwise
    if not 0 < value <= greatest:
        raise BadCell(column, f"must be more than 0 and at most {greatest:g}; a node without GPUs must say it")
    return value
