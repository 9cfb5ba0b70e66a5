"""Which entries of a package may be unpacked: none that would be written, or linked, through a link of the same package.

The filter `data` of tarfile alone does not suffice: whether a path leads out of the folder is asked of the system there, which
gives up on very long paths, and some versions of Python take that for an answer (CVE-2025-4517 and its like).
"""

from __future__ import annotations

import os
import stat
import tarfile

if "data_filter" not in vars(tarfile):
    # Python before 3.11.4, as Debian 12 has it, cannot filter what it unpacks.
    from backports import tarfile  # type: ignore[no-redef]  # the same, under another name

_SHOWN_CHARACTERS = 200


class EntryRefused(tarfile.FilterError):
    """An entry that would leave the folder. Other errors of tarfile would leave out the entry alone, and go on."""

    def __init__(self, sentence: str) -> None:
        Exception.__init__(self, sentence)


def contained_entry(entry: tarfile.TarInfo, folder: str) -> tarfile.TarInfo:
    """The entry without devices, owners and unusual rights. Raises tarfile.TarError for one that would leave the folder, and OSError
    for a path that no machine can have."""
    kept = tarfile.data_filter(entry, folder)
    # A link may take the place of another link, which is removed before.
    _require_no_link(folder, kept.name, last=not kept.issym())
    if kept.islnk():
        _require_no_link(folder, kept.linkname, last=True)
    return kept


def _require_no_link(folder: str, name: str, *, last: bool) -> None:
    """Whoever packs a folder never follows a link: an entry below one is made to be written elsewhere. `last`: nor may it be one itself."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise EntryRefused(f"{name[-_SHOWN_CHARACTERS:]} has '..' in its path")
    path = folder
    for part in parts if last else parts[:-1]:
        path = os.path.join(path, part)  # noqa: PTH118  # text: a package may have a million of them
        try:
            mode = os.lstat(path).st_mode
        except FileNotFoundError:
            return
        if stat.S_ISLNK(mode):
            raise EntryRefused(f"{name[-_SHOWN_CHARACTERS:]} would be written through a link of the package")
