"""Which process listens at a port of this machine, as far as we may know."""

from __future__ import annotations

from contextlib import suppress

import psutil

from services.execution.task_environment import SERVICE_HOME_VARIABLE

_HOST_MODULE = "services.runtime.host"
_LONGEST_COMMAND = 80


def port_holder(port: int) -> str:
    """The process that listens there, in words: its id and what was typed, or whose service of ours it is. Empty: unknown."""
    with suppress(psutil.Error):
        for connection in psutil.net_connections(kind="tcp"):
            # An address is host and port; one that is not bound has neither.
            if (
                connection.status == psutil.CONN_LISTEN
                and connection.pid is not None
                and connection.laddr[1:] == (port,)
            ):
                return _told(psutil.Process(connection.pid))
    return ""


def _told(process: psutil.Process) -> str:
    for ancestor in (process, *process.parents()):
        words = ancestor.cmdline()
        if _HOST_MODULE in words:
            home = ancestor.environ().get(SERVICE_HOME_VARIABLE, "another home")
            return f"the Topmast of {home} (process {ancestor.pid}; topmast down --home {home} ends it)"
    command = " ".join(process.cmdline()) or process.name()
    if len(command) > _LONGEST_COMMAND:
        command = f"{command[:_LONGEST_COMMAND]}..."
    return f"process {process.pid} ({command})"
