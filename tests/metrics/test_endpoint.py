"""Metrics are served where they can be, and nothing ends because they cannot."""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.request import urlopen

from services.metrics.endpoint import serving_metrics
from services.metrics.service_metrics import ServiceMetrics
from services.metrics.settings import MetricsSettings
from services.metrics.targets import served_metrics


def test_a_process_that_serves_metrics_is_found_as_long_as_it_does(tmp_path: Path) -> None:
    with serving_metrics(ServiceMetrics(), MetricsSettings(), tmp_path, "regional/east") as address:
        assert served_metrics(tmp_path) == (address,)
        assert (tmp_path / "metrics" / "regional-east.json").exists()
        with urlopen(f"http://{address}/metrics") as answer:
            assert b"topmast_build_info" in answer.read()
    assert served_metrics(tmp_path) == ()


def test_a_port_that_is_taken_ends_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        settings = MetricsSettings(port=other.getsockname()[1])
        with serving_metrics(ServiceMetrics(), settings, tmp_path, "tiers") as address:
            assert address == ""
            assert served_metrics(tmp_path) == ()


def test_a_home_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.write_text("no folder", encoding="utf-8")
    with (
        serving_metrics(ServiceMetrics(), MetricsSettings(), home, "tiers") as address,
        urlopen(f"http://{address}/metrics") as answer,
    ):
        assert b"topmast_build_info" in answer.read()


def test_nothing_is_served_where_nothing_is_to_be(tmp_path: Path) -> None:
    with serving_metrics(ServiceMetrics(), MetricsSettings(port=None), tmp_path, "tiers") as address:
        assert address == ""
