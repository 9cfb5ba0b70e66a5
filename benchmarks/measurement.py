"""How every benchmark states its result: one JSON object on standard output."""

import json
import resource
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Final

import numpy as np

_RUSAGE_UNIT_BYTES: Final = 1 if sys.platform == "darwin" else 1024
"""``ru_maxrss`` counts kibibytes on Linux and bytes on macOS (getrusage(2))."""

_BYTES_PER_MIB: Final = 1024 * 1024


def report(
    name: str,
    work: Mapping[str, object],
    durations_s: Sequence[float],
    budget: str,
    extra: Mapping[str, object] | None = None,
) -> None:
    """Print one measurement as one line of JSON.

    The line holds ``benchmark``, ``command`` (what to type to repeat it), ``work`` (the size of the work), ``budget``
    (the sentence of the design), ``count``, ``p50_s``, ``p99_s``, ``mean_s``, ``max_s`` over the durations in seconds,
    ``peak_rss_mib`` of this process since it started, and then the entries of ``extra``.

    Raises ValueError when nothing was measured, when a duration is negative or not finite, and when ``extra`` would
    overwrite a measured entry: a benchmark over nothing must not look like a fast one.
    """
    measured: dict[str, object] = {
        "benchmark": name,
        "command": command_line(),
        "work": dict(work),
        "budget": budget,
        **summary_of(durations_s),
        "peak_rss_mib": round(peak_rss_mib(), 1),
    }
    additions = dict(extra) if extra is not None else {}
    overwritten = sorted(measured.keys() & additions.keys())
    if overwritten:
        raise ValueError(f"extra entries of benchmark {name!r} would overwrite {', '.join(overwritten)}")
    print(json.dumps(measured | additions, allow_nan=False), flush=True)


def summary_of(durations_s: Sequence[float]) -> dict[str, float | int]:
    """The count, the median, the 99th percentile, the mean and the maximum of durations in seconds.

    Percentiles are observed values (the smallest duration that at least that share of all does not exceed), never
    interpolated ones, so that the p99 of a few samples is their maximum and not something better.
    """
    if len(durations_s) == 0:
        raise ValueError("no durations were measured")
    samples = np.asarray(durations_s, dtype=np.float64)
    if not np.isfinite(samples).all() or (samples < 0.0).any():
        raise ValueError("durations must be finite and not negative")
    p50_s, p99_s = (float(value) for value in np.percentile(samples, [50, 99], method="inverted_cdf"))
    return {
        "count": int(samples.size),
        "p50_s": p50_s,
        "p99_s": p99_s,
        "mean_s": float(samples.mean()),
        "max_s": float(samples.max()),
    }


def peak_rss_mib() -> float:
    """The largest resident memory of this process so far, in MiB; child processes are not counted."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RUSAGE_UNIT_BYTES / _BYTES_PER_MIB


def command_line() -> str:
    """What to type, in the repository, to repeat this run; names no directory outside it."""
    main_module = sys.modules["__main__"]
    specification = getattr(main_module, "__spec__", None)
    program = f"-m {specification.name}" if specification is not None else PurePath(sys.argv[0]).name
    return " ".join(["python", program, *map(shlex.quote, sys.argv[1:])])
