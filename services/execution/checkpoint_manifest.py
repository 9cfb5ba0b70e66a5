"""What a store has of a workload's checkpoint directory, and what of that an attempt begins with. Pure.

Below `<store>/<workload>/` are

- `manifests/<attempt>-<folder>-<number>.json`: all files of one folder (of a machine, or of several that share a disk) as of one
  moment. Written last: without it nothing of an upload counts.
- `contents/<attempt>-<folder>/<number>-<file>`: the contents that the manifests name, each written once;
- `fence`: the newest attempt that has begun.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath

_NAME = re.compile(r"(\d+)-([0-9a-f]+)-(\d+)\.json")
_CONTENT = re.compile(r"(\d+)-([0-9a-f]+)/")
_CHECKPOINT = re.compile(r"checkpoint-(\d+)-(\d+)")

_KEPT_BESIDE = ("fence", "lock", "elsewhere")
"""Files of the training library beside its checkpoints, and what is being written of them (`.fence.<process>`)."""

MANIFESTS, CONTENTS, FENCE = "manifests", "contents", "fence"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file: where its content is in the store, and what it was like where it came from."""

    content: str
    size_bytes: int
    changed_ns: int


@dataclass(frozen=True, slots=True, order=True)
class ManifestName:
    """Of two manifests of a folder the one with the greater number is newer."""

    attempt: int
    folder: str
    number: int

    @property
    def path(self) -> str:
        return f"{MANIFESTS}/{self.attempt:06d}-{self.folder}-{self.number:08d}.json"

    def content(self, file: int) -> str:
        """Where a content goes that is new with this manifest."""
        return f"{CONTENTS}/{self.attempt:06d}-{self.folder}/{self.number:08d}-{file:06d}"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files by their path within the checkpoint directory. `progress`: of each job that uses the training library, of its newest
    checkpoint among them."""

    progress: Mapping[str, float]
    files: Mapping[str, StoredFile]

    def to_text(self) -> str:
        return json.dumps(
            {
                "format": 1,
                "progress": dict(self.progress),
                "files": {path: asdict(file) for path, file in self.files.items()},
            }
        )

    @staticmethod
    def from_text(text: str | bytes) -> Manifest:
        """Raises ValueError, KeyError or TypeError for what is none."""
        read = json.loads(text)
        files = {_checked(path): StoredFile(**file) for path, file in read["files"].items()}
        return Manifest({str(job): float(progress) for job, progress in read["progress"].items()}, files)


def manifest_names(paths: Iterable[str]) -> list[ManifestName]:
    """Those of the newest number of each attempt and folder, sorted."""
    newest: dict[tuple[int, str], ManifestName] = {}
    for path in paths:
        found = _NAME.fullmatch(PurePosixPath(path).name)
        if found is not None:
            name = ManifestName(int(found[1]), found[2], int(found[3]))
            newest[name.attempt, name.folder] = max(name, newest.get((name.attempt, name.folder), name))
    return sorted(newest.values())


def to_begin_with(names: Iterable[ManifestName], attempt: int) -> list[ManifestName]:
    """Those of the newest attempt, up to this one, that has stored anything."""
    possible = [name for name in names if name.attempt <= attempt]
    newest = max((name.attempt for name in possible), default=0)
    return [name for name in possible if name.attempt == newest]


def still_needed(names: Iterable[ManifestName], attempt: int) -> list[ManifestName]:
    """What tasks of this attempt may begin with, or have begun with: the rest is history."""
    possible = list(names)
    before = max((name.attempt for name in possible if name.attempt < attempt), default=0)
    return [name for name in possible if name.attempt >= before]


def merged(manifests: Iterable[Manifest]) -> dict[str, StoredFile]:
    """The files of several folders of one attempt; of one that several have, that which was changed last."""
    files: dict[str, StoredFile] = {}
    for manifest in manifests:
        for path, file in manifest.files.items():
            known = files.get(path)
            if known is None or (known.changed_ns, known.content) < (file.changed_ns, file.content):
                files[path] = file
    return dict(sorted(files.items()))


def unneeded_contents(contents: Iterable[str], needed: frozenset[str], *, before: int) -> list[str]:
    """Of attempts before this one, what no manifest names."""
    found: list[str] = []
    for content in contents:
        owner = _CONTENT.match(content.removeprefix(f"{CONTENTS}/"))
        if owner is not None and int(owner[1]) < before and content not in needed:
            found.append(content)
    return found


def checkpoint_of(path: str) -> str | None:
    """The complete checkpoint of the training library (`<job>/checkpoint-...`) that this file belongs to."""
    parts = PurePosixPath(path).parts
    return "/".join(parts[:2]) if len(parts) > 2 and _CHECKPOINT.fullmatch(parts[1]) else None


def is_of_the_library(path: str) -> bool:
    """What the training library keeps for itself beside its checkpoints, and has no meaning elsewhere."""
    parts = PurePosixPath(path).parts
    if len(parts) < 2:
        return False
    return parts[1].startswith(".writing-") or (len(parts) == 2 and parts[1].lstrip(".").split(".")[0] in _KEPT_BESIDE)


def newest_checkpoints(checkpoints: Iterable[str]) -> set[str]:
    """The newest of each job: the greater attempt, then the greater number."""
    newest: dict[str, tuple[int, int, str]] = {}
    for checkpoint in checkpoints:
        job, _, name = checkpoint.partition("/")
        found = _CHECKPOINT.fullmatch(name)
        if found is not None:
            order = (int(found[1]), int(found[2]), checkpoint)
            newest[job] = max(order, newest.get(job, order))
    return {checkpoint for _, _, checkpoint in newest.values()}


def _checked(path: str) -> str:
    """Raises ValueError for a path that leads out of the directory."""
    parts = PurePosixPath(path).parts
    if not parts or parts[0] == "/" or ".." in parts:
        raise ValueError(f"{path} leads out of the checkpoint directory")
    return path
