"""The fences bite: forbidden code, put where it must not stand, is found by the tools that `make test` runs."""

import json
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.house.repository import CORE_PACKAGES, ROOT

_SCRIPTS = Path(sysconfig.get_path("scripts"))

_BANNED_LINES = (
    "import time",
    "from time import monotonic",
    "import random",
    "import uuid",
    "import asyncio",
    "import socket",
    "import ray",
    "import grpc",
    "import sqlalchemy",
    "import psycopg",
    "from google.protobuf import message",
    "from topmast.v1 import workload_pb2",
    "import os; HOME = os.environ['HOME']",
    "import os; HOME = os.getenv('HOME')",
    "import datetime; NOW = datetime.datetime.now(datetime.UTC)",
)


@pytest.mark.parametrize("package", CORE_PACKAGES)
def test_the_core_cannot_name_the_world(package: str) -> None:
    messages = _banned_messages(f"{package}/decision.py")
    accepted = [line for number, line in enumerate(_BANNED_LINES, start=1) if number not in messages]
    assert accepted == [], f"ruff accepts this in {package}"
    for message in messages.values():
        assert any(word in message for word in ("take", "use", "return")), f"says not what to do: {message}"


@pytest.mark.parametrize("package", ["services", "benchmarks", "tests", "topmast"])
def test_the_shells_may_name_it(package: str) -> None:
    assert _banned_messages(f"{package}/shell.py") == {}


_ARROWS_AGAINST_THE_DESIGN = (
    ("domain", "formats"),
    ("formats", "cluster_manager"),
    ("global_scheduler", "regional_scheduler"),
    ("regional_scheduler", "global_scheduler"),
    ("cluster_manager", "regional_scheduler"),
    ("data_placement", "regional_scheduler"),
    ("global_scheduler", "cluster_manager"),
    ("global_scheduler", "data_placement"),
    ("data_placement", "cluster_manager"),
    ("cluster_manager", "data_placement"),
    ("simulator", "services"),
    ("cluster_manager", "services"),
    ("topmast", "domain"),
    ("topmast", "services"),
    ("topmast", "topmast_server"),
    ("simulator", "topmast"),
    ("domain", "numba"),
    ("cluster_manager", "sqlalchemy"),
    ("simulator", "ray"),
    ("regional_scheduler", "time"),
    ("formats", "asyncio"),
)


@pytest.fixture(scope="module")
def broken_imports(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What import-linter says about a house of empty packages with every forbidden arrow drawn in."""
    house = tmp_path_factory.mktemp("house")
    shutil.copy(ROOT / "pyproject.toml", house)
    for package in (*CORE_PACKAGES, "services", "topmast", "topmast_server"):
        (house / package).mkdir()
        (house / package / "__init__.py").touch()
    for source, target in _ARROWS_AGAINST_THE_DESIGN:
        (house / source / f"draws_{target}.py").write_text(f"import {target}\n", encoding="utf-8")
    finished = subprocess.run(
        [_SCRIPTS / "lint-imports", "--no-cache"], cwd=house, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 1, finished.stdout + finished.stderr
    return finished.stdout


@pytest.mark.parametrize(("source", "target"), _ARROWS_AGAINST_THE_DESIGN)
def test_an_arrow_against_the_design_is_found(broken_imports: str, source: str, target: str) -> None:
    assert f"{source}.draws_{target} -> {target}" in broken_imports


def _banned_messages(name: str) -> dict[int, str]:
    """What ruff says about the banned lines in a module of this name, by line number."""
    finished = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--select", "TID251", "--output-format", "json", "--no-cache",
         "--stdin-filename", name, "-"],
        cwd=ROOT, input="\n".join(_BANNED_LINES), capture_output=True, text=True, check=False,
    )  # fmt: skip
    diagnostics = json.loads(finished.stdout)
    assert {diagnostic["code"] for diagnostic in diagnostics} <= {"TID251"}, finished.stdout
    return {diagnostic["location"]["row"]: diagnostic["message"] for diagnostic in diagnostics}
