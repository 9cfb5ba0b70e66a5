"""Where the service's own log lines go: one JSON object per line in a file that is kept small, or readable lines on standard error."""

from __future__ import annotations

import logging
import shutil
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path

import structlog
from structlog.tracebacks import ExceptionDictTransformer

from services.log_settings import LogSettings
from services.security.secret_texts import hide_passwords

_LEVEL = logging.INFO


class _LossyFileHandler(RotatingFileHandler):
    """Loses what cannot be written: a full disk takes the lines of a log, and must not end who writes them."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - as the library calls it
        del record


def configure_logging(file: Path | None = None, settings: LogSettings | None = None) -> None:
    """Sends structlog's lines to the file (made when missing, appended to), or to standard error.

    `settings`: how large the file grows before it is put aside.
    """
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if file is None:
        structlog.configure(
            processors=[
                *shared,
                # Before passwords are hidden, and as Python does it: other ways would show the values of variables too.
                structlog.processors.format_exc_info,
                hide_passwords,
                structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()),
            ],
            wrapper_class=structlog.make_filtering_bound_logger(_LEVEL),
            logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        )
        return
    written = _logger(file, settings or LogSettings())
    structlog.configure(
        processors=[
            *shared,
            # Where it happened, but no values of variables: some of them are tokens, and what users have sent.
            structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False)),
            hide_passwords,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVEL),
        logger_factory=lambda *_: written,
    )


def _logger(file: Path, settings: LogSettings) -> logging.Logger:
    """One of the standard library, of our own: nothing else in the process writes to it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handler = _LossyFileHandler(
        file, maxBytes=settings.greatest_file_bytes, backupCount=settings.kept_files, encoding="utf-8"
    )
    handler.rotator = _put_aside
    logger = logging.Logger("topmast", _LEVEL)  # noqa: LOG001 - not one of those that all of a process share
    logger.addHandler(handler)
    return logger


def _put_aside(source: str, destination: str) -> None:
    """Copied and emptied, not renamed: what processes of ours print goes to the same file, and would follow another name."""
    shutil.copyfile(source, destination)
    with Path(source).open("r+b") as emptied:
        emptied.truncate()
