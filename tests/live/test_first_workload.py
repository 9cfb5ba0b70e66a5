"""A reader's first hour: the commands of README.md as they stand there, and a project of one's own, from folders of one's own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.live

REPOSITORY = Path(__file__).resolve().parents[2]
PATIENCE_REAL_S = 600
NOT_TYPED = ("make install", ". .venv/bin/activate")
"""Whoever runs this has done so."""

COMMAND = """\
#!{python}
import sys
from services.command_line.main import main
if sys.argv[1:2] == ["up"]:
    sys.argv += ["--port", "0"]  # others may have the usual one
main()
"""


def typed_commands(page: str, section: str) -> list[str]:
    """The lines of the first block of code of a section."""
    block = page.partition(f"## {section}\n")[2].partition("```\n")[2].partition("```")[0]
    lines = [line for line in block.splitlines() if line and line not in NOT_TYPED]
    assert len(lines) > 5
    return lines


def with_example_files(folder: Path, commands: list[str]) -> Path:
    """A new folder with copies of the example files that these commands name, and nothing else."""
    for name in sorted({name for line in commands for name in re.findall(r"examples/[\w./]+", line)}):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, folder / name)
    return folder


class Shell:
    """Types commands in folders; what runs is this checkout."""

    def __init__(self, home: Path) -> None:
        programs = home.parent / "bin"
        programs.mkdir()
        (programs / "topmast").write_text(COMMAND.format(python=sys.executable))
        (programs / "topmast").chmod(0o755)
        path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TOPMAST_")}
        self._environment = {**kept, "PATH": path, "TOPMAST_HOME": str(home), "PYTHONPATH": str(REPOSITORY)}

    def __call__(self, line: str, folder: Path) -> str:
        """Standard output of a command, which must succeed."""
        typed = ["bash", "-e", "-c", line]
        done = subprocess.run(
            typed,
            cwd=folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_REAL_S,
            check=False,
        )
        assert done.returncode == 0, f"{line}: {done.stdout}\n{done.stderr}"
        return done.stdout


@contextmanager
def shell_with_home() -> Iterator[Callable[[str, Path], str]]:
    """When it ends, the service of the home does."""
    # Sockets have short names.
    with tempfile.TemporaryDirectory(prefix="topmast-first-", ignore_cleanup_errors=True) as folder:
        shell = Shell(Path(folder) / "home")
        try:
            yield shell
        finally:
            shell("topmast down", Path(folder))


PROJECT = {
    ".gitignore": "data/\n",
    "train.py": "from model import NAME\nprint(NAME, open('settings.txt').read(), flush=True)\n",
    "model.py": "NAME = 'my model'\n",
    "settings.txt": "of my own",
    "data/large.bin": "left out",
    "patient.py": (
        "import os, time\n"
        "print('attempt', os.environ['TOPMAST_ATTEMPT'], sorted(os.listdir()), flush=True)\n"
        "while not os.path.exists(os.environ['GO_ON']):\n"
        "    time.sleep(0.05)\n"
    ),
}


def own_project(folder: Path) -> Path:
    for name, content in PROJECT.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def test_the_first_workload_of_the_readme_and_one_of_ones_own(tmp_path: Path) -> None:
    commands = typed_commands((REPOSITORY / "README.md").read_text(), "Your first workload in five minutes")
    assert commands[-1] == "topmast down"
    reader = with_example_files(tmp_path / "reader", commands)
    mine, empty, go_on = own_project(tmp_path / "mine"), tmp_path / "empty", tmp_path / "go_on"
    empty.mkdir()
    workload, logs = "", []
    with shell_with_home() as shell:
        for line in commands[:-1]:
            output = shell(line.replace("<workload>", workload), reader)
            workload = output.strip() if line.startswith("topmast run") else workload
            logs += [output] if line.startswith("topmast logs") else []
        assert any("hello from a GPU machine" in log for log in logs)
        assert (reader / "events.jsonl").stat().st_size > 0

        # A project in another folder.
        output = shell("topmast run --tenant vision --gpus 1 --follow -- python train.py", mine)
        assert "my model of my own" in output
        # It runs on when the service is restarted from elsewhere: its next attempt finds its files again.
        run = f"topmast run --tenant vision --gpus 1 --env GO_ON={go_on} --workdir"
        workload = shell(f"{run} {mine} -- python patient.py", empty).strip()
        waiting = shell(
            "topmast run --tenant vision --gpus 8 --tasks 2 --gpu-model V100 -- python train.py", mine
        ).strip()
        shell(f"until topmast logs {workload} 2>/dev/null | grep -q 'attempt 1'; do sleep 0.2; done", empty)
        shell("topmast down", empty)
        shutil.rmtree(mine)
        shell("topmast up", empty)
        go_on.touch()
        shell(f"topmast watch {workload}", empty)
        shell(f"topmast watch {waiting}", empty)
        newest = shell(f"topmast logs {workload}", empty)
        assert newest.startswith("attempt ")
        assert "'.gitignore', 'model.py', 'patient.py', 'settings.txt', 'train.py'" in newest
        assert "my model of my own" in shell(f"topmast logs {waiting}", empty)
        # What nobody said anything of has a folder of its own, and it is empty.
        listing = shell("topmast run --tenant vision --gpus 1 --no-workdir --follow -- ls -A", reader)
        assert "examples" not in listing
        shell(commands[-1], reader)
