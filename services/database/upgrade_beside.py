"""Brings a database to the newest tables in a process of its own: whoever stays for long keeps nothing of what that takes."""

from __future__ import annotations

import subprocess

from topmast_server.processes import module_command


class DatabaseNotUpgraded(Exception):
    """The database could not be brought to the tables of this program; says why."""


def upgrade_beside(database_url: str) -> None:
    """As `services.database.migrations_runner.upgrade`, to the newest revision. Raises DatabaseNotUpgraded."""
    upgrading = subprocess.run(
        module_command("services.database.migrations_runner"),
        input=database_url,
        capture_output=True,
        text=True,
        check=False,
    )
    if upgrading.returncode != 0:
        raise DatabaseNotUpgraded(upgrading.stdout.strip() or upgrading.stderr.strip())
