"""As whom tasks run, and what they get of the service."""

from __future__ import annotations

import asyncio
import os
import pwd
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from services.configuration import Configuration, TasksConfiguration
from services.execution.executor import AttemptPhase, SessionTarget
from services.execution.session_frames import FrameKind, SessionCommand
from services.execution.task_environment import Rendezvous, task_environment
from services.execution.task_paths import TaskPaths
from services.execution.task_user import TaskSettings, TaskUser, UserImpossible, task_user
from services.runtime.executor_kind import ExecutorKind
from services.runtime.serve import serve
from services.runtime.tier_place import TierKind
from services.runtime.tier_process import TierRequest
from tests.execution.live import make_executor, running, until_text
from tests.execution.orders import key, order, shell

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root may start processes as somebody else")
OWN = pwd.getpwuid(os.geteuid()).pw_name
SCRIPT = """
id -u; echo $HOME $USER
echo saved > $TOPMAST_CHECKPOINT_DIRECTORY/weights || exit 3
echo made > here || exit 4
echo mark > $(dirname $TOPMAST_TASK_FILE)/session_opened || exit 5
ls $(dirname $TOPMAST_TASK_FILE)/../ends/* > /dev/null || exit 6
touch $(dirname $TOPMAST_TASK_FILE)/../ends/forged && exit 7
ls "$SECRETS" && exit 8
cat /proc/self/oom_score_adj
echo told; read line < wait || sleep 600
"""


@AS_ROOT
@pytest.mark.live
@pytest.mark.usefixtures("ray_address")
def test_a_task_runs_as_the_user_that_is_configured_and_has_its_folders(home: Path) -> None:
    """So does a command beside it. What else the home has is closed to it."""
    nobody = pwd.getpwnam("nobody")
    for folder in (home.parent, *home.parent.parents):
        if folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o001)
    home.mkdir(mode=0o700)
    (home / "secrets").mkdir(mode=0o700)
    script = replace(shell(SCRIPT), environment=(("SECRETS", str(home / "secrets")),))
    command = SessionCommand(("id", "-u"))

    async def scenario() -> tuple[str, bytes]:
        async with running(make_executor(home, tasks=TaskSettings(run_as="nobody"))) as watched:
            await watched.executor.execute(order(script))
            await watched.phase(key(), AttemptPhase.RUNNING)
            await until_text(home / "logs/w/1/train-0.log", "told")
            output = b""
            async with watched.executor.session(SessionTarget(key().workload), command) as link:
                async for frame in link.outputs():
                    output += frame.content if frame.kind is FrameKind.OUTPUT else b""
            await watched.executor.stop(key(), 0.0)
            await watched.phase(key(), AttemptPhase.STOPPED)
            return await watched.log(key()), output

    log, output = asyncio.run(scenario())
    assert log.splitlines()[:2] == [str(nobody.pw_uid), f"{nobody.pw_dir} nobody"], log
    assert "1000" in log.splitlines(), "the kernel takes it first all the same"
    assert output == f"{nobody.pw_uid}\n".encode()
    assert (home / "checkpoints/w/weights").stat().st_uid == nobody.pw_uid
    assert (home.stat().st_mode & 0o777, (home / "secrets").stat().st_mode & 0o777) == (0o711, 0o700)


@pytest.mark.live
@pytest.mark.usefixtures("ray_address")
def test_where_a_task_cannot_run_as_it_should_the_attempt_fails_and_says_which_setting_to_change(home: Path) -> None:
    async def scenario() -> str:
        async with running(make_executor(home, tasks=TaskSettings(run_as="no-such-user"))) as watched:
            await watched.executor.execute(order(shell("true")))
            return (await watched.phase(key(), AttemptPhase.FAILED)).reason

    assert asyncio.run(scenario()) == (
        "task 0 of job train on machine m0: could not start: tasks.run_as: there is no user no-such-user on this machine"
    )


def test_root_starts_tasks_as_root_only_where_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert task_user(TaskSettings(run_as=OWN)) is None, "nobody else"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert task_user(TaskSettings()) is None
    with pytest.raises(UserImpossible, match="name a user for them"):
        task_user(TaskSettings(root_allowed=False))
    with pytest.raises(UserImpossible, match="run_as: root"):
        task_user(TaskSettings(run_as="root", root_allowed=False))
    nobody = task_user(TaskSettings(run_as="nobody", root_allowed=False))
    assert nobody is not None
    assert nobody.variables()["USER"] == "nobody"
    monkeypatch.setattr(os, "geteuid", lambda: nobody.user_id + 1)
    assert task_user(TaskSettings(root_allowed=False)) is None
    with pytest.raises(UserImpossible, match="only root may start processes as nobody"):
        task_user(TaskSettings(run_as="nobody"))


def test_a_home_that_a_user_cannot_reach_is_named_with_the_remedy(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    stranger = TaskUser("stranger", os.geteuid() + 4242, 4242, (4242,), Path("/"))
    for folder in (tmp_path, *tmp_path.parents):
        if not stranger.may_pass(folder) and folder.owner() == OWN:
            folder.chmod(folder.stat().st_mode | 0o001)
    with pytest.raises(UserImpossible, match=f"stranger may not pass {closed}, in which TOPMAST_HOME is"):
        stranger.give(closed / "home", [])


@AS_ROOT
def test_links_out_of_a_folder_that_is_given_are_not_followed(tmp_path: Path) -> None:
    ours, given = tmp_path / "ours", tmp_path / "home" / "given"
    given.mkdir(parents=True)
    ours.write_text("ours")
    (given / "file").write_text("theirs")
    (given / "link").symlink_to(ours)
    (given / "second").hardlink_to(ours)
    for folder in (tmp_path, *tmp_path.parents):
        if folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o001)
    TaskUser("stranger", 4242, 4242, (), Path("/")).give(tmp_path / "home", [given])
    assert (given / "file").stat().st_uid == 4242
    assert ours.stat().st_uid == 0


def test_tasks_get_what_says_how_the_machine_is_set_up_and_no_secret(tmp_path: Path) -> None:
    given = dict.fromkeys(
        ("HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "NCCL_DEBUG", "NVIDIA_VISIBLE_DEVICES", "http_proxy"), "said"
    )
    withheld = dict.fromkeys(
        (
            "TOPMAST_DATABASE_URL",
            "TOPMAST_TOKEN",
            "PGPASSWORD",
            "PGHOST",
            "AWS_SECRET_ACCESS_KEY",
            "RAY_AUTH_TOKEN",
            "GITHUB_TOKEN",
            "SSH_AUTH_SOCK",
            "CUDA_VISIBLE_DEVICES",
        ),
        "secret",
    )
    made = order(replace(shell("true"), environment=(("MINE", "1"),)))

    def environment(*variables: str) -> dict[str, str]:
        return task_environment(
            made,
            made.placements[0],
            paths=TaskPaths(tmp_path),
            session_address="127.0.0.1:9",
            rendezvous=Rendezvous("127.0.0.1", 1),
            inherited=given | withheld | {"DATASETS": "/srv"},
            program_directory=Path("/usr/bin"),
            variables=variables,
        )

    found = environment()
    assert {name: text for name, text in found.items() if text in {"said", "secret"}} == given
    assert (found["MINE"], found["TOPMAST_CLUSTER"], "DATASETS" in found) == ("1", "north-a", False)
    assert environment("DATASETS", "NOT_SET")["DATASETS"] == "/srv"


def test_a_secret_of_the_service_cannot_be_configured_for_tasks() -> None:
    with pytest.raises(ValidationError, match="TOPMAST_DATABASE_URL is the service's own"):
        TasksConfiguration(variables=["TOPMAST_DATABASE_URL"])
    assert TasksConfiguration(run_as="nobody", variables=["DATASETS"]).settings() == TaskSettings(
        "nobody", True, ("DATASETS",)
    )


@AS_ROOT
def test_a_cluster_that_is_served_as_root_needs_to_be_told_who_runs_tasks(tmp_path: Path) -> None:
    request = TierRequest(
        kind=TierKind.CLUSTER,
        database_url="",
        home=tmp_path,
        configuration=Configuration(),
        listen="127.0.0.1:0",
        executor=ExecutorKind.RAY,
    )
    with pytest.raises(UserImpossible, match="tasks would run as root on this machine"):
        serve(request)
