"""Numbers as people read them."""

from __future__ import annotations

from datetime import UTC, datetime
from math import isfinite

from domain.events import JsonValue

_UNITS = (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0))
_FIRST_DATE_S = 631_152_000.0
"""Times from 1990 on are dates; what is less counts from the beginning of a trace."""

NOTHING = "–"


def duration(seconds: float | None) -> str:
    """`3.2 h`; three digits, in the largest unit of which there is at least one."""
    if seconds is None or not isfinite(seconds):
        return NOTHING
    unit, length = next(((unit, length) for unit, length in _UNITS if abs(seconds) >= length), ("s", 1.0))
    amount = seconds / length
    # Neither a power of ten nor a zero with a sign.
    number = f"{amount:,.0f}" if abs(amount) >= 999.5 else f"{amount + 0.0:.3g}"
    return f"{number} {unit}"


def percent(share: float | None) -> str:
    return NOTHING if share is None or not isfinite(share) else f"{100 * share:.1f} %"


def number(value: float | None) -> str:
    """With thousands apart; whole numbers as such."""
    if value is None or not isfinite(value):
        return NOTHING
    return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 1000 else f"{value:.4g}"


def gpu_hours(gpu_seconds: float) -> str:
    return number(round(gpu_seconds / 3600, 1 if gpu_seconds < 3.6e5 else 0))


def moment(time_s: float) -> str:
    """A date, or for a trace's own clock the time since its beginning."""
    if time_s >= _FIRST_DATE_S:
        return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"{number(round(time_s))} s on the trace's clock"


def count_of(count: int, one: str, many: str = "") -> str:
    """`1 workload`, `3 workloads`."""
    return f"{number(count)} {one if count == 1 else many or one + 's'}"


def time_unit(span_s: float) -> tuple[str, float]:
    """The unit in which a time axis of that length reads best, and its seconds."""
    if span_s >= 4 * 86_400:
        return "days", 86_400.0
    if span_s >= 4 * 3_600:
        return "hours", 3_600.0
    return ("minutes", 60.0) if span_s >= 240 else ("seconds", 1.0)


def log_duration_axis(title: str) -> dict[str, JsonValue]:
    """An axis of durations on a logarithmic scale, with ticks that people know."""
    ticks = ((1, "1 s"), (10, "10 s"), (60, "1 min"), (600, "10 min"), (3600, "1 h"), (21_600, "6 h"), (86_400, "1 d"),
             (604_800, "1 wk"), (2_592_000, "30 d"))  # fmt: skip
    return {
        "type": "log",
        "title": {"text": title},
        "tickvals": [seconds for seconds, _ in ticks],
        "ticktext": [label for _, label in ticks],
        "minor": {"showgrid": False},
    }
