"""Latencies in HDR histograms: three digits, from a microsecond to an hour, merged over processes without loss."""

from __future__ import annotations

from collections.abc import Iterable

from hdrh.histogram import HdrHistogram

_GREATEST_US = 3_600_000_000


def histogram_of(latencies_s: Iterable[float]) -> HdrHistogram:
    """A histogram of these durations in seconds. One that is beyond an hour counts as an hour."""
    histogram = HdrHistogram(1, _GREATEST_US, 3)
    for latency_s in latencies_s:
        histogram.record_value(min(_GREATEST_US, max(1, round(latency_s * 1e6))))
    return histogram


def merged(encoded: Iterable[bytes]) -> HdrHistogram:
    """The histograms of several processes in one."""
    whole = histogram_of(())
    for one in encoded:
        whole.decode_and_add(one)
    return whole


def figures(histogram: HdrHistogram) -> dict[str, float | int]:
    """What a report says about it; durations in seconds. Raises ValueError when nothing was measured."""
    if histogram.total_count == 0:
        raise ValueError("nothing was measured")
    return {
        "count": histogram.total_count,
        **{f"p{p:g}_s": histogram.get_value_at_percentile(p) / 1e6 for p in (50, 90, 99, 99.9)},
        "max_s": histogram.get_max_value() / 1e6,
    }
