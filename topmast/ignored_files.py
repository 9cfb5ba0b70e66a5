"""Which files of a folder are no part of it: what .gitignore and .topmastignore say, as git reads such files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec

from topmast.errors import WorkingDirectoryError

IGNORE_FILES = (".gitignore", ".topmastignore")
"""In one folder what the second says goes over what the first one says."""
NEVER_PACKED = frozenset({".git", "__pycache__"})
"""By name, wherever they are: the history, and what Python makes anew."""


@dataclass(frozen=True, slots=True)
class _Rules:
    """The patterns of one folder; `base` is its path with / at the end."""

    base: str
    patterns: GitIgnoreSpec

    def decision(self, path: str) -> bool | None:
        """True: ignored; False: not; None: they do not say."""
        return self.patterns.check_file(path.removeprefix(self.base)).include


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """What counts in one folder: its own patterns and those of the folders above, of which the nearest that say anything decide."""

    _levels: tuple[_Rules, ...] = ()

    @staticmethod
    def above(folder: Path) -> IgnoreRules:
        """Those that the folders above have for a folder within a git repository; none where they ignore the folder itself."""
        parents = list(folder.parents)
        repository = next((place for place, one in enumerate([folder, *parents]) if (one / ".git").exists()), 0)
        rules = IgnoreRules()
        inner = folder.parents[:repository]
        for parent in reversed(inner):
            if rules.ignores(f"{parent}", folder=True):
                return IgnoreRules()
            rules = rules.within(parent)
        return IgnoreRules() if rules.ignores(f"{folder}", folder=True) else rules

    def within(self, folder: Path) -> IgnoreRules:
        """Those that count in a folder. Raises WorkingDirectoryError for a file of patterns that cannot be read."""
        lines: list[str] = []
        for name in IGNORE_FILES:
            path = folder / name
            try:
                lines += path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
            except (FileNotFoundError, IsADirectoryError):
                continue
            except OSError as error:
                raise WorkingDirectoryError(f"{path} cannot be read: {error.strerror}") from error
        if not lines:
            return self
        try:
            patterns = GitIgnoreSpec.from_lines(lines)
        except ValueError as error:
            raise WorkingDirectoryError(f"the patterns in {folder} ({' and '.join(IGNORE_FILES)}): {error}") from error
        base = f"{folder}".rstrip("/") + "/"
        return IgnoreRules((*self._levels, _Rules(base, patterns)))

    def ignores(self, path: str, *, folder: bool) -> bool:
        """Whether the entry with that path is ignored, and with a folder everything in it."""
        shown = f"{path}/" if folder else path
        for level in reversed(self._levels):
            decision = level.decision(shown)
            if decision is not None:
                return decision
        return False
