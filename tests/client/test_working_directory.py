"""A folder as a package: what is in it, that it follows from the content alone, and what is refused."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tarfile
from pathlib import Path

import pytest

from topmast import WorkingDirectoryError
from topmast.working_directory import PackageLimits, entries_of, pack_folder

AMPLE = PackageLimits(greatest_bytes=1 << 30, greatest_entries=10_000)


def write(folder: Path, **files: str) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


def project(folder: Path) -> Path:
    write(folder, **{"train.py": "print(1)\n", "lib/model.py": "x = 1\n", "lib/__pycache__/model.pyc": "compiled"})
    write(folder, **{".git/HEAD": "ref", "run.sh": "#!/bin/sh\n"})
    (folder / "run.sh").chmod(0o750)
    (folder / "empty").mkdir()
    (folder / "latest").symlink_to("lib/model.py")
    return folder


def packed(folder: Path) -> dict[str, tarfile.TarInfo]:
    with pack_folder(folder, AMPLE) as package:
        content = b"".join(part.content for part in package.parts())
        assert len(content) == package.size_bytes
    archive = folder.parent / "archive.tar"
    archive.write_bytes(content)
    with tarfile.open(archive) as tar:
        return {info.name: info for info in tar}


def name_of(folder: Path) -> str:
    with pack_folder(folder, AMPLE) as package:
        return package.name


def names(folder: Path) -> set[str]:
    return {entry.name for entry in entries_of(folder.resolve(), AMPLE) if not stat.S_ISDIR(entry.mode)}


def test_a_package_has_files_links_and_folders_without_the_history(tmp_path: Path) -> None:
    found = packed(project(tmp_path / "project"))
    assert set(found) == {"train.py", "lib", "lib/model.py", "run.sh", "empty", "latest"}
    assert (found["latest"].issym(), found["latest"].linkname) == (True, "lib/model.py")
    assert found["empty"].isdir()
    assert (oct(found["run.sh"].mode), oct(found["train.py"].mode)) == ("0o755", "0o644")


def test_the_same_content_has_the_same_name_wherever_and_whenever_it_was_written(tmp_path: Path) -> None:
    one = project(tmp_path / "one")
    other = tmp_path / "far" / "other"
    shutil.copytree(one, other, symlinks=True)
    for path in other.rglob("*"):
        os.utime(path, (1, 1), follow_symlinks=False)
    (other / "train.py").chmod(0o600)
    assert name_of(one) == name_of(other)
    (other / "train.py").chmod(0o700)
    assert name_of(one) != name_of(other), "the executable bit belongs to it"
    (other / "train.py").chmod(0o600)
    (other / "train.py").write_text("print(2)\n")
    assert name_of(one) != name_of(other)


RULES = {
    ".gitignore": "*.log\n/data/\nbuild\n!keep.log\n# no rule\n*.tmp\n",
    "a.log": "",
    "keep.log": "",
    "data/x.bin": "",
    "src/data/y.bin": "",
    "src/build/z.o": "",
    "src/.gitignore": "!a.log\n*.txt\n/only_here\n",
    "src/a.log": "",
    "src/deep/a.log": "",
    "src/deep/b.txt": "",
    "src/only_here": "",
    "src/deep/only_here": "",
    "src/deep/.gitignore": "!b.txt\n",
    "b.txt": "",
    "spaced name.tmp": "",
}


def test_gitignore_files_mean_what_they_mean_to_git(tmp_path: Path) -> None:
    write(tmp_path, **RULES)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    listing = ["git", "-C", str(tmp_path), "ls-files", "-z", "--others", "--exclude-standard"]
    by_git = subprocess.run(listing, check=True, capture_output=True, text=True).stdout
    expected = {name for name in by_git.split("\0") if name}
    assert "src/a.log" in expected
    assert "data/x.bin" not in expected
    assert names(tmp_path) == expected
    below = {name.removeprefix("src/") for name in expected if name.startswith("src/")}
    assert names(tmp_path / "src") == below, "the rules of the folders above count in a part of the repository, too"


def test_topmastignore_goes_over_gitignore_in_its_folder(tmp_path: Path) -> None:
    write(tmp_path, **{".gitignore": "*.log\ndata/\n", ".topmastignore": "!a.log\nnotes/\n"})
    write(tmp_path, **{"a.log": "", "notes/n.md": "", "data/d": "", "train.py": ""})
    assert names(tmp_path) == {".gitignore", ".topmastignore", "a.log", "train.py"}


def test_a_folder_that_the_repository_ignores_is_packed_when_it_is_asked_for(tmp_path: Path) -> None:
    write(tmp_path, **{".gitignore": "out/\n*.py\n", "out/train.py": ""})
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    assert names(tmp_path / "out") == {"train.py"}


@pytest.mark.parametrize(
    ("target", "words"),
    [("../elsewhere", "leads out of"), ("/etc/passwd", "absolute path"), ("inner/../../elsewhere", "leads out of")],
)
def test_a_link_that_leads_out_is_refused(tmp_path: Path, target: str, words: str) -> None:
    folder = write(tmp_path / "project", **{"inner/x": ""})
    (folder / "link").symlink_to(target)
    with pytest.raises(WorkingDirectoryError, match=words) as refused:
        pack_folder(folder, AMPLE)
    assert ".topmastignore" in str(refused.value)
    write(folder, **{".topmastignore": "link\n"})
    assert names(folder) == {".topmastignore", "inner/x"}


def test_links_that_stay_are_kept_also_where_nothing_is(tmp_path: Path) -> None:
    folder = write(tmp_path / "project", **{"inner/x": ""})
    (folder / "inner" / "up").symlink_to("../inner/x")
    (folder / "later").symlink_to("results/newest")
    found = packed(folder)
    assert found["inner/up"].linkname == "../inner/x"
    assert found["later"].linkname == "results/newest"


def test_what_is_no_file_is_left_out(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    write(tmp_path, **{"train.py": ""})
    assert names(tmp_path) == {"train.py"}


def test_too_many_bytes_are_refused_with_the_largest_entries_and_the_remedy(tmp_path: Path) -> None:
    write(tmp_path, **{"data/deep/train.bin": "x" * 900_000, "model.bin": "x" * 300_000, "train.py": "x"})
    with pytest.raises(WorkingDirectoryError) as refused:
        pack_folder(tmp_path, PackageLimits(greatest_bytes=1 << 20, greatest_entries=100))
    said = str(refused.value)
    assert "1.0 MiB at most" in said
    assert said.index("data/deep/train.bin (") < said.index("model.bin (")
    assert ".topmastignore" in said
    assert "--workdir" in said


def test_too_many_files_are_refused_with_where_most_of_them_are(tmp_path: Path) -> None:
    write(tmp_path, **{f"venv/lib/{number}.py": "" for number in range(30)}, **{"train.py": ""})
    with pytest.raises(WorkingDirectoryError, match=r"33 files and folders.*10 at most.*venv/lib \(31\)"):
        pack_folder(tmp_path, PackageLimits(greatest_bytes=1 << 20, greatest_entries=10))
    with pytest.raises(WorkingDirectoryError, match="more than 8 files and folders"):
        pack_folder(tmp_path, PackageLimits(greatest_bytes=1 << 20, greatest_entries=2))


def test_secrets_of_a_service_beside_the_code_are_in_no_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever says `TOPMAST_HOME=home topmast up` and `topmast certs init --out certificates` in the folder of the code."""
    monkeypatch.delenv("TOPMAST_HOME", raising=False)
    token = f"topmast_{'0' * 16}_{'1' * 64}\n"
    files = {
        "train.py": "",
        "host.lock": "",
        "notes": f"{token} is not to be shown",
        "home/host.lock": "",
        "home/secrets/admin.token": token,
        "home/postgres/pgpass": "*",
        "certificates/authority.pem": "",
        "certificates/authority-key.pem": "",
        "certificates/clients/ann-key.pem": "",
        "deep/down/alice.token": token,
        "named/token": "of an identity provider",
        "named/key.pem": "",
        "data/authority.pem": "",
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    monkeypatch.setenv("TOPMAST_TOKEN_FILE", str(tmp_path / "named/token"))
    monkeypatch.setenv("TOPMAST_TLS_KEY", str(tmp_path / "named/key.pem"))
    folders = ["data", "deep", "deep/down", "named"]
    assert sorted(entry.name for entry in entries_of(tmp_path, AMPLE)) == sorted(
        [*folders, "train.py", "host.lock", "notes", "data/authority.pem"]
    )
    for name in ("home", "certificates"):
        with pytest.raises(WorkingDirectoryError, match=f"{name} has secrets of a Topmast"):
            entries_of(tmp_path / name, AMPLE)
    # A home that was never started has nothing to tell it by but its name.
    monkeypatch.setenv("TOPMAST_HOME", str(tmp_path / "data"))
    assert "data" not in {entry.name for entry in entries_of(tmp_path, AMPLE)}


def test_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkingDirectoryError, match="there is no folder"):
        pack_folder(tmp_path / "nowhere", AMPLE)


def test_the_folder_of_the_examples_can_be_packed() -> None:
    """It has a link in it that leads out of it."""
    examples = Path(__file__).resolve().parents[2] / "examples"
    limits = PackageLimits(1 << 20, 1_000)
    with pack_folder(examples, limits) as package:
        assert package.name
    assert "workload.yaml" in [entry.name for entry in entries_of(examples, limits)]


def test_folders_that_are_nested_without_end_are_refused(tmp_path: Path) -> None:
    (tmp_path / "runs" / "/".join(["d"] * 250)).mkdir(parents=True)
    with pytest.raises(WorkingDirectoryError, match="has folders in more than 200 others, below runs; name that in"):
        pack_folder(tmp_path, AMPLE)
