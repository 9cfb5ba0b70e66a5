"""`make compose-test`: the stack of docker-compose.yml brought up, used, hurt, mended, and taken down.

    python -m scripts.compose_test [--keep] [--no-build]

Needs a Docker engine with compose v2. Every step is printed with the seconds that it took; the first that does not hold ends
it with exit code 1 and the newest lines of every container. `--keep` leaves the stack up, to look at it; `--no-build` takes the
images as they are.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import yaml

WHO_CALLS = "TOPMAST_TOKEN_FILE=/run/topmast/admin.token"
"""For commands in containers that have the secrets."""

PROJECT = "topmast-compose-test"
REGIONS = ("east", "west", "north")
CLUSTERS = tuple(f"{region}-{letter}" for region in REGIONS for letter in "ab")
GLOBALS = ("global-1", "global-2")
LOST = "east"
_TARGETS = len(GLOBALS) + 2 * len(REGIONS) + len(CLUSTERS) + len(REGIONS)
"""Of Prometheus: global and regional schedulers, cluster managers, gateways."""

STEPS = 150
"""Seconds of work of the workload that is to survive its region: it begins before, and ends after."""

_ROOT = Path(__file__).resolve().parent.parent
_POLL_S = 2.0

Found = TypeVar("Found")


class StepFailed(Exception):
    """A step did not hold; the message says what was seen instead."""


@dataclass(slots=True)
class Stack:
    """The stack as it is: what compose and the command line in its containers say."""

    leader: str = GLOBALS[0]

    def compose(self, *arguments: str, timeout_s: float = 120.0) -> str:
        """What `docker compose ARGUMENTS` prints. Raises StepFailed with what it says when it fails."""
        return _output(["docker", "compose", "--project-name", PROJECT, *arguments], timeout_s)

    def docker(self, *arguments: str) -> str:
        return _output(["docker", *arguments], 120.0)

    def topmast(self, *arguments: str, from_container: str | None = None) -> str:
        """What a command of Topmast prints, asked of the global scheduler that leads, whichever that is now."""
        said = ""
        for one in (self.leader, *(other for other in GLOBALS if other != self.leader)):
            said_where = ["-e", f"TOPMAST_ADDRESS={one}:7460", "-e", WHO_CALLS]
            command = ["exec", "-T", *said_where, from_container or one, "topmast", *arguments]
            try:
                answer = self.compose(*command)
            except StepFailed as failure:
                said += f"\n{failure}"
                continue
            self.leader = one
            return answer
        raise StepFailed(said.strip())

    def ask(self, *arguments: str) -> Any:
        """The same as JSON."""
        return json.loads(self.topmast(*arguments, "--json"))

    def tiers(self) -> Mapping[str, str]:
        """Where each tier that lives is, by kind and name: `regional/east`."""
        tiers = self.ask("status")["tiers"]
        return {f"{one['tier']}/{one['name']}".rstrip("/"): one["address"] for one in tiers if one["alive"]}

    def newest_attempt(self, workload: str) -> Mapping[str, Any]:
        """The newest attempt of a workload; empty while there is none."""
        attempts = self.ask("get", workload)["attempts"]
        return attempts[-1] if attempts else {}

    def container(self, service: str) -> str:
        """The container of a service, also of one that does not run."""
        return self.compose("ps", "--all", "--quiet", service).strip()


def _output(command: list[str], timeout_s: float) -> str:
    try:
        done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired as expired:
        raise StepFailed(f"{' '.join(command)}: no end after {timeout_s:.0f} s") from expired
    if done.returncode != 0:
        raise StepFailed(
            f"{' '.join(command)}: exit code {done.returncode}: {(done.stderr or done.stdout).strip()[-2000:]}"
        )
    return done.stdout


def until(what: str, look: Callable[[], Found | None], patience_s: float = 180.0) -> Found:
    """Looks until there is something to be found; raises StepFailed, with the last failure, when the patience has ended."""
    deadline = time.monotonic() + patience_s
    while True:
        failure = ""
        try:
            found = look()
        except StepFailed as failed:
            found, failure = None, str(failed)
        if found:
            return found
        if time.monotonic() > deadline:
            raise StepFailed(f"not within {patience_s:.0f} s: {what}. {failure}")
        time.sleep(_POLL_S)


@contextmanager
def step(name: str) -> Iterator[list[str]]:
    """Prints the step with its time, and what is put into the list, when it has held."""
    began = time.monotonic()
    seen: list[str] = []
    yield seen
    print(f"{time.monotonic() - began:7.1f} s  {name}{': ' if seen else ''}{'; '.join(seen)}", flush=True)


# ---------------------------------------------------------------------------------------------------------------- steps


def build(stack: Stack) -> None:
    with step("the images are built"):
        stack.compose("--profile", "observability", "build", timeout_s=3600.0)


def bring_up(stack: Stack) -> None:
    with step("the stack is up"):
        stack.compose("up", "--detach", timeout_s=900.0)
    with step("every tier holds its lease, every machine is offered by a node of Ray") as seen:
        wanted = {"global", *(f"regional/{one}" for one in REGIONS), *(f"cluster/{one}" for one in CLUSTERS)}
        until("all tiers alive", lambda: wanted <= stack.tiers().keys(), 600.0)
        until("all machines up", lambda: _machines_up(stack) == len(CLUSTERS), 300.0)
        seen.append(f"{len(wanted)} tiers, {len(CLUSTERS)} machines")
    with step("every container is healthy") as seen:
        until("no container is unhealthy or on its way", lambda: _all_healthy(stack), 300.0)
        seen.append(f"{_memory_limits_gib(stack):.2f} GiB of limits")


def use(stack: Stack) -> None:
    with step("the demo runs on every region's Ray") as seen:
        printed = stack.compose("--profile", "demo", "run", "--rm", "--no-deps", "-T", "demo", timeout_s=600.0)
        nodes = {f"node-{one}" for one in CLUSTERS if f"counted on node-{one}" in printed}
        if len(nodes) != len(CLUSTERS):
            raise StepFailed(f"the demo ran on {sorted(nodes)} only:\n{printed}")
        seen.append(f"primes counted on {', '.join(sorted(nodes))}")
    with step("regions have nothing in common but gateways") as seen:
        _require_closed(stack)
        seen.append("node-east-a reaches the database and regional-west-1, not cluster-west-a, node-west-a or global-1")


def read_metrics(stack: Stack) -> None:
    with step("every tier's metrics are read where Prometheus reads them") as seen:
        seen.append(f"{_metrics(stack)} series")


def watch_metrics(stack: Stack) -> None:
    with step("Prometheus reads every tier and gateway, and takes all alerts") as seen:
        stack.compose("--profile", "observability", "up", "--detach", "--no-deps", "prometheus", timeout_s=300.0)
        until("every target is up", lambda: _targets_up(stack) == _TARGETS)
        rules = until("every alert is evaluated", partial(_evaluated, stack))
        broken = [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] != "ok"]
        if broken:
            raise StepFailed(f"alerts that cannot be evaluated: {broken}")
        seen.append(f"{_TARGETS} targets, {len(rules)} alerts")


def require_tls(stack: Stack) -> None:
    with step("plain text is refused, in a sentence") as seen:
        said = _refused(stack)
        if "TOPMAST_TLS_CA" not in said:
            raise StepFailed(f"a client without TLS is told: {said}")
        seen.append(said)
    with step("the database is talked to by TLS, and refuses plain text") as seen:
        seen.append(_database_by_tls(stack))
    with step("certificates are replaced, and nothing is started again") as seen:
        before, tiers = _shown(stack), stack.tiers().keys()
        stack.compose("run", "--rm", "--no-deps", "-T", "certificates", "rotate")
        until("every scheduler and the database show a new certificate", lambda: not before & _shown(stack))
        stack.compose("run", "--rm", "--no-deps", "-T", "certificates", "rotate", "--finish")
        until("every tier holds its lease", lambda: tiers <= stack.tiers().keys())
        again = stack.topmast(
            "run", "--no-workdir", "--tenant", "demo", "--gpus", "1", "--", "python", "-c", "print(1)"
        )
        seen.append(_completed(stack, again.strip().splitlines()[-1]))


def kill_leaders(stack: Stack) -> None:
    for lease, services in (("regional/west", ("regional-west-1", "regional-west-2")), ("global", GLOBALS)):
        with step(f"the leader of {lease} is killed, and the follower takes over") as seen:
            before = stack.tiers()[lease].partition(":")[0]
            stack.docker("kill", stack.container(before))
            after = until("a new leader", partial(_other, stack, lease, before))
            if after not in services:
                raise StepFailed(f"{lease} is led by {after}")
            seen.append(f"{before}, then {after}")
            stack.docker("start", stack.container(before))


def lose_a_region(stack: Stack) -> str:
    """Returns the workload that was there and goes on elsewhere."""
    with step(f"a workload runs in {LOST}, and saves") as seen:
        others = [region for region in REGIONS if region != LOST]
        stack.topmast("drain", *others, "--reason", "the next workload is to begin in the region that is lost")
        workload = _submit_steps(stack)
        until("it has a checkpoint", lambda: stack.newest_attempt(workload).get("checkpoint_progress", 0) >= 5)
        stack.topmast("undrain", *others)
        seen.append(f"{workload} in {stack.newest_attempt(workload)['region']}")
    with step(f"{LOST} is cut off: its gateway leaves the backbone"):
        stack.docker("network", "disconnect", f"{PROJECT}_backbone", stack.container(f"gateway-{LOST}"))
        until("its leases have ended", lambda: not any(LOST in name for name in stack.tiers()))
    with step("its tasks stop themselves") as seen:
        nodes = [f"node-{LOST}-a", f"node-{LOST}-b"]
        until("no task runs there", lambda: not any("steps.py" in _processes(stack, node) for node in nodes))
        seen.append(f"step {stack.newest_attempt(workload)['progress']:.0f} was the last that was heard of")
    with step(f"topmast region declare-lost {LOST}") as seen:
        seen.append(until("it is accepted", lambda: stack.topmast("region", "declare-lost", LOST).strip()))
    with step("what ran there goes on elsewhere, from its checkpoint") as seen:
        until("it runs in another region", lambda: _runs_outside(stack, workload, LOST))
        attempt = stack.newest_attempt(workload)
        if attempt["progress_at_start"] < 5:
            raise StepFailed(f"it began at step {attempt['progress_at_start']}, without its checkpoint")
        seen.append(f"attempt {attempt['attempt']} in {attempt['region']} from step {attempt['progress_at_start']:.0f}")
    return workload


def rejoin(stack: Stack, workload: str) -> None:
    with step(f"{LOST} is connected again, and rejoins") as seen:
        stack.docker("network", "connect", *_aliases(stack), f"{PROJECT}_backbone", stack.container(f"gateway-{LOST}"))
        wanted = {f"regional/{LOST}", f"cluster/{LOST}-a", f"cluster/{LOST}-b"}
        until("its tiers live", lambda: wanted <= stack.tiers().keys(), 300.0)
        until("its machines are up", lambda: _machines_up(stack) == len(CLUSTERS), 300.0)
        seen.append(", ".join(sorted(wanted)))
    with step(f"{LOST} takes work again") as seen:
        again = stack.topmast(
            "run", "--no-workdir", "--tenant", "demo", "--region", LOST, "--gpus", "1", "--", "python", "-c", "print(1)"
        )
        seen.append(_completed(stack, again.strip().splitlines()[-1]))
    with step("the workload that lost its region completes") as seen:
        seen.append(_completed(stack, workload))
    with step("topmast validate --complete finds nothing") as seen:
        script = (
            "topmast events -o /tmp/events.jsonl && topmast validate /tmp/events.jsonl --complete"
            " --fleet /deploy/fleet.yaml --tenants /deploy/tenants.yaml"
        )
        address = f"TOPMAST_ADDRESS={stack.leader}:7460"
        said = stack.compose("exec", "-T", "-e", address, "-e", WHO_CALLS, stack.leader, "sh", "-c", script)
        seen.append(said.strip().splitlines()[0])


def take_down(stack: Stack) -> None:
    with step("all is taken down"):
        stack.compose(
            "--profile", "demo", "--profile", "observability", "down", "--volumes", "--timeout", "20", timeout_s=600.0
        )
        for kind in ("container", "network", "volume"):
            left = stack.docker(kind, "ls", "--quiet", "--filter", f"label=com.docker.compose.project={PROJECT}")
            if left.strip():
                raise StepFailed(f"a {kind} is left: {left.split()}")


# ------------------------------------------------------------------------------------------------------------- what is seen


def _machines_up(stack: Stack) -> int:
    return sum(int(one["machines_up"]) for one in stack.ask("status")["regions"])


def _all_healthy(stack: Stack) -> bool:
    """Running and healthy, or ended well where it was to end."""
    lines = stack.compose("ps", "--all", "--format", "json").strip().splitlines()
    states = [json.loads(line) for line in lines]
    ended = [one for one in states if one["State"] == "exited" and one["ExitCode"] == 0]
    bad = [one["Service"] for one in states if one not in ended and one["Health"] != "healthy"]
    if bad:
        raise StepFailed(f"not healthy: {bad}")
    return bool(states)


def _memory_limits_gib(stack: Stack) -> float:
    services = json.loads(
        stack.compose("--profile", "demo", "--profile", "observability", "config", "--format", "json")
    )["services"]
    return sum(int(one["mem_limit"]) for one in services.values()) / 2**30


def _metrics(stack: Stack) -> int:
    """How many series all tiers have together; each has some."""
    jobs = yaml.safe_load((_ROOT / "deploy" / "compose" / "prometheus.yml").read_text(encoding="utf-8"))[
        "scrape_configs"
    ]
    script = """
import sys, urllib.request
for target in sys.argv[1:]:
    text = urllib.request.urlopen(f"http://{target}/metrics", timeout=10).read().decode()
    print(sum(line.startswith("topmast_") for line in text.splitlines()))
"""
    counts: list[int] = []
    for target in next(job for job in jobs if job["job_name"] == "topmast")["static_configs"][0]["targets"]:
        tier = target.partition(":")[0].removesuffix(".inside")
        # From a container beside it: nobody else but Prometheus is in more than one network.
        beside = tier if tier in GLOBALS else f"regional-{tier.split('-')[1]}-1"
        counts += map(int, stack.compose("exec", "-T", beside, "python", "-c", script, target).split())
    if not counts or 0 in counts:
        raise StepFailed(f"a tier has no metrics: {counts}")
    return sum(counts)


def _refused(stack: Stack) -> str:
    """What a client is told that does not talk TLS."""
    try:
        stack.compose("exec", "-T", "-e", "TOPMAST_TLS_CA=", stack.leader, "topmast", "status")
    except StepFailed as failure:
        return str(failure).strip().splitlines()[-1]
    raise StepFailed("a client without TLS is answered")


def _asked(stack: Stack, what: str) -> Any:
    """What the API of Prometheus answers."""
    script = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())"
    url = f"http://prometheus:9090/api/v1/{what}"
    return json.loads(stack.compose("exec", "-T", GLOBALS[0], "python", "-c", script, url))["data"]


def _targets_up(stack: Stack) -> int:
    return sum(target["health"] == "up" for target in _asked(stack, "targets?state=active")["activeTargets"])


def _evaluated(stack: Stack) -> list[Any]:
    """All rules, when each has been tried; empty before."""
    rules = [rule for group in _asked(stack, "rules")["groups"] for rule in group["rules"]]
    return [] if any(rule["health"] == "unknown" for rule in rules) else rules


def _database_by_tls(stack: Stack) -> str:
    """How many connections the database has, all of them by TLS, and what one without it is told."""
    script = """
import os, psycopg
url = os.environ["TOPMAST_DATABASE_URL"]
query = "SELECT count(*), count(*) FILTER (WHERE ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE client_port > 0"
with psycopg.connect(url) as connection:
    print(*connection.execute(query).fetchone())
try:
    psycopg.connect(url, sslmode="disable")
except psycopg.OperationalError as error:
    print(error)
"""
    counts, _, refusal = stack.compose("exec", "-T", GLOBALS[0], "python", "-c", script).strip().partition("\n")
    everything, by_tls = map(int, counts.split())
    if everything != by_tls or everything < len(CLUSTERS) or "no encryption" not in refusal:
        raise StepFailed(f"of {everything} connections {by_tls} are by TLS; one without is told: {refusal!r}")
    return f"{by_tls} connections; {refusal.splitlines()[-1]}"


def _shown(stack: Stack) -> set[str]:
    """The numbers of the certificates that schedulers and the database show to whoever connects now."""
    script = """
import socket, ssl, struct, sys
from cryptography import x509
tls = ssl.create_default_context(cafile="/run/topmast/tls/authority.pem")
for host in sys.argv[1:]:
    database = host == "postgres"
    with socket.create_connection((host, 5432 if database else 7460), timeout=10) as plain:
        if database:  # as PostgreSQL's protocol begins
            plain.sendall(struct.pack("!II", 8, 80877103))
            assert plain.recv(1) == b"S"
        else:
            tls.set_alpn_protocols(["h2"])
        with tls.wrap_socket(plain, server_hostname=host) as server:
            print(x509.load_der_x509_certificate(server.getpeercert(binary_form=True)).serial_number)
"""
    hosts = ("postgres", *GLOBALS)
    return set(stack.compose("exec", "-T", GLOBALS[0], "python", "-c", script, *hosts).split())


def _other(stack: Stack, lease: str, before: str) -> str | None:
    leader = stack.tiers().get(lease, before).partition(":")[0]
    return leader if leader != before else None


def _require_closed(stack: Stack) -> None:
    """From a node in one region: what is open to it, and what is not."""
    script = """
import socket
def reached(host, port):
    try:
        socket.create_connection((host, port), timeout=3).close()
    except OSError:
        return False
    return True
print(*(reached(*one) for one in [
    ("postgres", 5432), ("regional-west-1", 7521),
    ("cluster-west-a", 7523), ("node-west-a", 6379), ("global-1", 7460), ("192.0.2.1", 80)]))
"""
    said = stack.compose("exec", "-T", "node-east-a", "python", "-c", script).split()
    if said != ["True", "True", "False", "False", "False", "False"]:
        raise StepFailed(
            f"reached the database, regional-west-1, cluster-west-a, node-west-a, global-1, outside: {said}"
        )


def _submit_steps(stack: Stack) -> str:
    said = stack.topmast(
        *("run", "--tenant", "demo", "--gpus", "1", "--name", "steps", "--workdir", "/deploy/work"),
        *("--", "python", "steps.py", str(STEPS)),
    )
    return said.strip().splitlines()[-1]


def _processes(stack: Stack, service: str) -> str:
    return stack.docker("top", stack.container(service), "-eo", "pid,args")


def _runs_outside(stack: Stack, workload: str, region: str) -> bool:
    attempt = stack.newest_attempt(workload)
    return bool(attempt) and attempt["region"] != region and attempt["started_s"] is not None


def _completed(stack: Stack, workload: str) -> str:
    def look() -> str | None:
        now = stack.ask("get", workload)
        if now["state"] in ("FAILED", "CANCELLED"):
            raise SystemExit(f"{workload} is {now['state']}: {now['reason']}")
        return str(now["state"]) if now["state"] == "COMPLETED" else None

    until(f"{workload} completes", look, STEPS + 300.0)
    attempts = stack.ask("get", workload)["attempts"]
    return f"{workload} in {' and then '.join(one['region'] for one in attempts)}"


def _aliases(stack: Stack) -> list[str]:
    """What the gateway is called on the backbone, as docker-compose.yml says."""
    service = json.loads(stack.compose("config", "--format", "json"))["services"][f"gateway-{LOST}"]
    names = (f"gateway-{LOST}", *service["networks"]["backbone"]["aliases"])
    return [word for name in names for word in ("--alias", name)]


def main() -> int:
    """0 when every step has held."""
    stack = Stack()
    began = time.monotonic()
    kept = "--keep" in sys.argv[1:]
    try:
        if "--no-build" not in sys.argv[1:]:
            build(stack)
        bring_up(stack)
        use(stack)
        read_metrics(stack)
        watch_metrics(stack)
        require_tls(stack)
        kill_leaders(stack)
        rejoin(stack, lose_a_region(stack))
        if not kept:
            take_down(stack)
    except StepFailed as failure:
        print(f"FAILED after {time.monotonic() - began:.0f} s: {failure}", file=sys.stderr, flush=True)
        print(stack.compose("logs", "--no-color", "--tail", "3"), file=sys.stderr)
        if not kept:
            stack.compose(
                "--profile",
                "demo",
                "--profile",
                "observability",
                "down",
                "--volumes",
                "--timeout",
                "5",
                timeout_s=600.0,
            )
        return 1
    print(f"{time.monotonic() - began:7.1f} s  in all; every step held")
    return 0


if __name__ == "__main__":
    sys.exit(main())
