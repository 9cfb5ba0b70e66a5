"""Which storage this installation can reach."""

from __future__ import annotations

from formats.problems import suggestion

_S3 = frozenset({"s3", "s3a"})
_LIBRARY_MISSING = "is in S3, and the library for that is not installed: pip install 'topmast[s3]'"


def protocol_problem(url: str) -> str | None:
    """Why no storage with this URL can be reached from here: fsspec, or what is installed beside it, lacks it. None: it can."""
    # It takes a while to import, and only who names storage needs it.
    import fsspec

    for protocol in url.partition("://")[0].split("::"):
        try:
            fsspec.get_filesystem_class(protocol)
        except ValueError:
            known = [name for name in fsspec.available_protocols() if name.isalnum()]
            return f"there is no storage protocol {protocol!r}; {suggestion(protocol, known, 'protocol')}"
        except ImportError as error:
            return _LIBRARY_MISSING if protocol in _S3 else f"cannot be reached: {error}"
    return None
