"""What is tracked is the same on every machine: no paths of one, no package registry, no large or foreign files."""

import re
from pathlib import Path

from tests.house.purity_rules import imported
from tests.house.repository import ROOT, files, python_files, text, tree

_LARGEST_BYTES = 1_000_000

# Home directories and workplaces. /tmp, /var and /etc are the same everywhere.
_MACHINE_PATH = re.compile(r"(?<![\w./:}-])/(?:home|root|Users|work|mnt|media)/[\w.-]+")

_REGISTRY_SETTING = re.compile(
    r"--(?:extra-)?index-url|--find-links|--trusted-host|^\s*-[if]\s+\S|\bPIP_\w*(?:INDEX|LINKS|HOST)\w*\s*=|"
    r"\b(?:extra-)?index-url\s*=|find-links\s*=|trusted-host\s*=",
    re.MULTILINE,
)
_PIN = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+(?:\s*;.*)?")

_THIS = Path("tests/house/test_tracked_files.py")


def test_no_file_names_a_directory_of_one_machine() -> None:
    found = [f"{path}: {match}" for path in _text_files() for match in _MACHINE_PATH.findall(text(path))]
    assert not found, f"use a path relative to the repository, or a setting: {found}"


def test_a_directory_of_one_machine_is_noticed() -> None:
    noticed = [word for word in ("/home/ada/topmast", "cd /root/x", "'/Users/ada'") if _MACHINE_PATH.search(word)]
    assert len(noticed) == 3
    assert not _MACHINE_PATH.search("pages/home/ada and https://example.org/home/ada and ${X}/work/y")


def test_no_file_says_where_packages_come_from() -> None:
    found = [f"{path}: {match}" for path in _text_files() for match in _REGISTRY_SETTING.findall(text(path))]
    assert not found, f"that is the configuration of the one who installs: {found}"


def test_every_dependency_is_pinned_by_name_and_version_only() -> None:
    lines = [line for line in text(Path("constraints.txt")).splitlines() if line and not line.startswith("#")]
    assert len(lines) > 30
    assert [line for line in lines if _PIN.fullmatch(line) is None] == []


def test_tracked_files_are_small() -> None:
    sizes = {path.as_posix(): (ROOT / path).stat().st_size for path in files()}
    assert {name: size for name, size in sizes.items() if size > _LARGEST_BYTES} == {}


def test_no_parts_of_our_own_are_mocked() -> None:
    modules = python_files(("tests",))
    found = [
        path.as_posix()
        for path in modules
        for node in tree(path).body
        for name in imported(node)
        if name.partition(".")[0] == "mock" or name.startswith("unittest")
    ]
    assert modules
    assert not found, "use the real part, or a second real implementation of its protocol"


def _text_files() -> tuple[Path, ...]:
    """All text files but this one, which has to spell out what it looks for, and the licence."""
    binary = {".gz", ".png", ".gif", ".ico", ".parquet", ".npz"}
    found = tuple(path for path in files() if path.suffix not in binary and path not in {_THIS, Path("LICENSE")})
    assert len(found) > 50
    return found
