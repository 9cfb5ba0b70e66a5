"""Samples of service from a file."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from formats.problems import FormatError
from formats.service_samples import read_service_samples

TRACES = Path(os.environ.get("TOPMAST_TRACES", "/nowhere"))


def test_the_column_is_read_wherever_it_stands(tmp_path: Path) -> None:
    text = "a,gpu_time_s,b\n1,120,x\n\n2,0.5,y\n"
    plain, packed = tmp_path / "s.csv", tmp_path / "s.csv.gz"
    plain.write_text(text)
    packed.write_bytes(gzip.compress(text.encode()))
    assert read_service_samples(plain) == read_service_samples(packed) == (120.0, 0.5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: has no column gpu_time_s; the first line must name it"),
        ("a,b\n1,2\n", "line 1: has no column gpu_time_s; the first line must name it"),
        ("gpu_time_s\n", "has no samples; give at least one"),
        ("gpu_time_s\n5\nx\n", "line 3, gpu_time_s: is 'x'; GPU-seconds must be a finite number greater than 0"),
        ("gpu_time_s\n0\n", "line 2, gpu_time_s: is '0'; GPU-seconds must be"),
        ("gpu_time_s\n-4\n", "line 2, gpu_time_s: is '-4'; GPU-seconds must be"),
        ("gpu_time_s\ninf\n", "line 2, gpu_time_s: is 'inf'; GPU-seconds must be"),
        ("a,gpu_time_s\n1\n", "line 2, gpu_time_s: is nothing; GPU-seconds must be"),
    ],
)
def test_what_is_no_sample_is_refused_by_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "samples.csv"
    file.write_text(text)
    with pytest.raises(FormatError) as refused:
        read_service_samples(file)
    assert str(file) in str(refused.value)
    assert message in str(refused.value)


@pytest.mark.skipif(
    not (TRACES / "tiresias_gputime_samples.csv.gz").exists(), reason="the samples are not on this machine"
)
def test_the_published_samples_are_read() -> None:
    samples = read_service_samples(TRACES / "tiresias_gputime_samples.csv.gz")
    assert len(samples) == 16_000
    assert min(samples) == 121
