"""The validator's report and the generator's trace are the same bytes in every process (I12)."""

from __future__ import annotations

from tests.house.determinism import assert_same_output

SNIPPET = """
import sys
import numpy as np
from simulator.validate import validate
from simulator.workload_generator import GeneratorSettings, Profile, generate_workloads, offers_of_fleet
from formats.trace import write_trace_rows
from tests.simulator.log_builder import FLEET, TABLES, TENANTS
from tests.simulator.reference_run import legal_log

records = legal_log(5, 200)
del records[::7]
print(validate(records, FLEET, TENANTS, tables=TABLES, complete=True))
for profile in Profile:
    settings = GeneratorSettings(50, 86400.0, profile, TENANTS, offers=offers_of_fleet(FLEET, TABLES), daily_swing=0.5)
    write_trace_rows(sys.stdout, generate_workloads(settings, np.random.default_rng(3)))
"""


def test_reports_and_traces_do_not_depend_on_the_process() -> None:
    output = assert_same_output(SNIPPET)
    assert "violations" in output
    assert "hived-000049" in output
