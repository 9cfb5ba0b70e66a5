"""Tables and numbers of the documents, in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

NOTHING = "–"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """All columns but the first are aligned to the right."""
    lines = [_line(head), _line(["---", *("---:" for _ in head[1:])]), *(_line(row) for row in rows)]
    return "\n".join(lines)


def percent(rate: float | None, digits: int = 1) -> str:
    """A rate in per cent."""
    return NOTHING if rate is None else f"{100 * rate:.{digits}f} %"


def seconds(value: float | None) -> str:
    """Seconds, in a unit that reads well."""
    if value is None:
        return NOTHING
    if value < 3600:
        return f"{value:,.0f} s"
    if value < 2 * 86_400:
        return f"{value / 3600:.1f} h"
    return f"{value / 86_400:.1f} d"


def times(ratio: float | None) -> str:
    """A ratio: `2.41×`."""
    if ratio is None:
        return NOTHING
    return f"{ratio:,.0f}×" if ratio >= 100 else f"{ratio:.3g}×"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
