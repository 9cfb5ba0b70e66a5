import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.live


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "topmast.training.run_callable", *arguments]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)


def test_the_function_is_called(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("class Trainer:\n    @staticmethod\n    def main():\n        print('trained')\n")
    ended = run(tmp_path, "job:Trainer.main")
    assert (ended.returncode, ended.stdout) == (0, "trained\n")


def test_what_the_function_raises_ends_the_process(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("def main():\n    raise ValueError('diverged')\n")
    ended = run(tmp_path, "job:main")
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == "ValueError: diverged"


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("job", "say what to run as module:function"),
        ("nowhere:main", "there is no module 'nowhere' here; is the working directory the right one?"),
        ("job:absent", "module 'job' has no 'absent'"),
        ("job:NUMBER", "'job:NUMBER' cannot be called"),
    ],
    ids=["no function", "no module", "no such function", "not a function"],
)
def test_what_cannot_be_called_is_refused_in_one_sentence(tmp_path: Path, target: str, sentence: str) -> None:
    (tmp_path / "job.py").write_text("NUMBER = 1\n")
    ended = run(tmp_path, target)
    assert (ended.returncode, ended.stderr) == (2, f"topmast: {sentence}\n")


def test_a_module_that_lacks_another_one_says_so_with_the_whole_story(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("import not_installed\n")
    ended = run(tmp_path, "job:main")
    assert ended.returncode == 1
    assert "ModuleNotFoundError: No module named 'not_installed'" in ended.stderr
