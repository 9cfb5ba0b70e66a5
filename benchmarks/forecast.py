"""How well inference load is forecast: ``python -m benchmarks.forecast``.

Series are found in the folder that TOPMAST_TRACES names, else in ../shared/traces beside the checkout; they are not part
of Topmast. Each is forecast point by point, each from the points before it, after the first day (a quarter of the
series where there is no more than one day). The mean squared error is that of the load as a share of the greatest load.
One line for each series: the errors of each forecast, and how long those of the default take.
"""

import csv
import os
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.measurement import report
from regional_scheduler.forecasting import FORECASTERS
from regional_scheduler.forecasting.accuracy import accuracy_of
from regional_scheduler.forecasting.history import LoadHistory

TRACES = Path(os.environ.get("TOPMAST_TRACES", Path(__file__).parents[2] / "shared" / "traces"))
_SERIES = (
    ("inference_gpu_utilisation.csv", "busy_pod_fraction"),
    ("inference_gpu_utilisation.csv", "gpu_utilisation"),
    ("inference_requests_hourly.csv", "requests"),
    ("inference_requests_hourly.csv", "mean_requests_in_service"),
    ("inference_instances.csv", "gpu_instances"),
    ("inference_instances.csv", "cpu_instances"),
)
_BUDGET = "mean squared error at most that of persistence and seasonal_naive"


def main() -> int:
    for file, column in _SERIES:
        if (TRACES / file).is_file():
            measure(TRACES / file, column)
        else:
            print(f"forecast: left out, {file} is not in TOPMAST_TRACES", file=sys.stderr)
    return 0


def measure(file: Path, column: str) -> None:
    """Forecasts one column of one file with each forecaster, and reports the errors."""
    history = read(file, column)
    day = history.points_per_day or 1
    first = day if history.loads.size > day else history.loads.size // 4
    errors = {
        name: accuracy_of(forecaster, history, first).mean_squared_error
        for name, forecaster in sorted(FORECASTERS.items())
    }
    durations_s = []
    for known in range(first, history.loads.size):
        begin_s = time.process_time()
        FORECASTERS["autoregressive"].forecast(LoadHistory(history.loads[:known], history.step_s))
        durations_s.append(time.process_time() - begin_s)
    work = {"series": file.name, "column": column, "step_s": history.step_s, "forecast": history.loads.size - first}
    report("forecast", work, durations_s, _BUDGET, {"mean_squared_error": errors})


def read(file: Path, column: str) -> LoadHistory:
    """The column as a share of its greatest value, if that is above 1."""
    with file.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    values = np.array([float(row[column]) for row in rows])
    return LoadHistory(values / max(1.0, float(values.max())), float(rows[1]["t_s"]) - float(rows[0]["t_s"]))


if __name__ == "__main__":
    sys.exit(main())
