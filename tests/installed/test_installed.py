"""What is installed from the wheel: which names, which commands with which libraries, and that all of it is found."""

from __future__ import annotations

import json
import os
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.loopback_server import LoopbackServer
from tests.command_line.test_command_changing import FLEET, TENANTS, WORKLOAD
from tests.house.repository import files
from tests.installed.environment import Environment, build, environment, source
from topmast import Client, JobSpecification, WorkloadSpecification
from topmast_server.own_packages import OWN_PACKAGES

PROJECT = {
    "domain.py": "WHOSE = 'the domain of the project'\n",
    "services/__init__.py": "WHOSE = 'the services of the project'\n",
    "formats.py": "raise RuntimeError('nobody has asked for it')\n",
    "kernels.py": "raise RuntimeError('nobody has asked for it')\n",
    "train.py": "import domain, services\nprint(domain.WHOSE, '|', services.WHOSE)\n",
    "functions.py": "def train():\n    import domain\n    print('called:', domain.WHOSE)\n",
    "names.py": (
        "import importlib.util\n"
        "print([name for name in ('simulator', 'cluster_manager') if importlib.util.find_spec(name)])\n"
    ),
}
"""A project whose modules are called like packages of the service."""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return source(tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="module")
def wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(sources, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def light(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """As after `pip install topmast`."""
    return environment(tmp_path_factory.mktemp("light") / "environment", wheel)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    for name, text in PROJECT.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    """w1 runs."""
    train = JobSpecification(name="trainer", tasks=2, gpus=8, gpu_model="A100", command=["python", "train.py"])
    with LoopbackServer() as running:
        with Client(running.address) as client:
            client.submit(WorkloadSpecification(tenant="ads", name="first", jobs=[train]))
        running.do(lambda: running.topmast.dispatch("w1", {"trainer": "eu-1"}))
        yield running


def test_the_wheel_has_two_names_and_every_file_of_the_packages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"topmast", "topmast_server"}
    ours = [file for file in files() if file.parts[0] in (*OWN_PACKAGES, "topmast", "topmast_server")]
    assert len(ours) > 500
    assert {file.parts[0] for file in ours} == {*OWN_PACKAGES, "topmast", "topmast_server"}
    expected = {
        file.as_posix() if file.parts[0].startswith("topmast") else f"topmast_server/{file.as_posix()}" for file in ours
    }
    assert not expected - names
    assert {name for name in names - expected if ".dist-info/" not in name} == set()


def test_the_light_install_imports_the_client_and_nothing_of_the_service(light: Environment, project: Path) -> None:
    program = (
        "import sys, topmast, topmast.training\n"
        "print([name for name in sys.modules if name in ('ray', 'numpy', 'sqlalchemy', 'topmast_server', 'domain')])\n"
        "import domain; print(domain.WHOSE)\n"
    )
    ran = light.run("python", "-c", program, folder=project)
    assert ran.stdout == "[]\nthe domain of the project\n", ran.stderr
    for heavy in ("ray", "numpy", "sqlalchemy", "psycopg", "pyarrow", "matplotlib"):
        assert light.run("python", "-c", f"import {heavy}", folder=project).returncode == 1, heavy


def test_the_user_commands_work_in_the_light_install(light: Environment, project: Path, server: LoopbackServer) -> None:
    for name, text in {"workload.yaml": WORKLOAD, "fleet.yaml": FLEET, "tenants.yaml": TENANTS}.items():
        (project / name).write_text(text)
    server.start("eu-1")
    server.do(lambda: server.topmast.print_line("eu-1", "a line", "trainer"))
    commands = [
        ("status",),
        ("list",),
        ("get", "w1"),
        ("get", "w1", "--json"),
        ("logs", "w1"),
        ("queue",),
        ("events",),
        ("events", "--output", "events.jsonl.gz"),
        ("loans",),
        ("virtual-clusters",),
        ("apply", "-f", "fleet.yaml", "-f", "tenants.yaml"),
        ("submit", "-f", "workload.yaml"),
        ("run", "--tenant", "ads", "--gpus", "1", "--", "python", "train.py"),
        ("cancel", "w2"),
        ("version",),
        ("--help",),
        ("up", "--help"),
    ]
    variables = {"TOPMAST_ADDRESS": server.address}
    for command in commands:
        ran = light.run("topmast", *command, folder=project, variables=variables)
        assert ran.returncode == 0, f"{command}: {ran.stderr}"
        assert ran.stdout + ran.stderr, command
    # Not served here: that the service is asked at all shows that nothing is missing.
    for command in [("resize", "w1", "trainer=2"), ("retune", "w1", "trainer", "--cpus", "3"), ("migrate", "w1")]:
        ran = light.run("topmast", *command, folder=project, variables=variables)
        assert "topmast[" not in ran.stderr
        assert "Traceback" not in ran.stderr
        assert "method" in ran.stderr.lower(), f"{command}: {ran.stderr}"


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (("up",), "server"),
        (("down",), "server"),
        (("serve", "global"), "server"),
        (("db", "current"), "server"),
        (("demo",), "server"),
        (("profile", "show"), "server"),
        (("events", "--archive", "."), "server"),
        (("trace", "formats"), "simulator"),
        (("policies",), "simulator"),
        (("data", "generate", "--tables", "20", "--regions", "2", "-o", "warehouse"), "simulator"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_a_command_that_needs_an_extra_says_which_in_one_line(
    light: Environment, project: Path, command: tuple[str, ...], extra: str
) -> None:
    home = project.parent / "home"
    ran = light.run("topmast", *command, folder=project, variables={"TOPMAST_HOME": str(home)})
    assert ran.returncode == 5
    assert ran.stdout == ""
    (line,) = ran.stderr.splitlines()
    assert line.startswith(f"topmast: this command needs topmast[{extra}], and ")
    assert line.endswith(f" is not installed: pip install 'topmast[{extra}]'")
    assert not home.exists()
    assert not (project / "warehouse").exists()


def test_a_type_checker_finds_the_client_of_an_editable_install(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = environment(tmp_path / "environment", build(sources, tmp_path / "wheel", editable=True))
    project = tmp_path / "project"
    project.mkdir()
    (project / "app.py").write_text(
        "from topmast import Client\n\n\ndef first(client: Client) -> int:\n    return client.get('w1').workload\n"
    )
    monkeypatch.delenv("MYPYPATH", raising=False)
    checker = Environment(Path(sys.executable).parent.parent)
    options = ("--strict", "--no-incremental", "--follow-imports=silent", "--python-executable", str(made.python))
    checked = checker.run("mypy", *options, "app.py", folder=project)
    # A type from the client, not "cannot find ... module named topmast".
    assert 'app.py:5: error: Incompatible return value type (got "str", expected "int")' in checked.stdout
    assert "Found 1 error in 1 file" in checked.stdout


@pytest.mark.live
def test_a_service_of_the_wheel_runs_a_project_with_modules_called_like_its_own(wheel: Path, project: Path) -> None:
    """Started in the project's folder: neither gets the modules of the other."""
    session_home = Path(os.environ["TOPMAST_HOME"])
    # Not in the tests' temporary folder, which is root's alone: root's PostgreSQL is another user's.
    full = environment(session_home / "environment", wheel, "server")
    (project / "fleet.yaml").write_text(FLEET.replace("count: 2", "count: 1"))
    (project / "tenants.yaml").write_text(TENANTS)
    home = session_home / "w"
    # Nothing is compiled: that would take a minute, in an environment that has never done it.
    variables = {"TOPMAST_HOME": str(home), "NUMBA_DISABLE_JIT": "1"}

    def topmast(*arguments: str) -> str:
        ran = full.run("topmast", *arguments, folder=project, variables=variables)
        assert ran.returncode == 0, f"{arguments}: {ran.stderr}"
        return ran.stdout

    topmast("up", "--port", "0", "--fleet", "fleet.yaml", "--tenants", "tenants.yaml")
    try:
        run = ("run", "--tenant", "vision", "--gpus", "1", "--follow")
        ran = topmast(*run, "--", "python", "train.py")
        assert "the domain of the project | the services of the project\n" in ran
        assert "called: the domain of the project\n" in topmast(*run, "--function", "functions:train")
        assert "[]\n" in topmast(*run, "--", "python", "names.py")
        states = [json.loads(line)["state"] for line in topmast("list", "--json").splitlines()]
        assert states == ["COMPLETED"] * 3
        # One more process of the service: the one that reads a warehouse from the database.
        topmast("data", "export", "-o", "catalog")
        assert any((project / "catalog").iterdir())
    finally:
        topmast("down")
