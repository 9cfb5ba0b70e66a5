"""The example scripts, run by hand: real gradients, stopped and resumed."""

import importlib.util
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.live

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "training"


def run(script: str, directory: Path, *options: str) -> str:
    command = [sys.executable, str(EXAMPLES / script), *options]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=True).stdout


def stop_in_the_middle(script: str, directory: Path, *options: str) -> str:
    """Terminates the script after its first line; what it printed after that."""
    command = [sys.executable, str(EXAMPLES / script), *options]
    with subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        printed = process.stdout.read()
    assert process.returncode == 0
    return printed


def test_numpy_training_learns_and_resumes_to_the_last_bit(tmp_path: Path) -> None:
    undisturbed, disturbed = tmp_path / "undisturbed", tmp_path / "disturbed"
    undisturbed.mkdir()
    disturbed.mkdir()
    whole = run("numpy_regression.py", undisturbed, "--steps", "300").splitlines()
    losses = [float(line.split()[-1]) for line in whole if " loss " in line]
    assert losses[-1] < losses[0] / 2
    slow = ("--steps", "300", "--print-every", "10", "--seconds-per-step", "0.005")
    assert stop_in_the_middle("numpy_regression.py", disturbed, *slow).splitlines()[-1].startswith("stopped at step")
    resumed = run("numpy_regression.py", disturbed, "--steps", "300").splitlines()
    assert resumed[0].startswith("resumed at step")
    assert resumed[-1] == whole[-1]


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
def test_torch_training_learns_and_resumes(tmp_path: Path) -> None:
    undisturbed, disturbed = tmp_path / "undisturbed", tmp_path / "disturbed"
    undisturbed.mkdir()
    disturbed.mkdir()
    whole = run("torch_classifier.py", undisturbed, "--steps", "200").splitlines()
    slow = ("--steps", "200", "--print-every", "10", "--seconds-per-step", "0.005")
    assert stop_in_the_middle("torch_classifier.py", disturbed, *slow).splitlines()[-1].startswith("stopped at step")
    resumed = run("torch_classifier.py", disturbed, "--steps", "200").splitlines()
    assert resumed[0].startswith("resumed at step")
    assert resumed[-1] == whole[-1]


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="PyTorch is installed")
@pytest.mark.parametrize("script", ["torch_classifier.py", "torch_data_parallel.py"])
def test_without_torch_the_example_says_what_to_do(script: str, tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / script)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr == "this example needs PyTorch: pip install torch\n"
