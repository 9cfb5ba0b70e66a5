"""Why storage does not do what it is asked, in words that tell nobody how to get in."""

from __future__ import annotations

import errno
import re

_FULL = (errno.ENOSPC, errno.EDQUOT)
_access = re.compile(r"(?<=://)[^/?#]*@")


def shown(url: str) -> str:
    """The URL without the user and the password that it may have."""
    return _access.sub("", url)


def what_failed(error: Exception, url: str) -> str:
    """What goes on behind "the storage ...": is full, refuses, or failed."""
    code = error.errno if isinstance(error, OSError) else None
    if code in _FULL:
        return "is full"
    if code == errno.EROFS:
        return "is read-only"
    said = _without_access(str(error), url) or type(error).__name__
    if isinstance(error, PermissionError):
        return f"refuses access: {said}"
    return f"failed: {said}"


def _without_access(text: str, url: str) -> str:
    """What the URL says of who may get in is in no message, also where a library repeats it in another way."""
    found = _access.search(url)
    for secret in found.group().removesuffix("@").split(":") if found else ():
        if secret:
            text = text.replace(secret, "...")
    return shown(text)
