"""Samples of service: a CSV file with a column `gpu_time_s`, the GPU-seconds that completed workloads received.

Other columns are passed over; the file may be packed with gzip.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path

from formats.problems import FieldProblem, FormatError
from formats.text_stream import read_lines

COLUMN = "gpu_time_s"


def read_service_samples(path: Path) -> tuple[float, ...]:
    """The samples, in the order of the file; there is at least one.

    Raises FormatError for a file without that column, without samples, or with one that is no number greater than 0.
    """
    source = str(path)
    rows = csv.reader(line for _, line in read_lines(path))
    header = next(rows, [])
    if COLUMN not in header:
        described = f"has no column {COLUMN}; the first line must name it"
        raise FormatError(source, [FieldProblem("line 1", described)])
    place = header.index(COLUMN)
    samples: list[float] = []
    for row in rows:
        if not row:
            continue
        sample = _number(row[place] if place < len(row) else "")
        if not 0 < sample < math.inf:
            found = repr(row[place]) if place < len(row) else "nothing"
            described = f"is {found}; GPU-seconds must be a finite number greater than 0"
            raise FormatError(source, [FieldProblem(f"line {rows.line_num}, {COLUMN}", described)])
        samples.append(sample)
    if not samples:
        described = (
            "has no samples; give at least one, or leave the file out: then workloads that complete are the samples"
        )
        raise FormatError(source, [FieldProblem("", described)])
    return tuple(samples)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
