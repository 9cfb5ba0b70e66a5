"""Which files of a folder are secrets of Topmast itself: they are in no package, for tasks and their machines must not have them."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from topmast.address import topmast_home
from topmast.token import TOKEN_FILE_VARIABLE
from topmast.transport import KEY_VARIABLE

_TOKEN = re.compile(rb"topmast_[0-9a-f]{16}_[0-9a-f]{64}\s*")
_TOKEN_FILE_BYTES = range(89, 97)
"""The token, and some blanks: no other file is opened."""

_HOME = ("host.lock", "secrets")
_CERTIFICATES = ("authority.pem", "authority-key.pem")
"""What is in each such folder."""


class OwnSecrets:
    """What `topmast up`, `topmast token` and `topmast certs` write, also where others than the present service have written it."""

    def __init__(self) -> None:
        named = (os.environ.get(TOKEN_FILE_VARIABLE), os.environ.get(KEY_VARIABLE))
        self._named = {
            identity
            for path in (topmast_home(), *(Path(one) for one in named if one))
            if (identity := _identity(path)) is not None
        }

    def has(self, path: str, status: os.stat_result) -> bool:
        """Whether the file or folder is one; `status` is of itself, not of what a link leads to."""
        if (status.st_dev, status.st_ino) in self._named:
            return True
        if stat.S_ISDIR(status.st_mode):
            return any(all(os.path.lexists(f"{path}/{name}") for name in names) for names in (_HOME, _CERTIFICATES))
        return stat.S_ISREG(status.st_mode) and status.st_size in _TOKEN_FILE_BYTES and _is_token(Path(path))


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _is_token(path: Path) -> bool:
    try:
        return _TOKEN.fullmatch(path.read_bytes()) is not None
    except OSError:
        # Whoever packs it says so.
        return False
