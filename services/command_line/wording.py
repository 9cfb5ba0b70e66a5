"""Numbers and times in the words of people."""

from __future__ import annotations

from datetime import UTC, datetime


def moment(seconds: float | None) -> str:
    """A time of the service's clock, in UTC; "" for never."""
    if seconds is None:
        return ""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, OSError, ValueError):
        # Beyond the calendar.
        return f"{seconds:.0f} s"


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
    """Seconds since the epoch: a number, or a date with or without time (UTC unless it names a zone).

    Raises ValueError with a sentence.
    """
    try:
        return float(text)
    except ValueError:
        pass
    try:
        said = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"'{text}' is no time; write seconds since the epoch, or 2026-01-31, or 2026-01-31T12:00:00"
        ) from None
    return (said if said.tzinfo else said.replace(tzinfo=UTC)).timestamp()
