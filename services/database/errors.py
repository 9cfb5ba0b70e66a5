"""What goes wrong with a database, and which of it passes by itself."""

from __future__ import annotations

import psycopg
from psycopg import errors


class DatabaseUnavailable(Exception):
    """The database could not be reached, or could not do it, for longer than the caller was ready to wait.

    `in_doubt` is True when the connection was lost during the commit and whether it happened is not known.
    """

    def __init__(self, message: str, *, in_doubt: bool = False) -> None:
        super().__init__(message)
        self.in_doubt = in_doubt


class DatabaseFull(DatabaseUnavailable):
    """Its disk is full. What would be written may be written when somebody has made room."""


class UnsuitableDatabase(Exception):
    """There is no database, or none that Topmast can use; says what to do."""


class RepeatTransaction(Exception):
    """Another transaction was faster: the transaction must be rolled back and will succeed when it is done again."""


_CONNECTION_LOSSES = (
    # The server goes, comes, or is being replaced by its standby.
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
    errors.ReadOnlySqlTransaction,
    errors.IdleInTransactionSessionTimeout,
    # It has no room for us just now.
    errors.TooManyConnections,
    errors.OutOfMemory,
    errors.DiskFull,
)
_CONFLICTS = (errors.SerializationFailure, errors.DeadlockDetected, RepeatTransaction)


def is_passing(error: Exception) -> bool:
    """True when the same transaction may well succeed a little later."""
    if isinstance(error, (*_CONNECTION_LOSSES, *_CONFLICTS)):
        return True
    # Without a code of the server it is the connection itself that broke or could not be made.
    return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)) and error.sqlstate is None


def is_final(error: Exception) -> bool:
    """True when the server itself refused what it was asked and lives on; else it may have done it all the same."""
    return isinstance(error, psycopg.Error) and error.diag.severity_nonlocalized == "ERROR"
