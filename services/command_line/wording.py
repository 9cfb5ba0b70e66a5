"""Numbers and times in the words of people."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def moment(seconds: float | None) -> str:
    """A time of the service's clock, as the clock on the wall here shows it, with its zone; "" for never."""
    if seconds is None:
        return ""
    try:
        return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
    except (OverflowError, OSError, ValueError):
        # Beyond the calendar.
        return "beyond the calendar"


def duration(seconds: float) -> str:
    """Two units at most: 45s, 3m 20s, 5h 12m, 2d 7h."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f}s" if seconds < 10 and seconds != whole else f"{whole}s"
    if whole < 3_600:
        return f"{whole // 60}m {whole % 60}s"
    if whole < 86_400:
        return f"{whole // 3_600}h {whole % 3_600 // 60}m"
    return f"{whole // 86_400}d {whole % 86_400 // 3_600}h"


def number(value: float) -> str:
    """Whole numbers without a fraction, others with at most two digits of it."""
    return f"{value:,.0f}" if value == round(value) else f"{value:,.2f}"


def counted(count: int, what: str) -> str:
    """1 GPU, 3 GPUs."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def parse_moment(text: str) -> float:
    """Seconds since the epoch: a number, or a date with or without time: of here unless it names a zone, as `moment` writes it.

    Raises ValueError with a sentence.
    """
    try:
        return float(text)
    except ValueError:
        pass
    bare, _, zone = text.strip().rpartition(" ")
    try:
        if zone in {"UTC", "GMT"}:
            return datetime.fromisoformat(bare).replace(tzinfo=UTC).timestamp()
        # One without a zone is taken for one of here.
        return datetime.fromisoformat(bare if zone in time.tzname else text).timestamp()
    except ValueError:
        raise ValueError(
            f"'{text}' is no time; write seconds since the epoch, or 2026-01-31, or 2026-01-31T12:00:00 (of here), "
            "or 2026-01-31T12:00:00+01:00"
        ) from None
