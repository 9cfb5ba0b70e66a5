"""The password of the embedded server: random, in a file that only its owner reads, and asked for on every connection.

The file is one that libpq reads (`passfile`): URLs name it, so that none holds the password itself.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import psycopg
from psycopg import sql

from services.database.server_owner import ServerOwner
from services.security.secret_values import new_secret

_RULES: Final = "pg_hba.conf"
_ASKED_FOR: Final = """\
# Written by Topmast. The password is in the file pgpass beside this folder.
local all all scram-sha-256
host all all 127.0.0.1/32 scram-sha-256
host all all ::1/128 scram-sha-256
"""
_NOT_ASKED_FOR: Final = "# Written by Topmast, for the moment until there is a password.\nlocal all all trust\n"


def settle_rules(data: Path, pass_file: Path, owner: ServerOwner) -> None:
    """Before the server starts: where the file is lost, it lets in whoever may enter its folder, until it has a new password."""
    if not pass_file.exists() and (data / _RULES).exists():
        _write(data / _RULES, _NOT_ASKED_FOR, owner)


def require_password(url: str, user: str, data: Path, pass_file: Path, owner: ServerOwner) -> bool:
    """Has the server that answers ask for the password from now on; True when it did not before.

    What breaks off is done again at the next start: the file is written first, and the rules last.
    """
    if pass_file.exists() and (data / _RULES).read_text(encoding="utf-8") == _ASKED_FOR:
        return False
    password = new_secret()
    written = pass_file.with_suffix(".new")
    written.unlink(missing_ok=True)
    with os.fdopen(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(f"*:*:*:{user}:{password}\n")
        file.flush()
        os.fsync(file.fileno())
    with psycopg.connect(url, autocommit=True) as connection:
        # Only the verifier goes to the server: no log of it can say the password.
        verifier = connection.pgconn.encrypt_password(password.encode(), user.encode(), b"scram-sha-256").decode()
        written.replace(pass_file)
        change = sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(user), sql.Literal(verifier))
        connection.execute(change)
        _write(data / _RULES, _ASKED_FOR, owner)
        connection.execute("SELECT pg_reload_conf()")
    return True


def _write(rules: Path, text: str, owner: ServerOwner) -> None:
    written = rules.with_suffix(".new")
    with os.fdopen(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
        file.write(text)
        if not owner.is_ourselves:
            os.fchown(file.fileno(), owner.user_id, owner.group_id)
    written.replace(rules)
