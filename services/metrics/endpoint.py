"""Serves the metrics of a process over HTTP, as Prometheus reads them.

A thread answers, so that metrics can be read while the event loop stands still.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import prometheus_client
import structlog

from services.metrics.service_metrics import ServiceMetrics
from services.metrics.settings import MetricsSettings
from services.metrics.targets import announced_target

_log = structlog.get_logger(__name__)


@contextmanager
def serving_metrics(metrics: ServiceMetrics, settings: MetricsSettings, home: Path, name: str) -> Iterator[str]:
    """Serves them while the context lasts; yields `host:port`, or nothing where they are not to be served, or cannot be.

    What goes wrong is logged: no tier ends because nobody can watch it.
    """
    if settings.port is None:
        yield ""
        return
    # For the whole process: when a series began says nothing that Prometheus does not know.
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no types for it
    try:
        server, thread = prometheus_client.start_http_server(settings.port, settings.host, metrics.registry)
    except OSError as error:
        _log.error("metrics are not served", host=settings.host, port=settings.port, error=str(error))
        yield ""
        return
    address = f"{settings.host}:{server.server_port}"
    try:
        with ExitStack() as stack:
            try:
                stack.enter_context(announced_target(home, name, address))
            except OSError as error:
                _log.warning("metrics are served, but not announced", address=address, error=str(error))
            _log.info("serving metrics", address=address)
            yield address
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
