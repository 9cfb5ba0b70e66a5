from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from formats.problems import FormatError
from simulator.inputs.importers.registry import importer_names
from simulator.inputs.trace_files import read_trace_file
from tests.extending.packages import ExamplePackage, package_of

JOBS = "id,team,arrival,runtime,accelerators\na,vision,0,600,8\nb,speech,30,60,1\n"
Install = Callable[[ExamplePackage], None]


def test_the_example_format_is_recognised_and_read(install: Install, tmp_path: Path) -> None:
    install(package_of("A trace format"))
    assert importer_names()[0] == "team-log"
    file = tmp_path / "jobs.csv"
    file.write_text(JOBS)
    rows = read_trace_file(file).rows
    assert [(row.workload_id, row.tenant, row.submit_s, row.duration_s, row.gpus) for row in rows] == [
        ("a", "vision", 0.0, 600.0, 8),
        ("b", "speech", 30.0, 60.0, 1),
    ]


def test_the_example_format_can_be_simulated_from_the_command_line(install: Install, tmp_path: Path) -> None:
    install(package_of("A trace format"))
    (tmp_path / "jobs.csv").write_text(JOBS)
    topmast = [sys.executable, "-c", "from services.command_line.main import main; main()"]
    command = [*topmast, "simulate", "--trace", str(tmp_path / "jobs.csv"), "--gpus", "8", "--json", "--no-cache"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert json.loads(done.stdout)["completed"] == 2


def test_a_format_whose_name_is_taken_is_refused_by_name(install: Install) -> None:
    example = package_of("A trace format")
    renamed = {name: code.replace('name="team-log"', 'name="swf"') for name, code in example.modules.items()}
    install(ExamplePackage(example.name, example.entry_points, renamed))
    with pytest.raises(FormatError, match=r"team_log = team_log:TEAM_LOG.*brings a trace format swf, but there is one"):
        importer_names()
