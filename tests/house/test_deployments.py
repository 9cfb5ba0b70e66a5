"""docker-compose.yml and the manifests for KubeRay: what can be seen of them without an engine. `make compose-test` runs them."""

import asyncio
import json
import re
import shlex
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from typer.testing import CliRunner

from formats.fleet_file import read_fleet
from formats.tenants_file import read_tenants
from services.command_line.main import app
from services.configuration import Configuration
from services.security.transport_settings import TransportSettings
from tests.house.repository import ROOT, text
from tests.security.certificate_worlds import answer_on, listening, security_of

SCHEDULERS = Path("deploy/kuberay/schedulers.yaml")
COMPOSE = ROOT / "deploy" / "compose"
REGIONS = ("east", "west", "north")
ONCE = {"secrets", "certificates", "tables", "fleet", "demo"}
MEBIBYTES = {"m": 1, "g": 1024}


@cache
def _compose() -> dict[str, Any]:
    """The file with its anchors resolved; variables of the environment stay as they stand."""
    document = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    assert isinstance(document, dict)
    return document


def _services() -> dict[str, Any]:
    return dict(_compose()["services"])


def test_all_containers_together_need_no_more_than_eight_gibibytes() -> None:
    limits = {name: one["mem_limit"] for name, one in _services().items()}
    assert sum(int(limit[:-1]) * MEBIBYTES[limit[-1]] for limit in limits.values()) <= 8 * 1024


def test_no_container_may_more_than_it_needs() -> None:
    for name, service in _services().items():
        assert "privileged" not in service, name
        assert service["cap_drop"] == ["ALL"], name
        for limit in service.get("ulimits", {}).values():
            assert max(limit.values()) <= 20_000, name
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), f"{name}: nobody is asked who calls, so nobody else may"


def test_every_container_that_stays_has_a_health_check() -> None:
    services = _services()
    assert {name for name, one in services.items() if "healthcheck" not in one} == ONCE


def test_regions_have_nothing_in_common_but_gateways() -> None:
    networks: dict[str, set[str]] = {}
    for name, service in _services().items():
        if (mode := service.get("network_mode")) is not None:
            assert mode == "none" or mode.startswith("service:pod-"), name
            continue
        networks[name] = set(service["networks"])
    # It reads metrics inside of regions, and passes nothing on.
    assert networks.pop("prometheus") == {"backbone", *(f"region-{region}" for region in REGIONS)}
    assert {name for name, of_it in networks.items() if len(of_it) > 1} == {f"gateway-{one}" for one in REGIONS}
    for region in REGIONS:
        assert _compose()["networks"][f"region-{region}"] == {"internal": True}
        inside = {name for name, of_it in networks.items() if f"region-{region}" in of_it}
        assert all(region in name for name in inside)


def test_gateways_pass_on_the_ports_at_which_tiers_listen() -> None:
    listeners = dict(
        re.findall(
            r'listen (\S+)\n    bind :(\d+)\n    server it "?(?:\S+):\2"?\n', text(Path("deploy/compose/gateway.cfg"))
        )
    )
    listens = {}
    for service in _services().values():
        command = service.get("command", "")
        if match := re.search(r"--listen ((?:regional|cluster)-\S+):(\d+)", command):
            listens[match[1]] = match[2]
            assert service["environment"]["LISTEN"] == f"{match[1]}:{match[2]}", "what the health check asks"
    assert listeners == {"postgres": "5432", **listens}
    assert len(set(listeners.values())) == len(listeners)
    for region in REGIONS:
        aliases = _services()[f"gateway-{region}"]["networks"]["backbone"]["aliases"]
        own = {name for name in listens if f"-{region}-" in name}
        assert set(aliases) == own | {f"{name}.outside" for name in own}


def test_tiers_talk_by_tls_and_the_key_of_the_authority_is_with_its_maker_alone() -> None:
    tls = _settings_file("scheduler.yaml")["tls"]
    handed_over = {Path(file).name for file in tls.values()}
    script = _services()["certificates"]["entrypoint"][-2]
    copied = re.search(r"for file in (.+); do", script)
    assert copied is not None
    assert set(copied[1].split()) == handed_over == {"authority.pem", "tier.pem", "tier-key.pem"}
    for name, service in _services().items():
        mounts = [str(mount).partition(":")[0] for mount in service.get("volumes", ())]
        assert ("authority" in mounts) == (name == "certificates"), name
        environment = service.get("environment", {})
        if "TOPMAST_ADDRESS" in environment:
            assert environment["TOPMAST_TLS_CA"] == tls["certificate_authority"], name
        if str(service.get("command", "")).startswith("serve "):
            assert service["depends_on"]["certificates"] == {"condition": "service_completed_successfully"}, name


def _settings_file(name: str) -> dict[str, Any]:
    """A file of deploy/compose: its settings, without looking at the files that it names, which are in containers only."""
    document = yaml.safe_load((COMPOSE / name).read_text(encoding="utf-8"))
    assert isinstance(document, dict)
    return document


def test_the_nodes_offer_the_machines_of_the_fleet() -> None:
    fleet = read_fleet(COMPOSE / "fleet.yaml")
    offered = {
        name
        for service in _services().values()
        for resources in re.findall(r"--resources='(.*)'", service.get("command", ""))
        for name in json.loads(resources)
    }
    assert offered == {f"machine:{one.machine}" for region in fleet.regions for one in region.machines()}
    assert read_tenants(COMPOSE / "tenants.yaml")
    settings = {name: value for name, value in _settings_file("scheduler.yaml").items() if name != "tls"}
    assert Configuration.model_validate(settings).lease.tasks_stop_after_real_s == 30.0
    assert TransportSettings.model_validate(_settings_file("scheduler.yaml")["tls"]).certificate is not None


def test_images_are_built_as_no_root_and_without_a_frontend_of_a_registry() -> None:
    stages = re.split(r"^FROM ", text(Path("Dockerfile")), flags=re.MULTILINE)
    assert "# syntax" not in stages[0]
    users = {stage.splitlines()[0].rpartition(" ")[2]: "\nUSER topmast\n" in stage for stage in stages[1:]}
    assert {stage for stage, has_user in users.items() if has_user} == {"postgres", "gateway", "prometheus", "topmast"}
    assert list(users)[-1] == "topmast", "what is built where no stage is named"


@pytest.mark.parametrize("name", ["schedulers.yaml", "ray-cluster.yaml"])
def test_manifests_run_nothing_as_root_and_limit_memory(name: str) -> None:
    documents = list(yaml.safe_load_all((ROOT / "deploy" / "kuberay" / name).read_text(encoding="utf-8")))
    pods = [pod for document in documents for pod in _pods(document)]
    assert pods
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"] is True
        mounted = {mount["name"] for one in pod["containers"] for mount in one.get("volumeMounts", ())}
        assert mounted == {volume["name"] for volume in pod.get("volumes", ())}
        for container in pod["containers"]:
            assert container["resources"]["limits"]["memory"]


def test_every_tier_on_kubernetes_has_the_files_that_its_configuration_names() -> None:
    (settings,) = (yaml.safe_load(one["data"]["scheduler.yaml"]) for one in _manifests("ConfigMap"))
    named = {settings["security"]["tier_token_file"], *settings["tls"].values()}
    (made,) = re.findall(r"create secret generic topmast-tier (.+?)\n#\n", text(SCHEDULERS), flags=re.DOTALL)
    assert {f"/run/topmast/{Path(file).name}" for file in re.findall(r"--from-file=(\S+)", made)} == named
    assert TransportSettings.model_validate(settings["tls"]).certificate is not None
    del settings["tls"]
    assert Configuration.model_validate(settings).security.tier_token_file in named
    tiers = _tiers_on_kubernetes()
    assert len(tiers) == 3
    for pod, container in tiers:
        assert container["args"][-1] == "--config=/etc/topmast/scheduler.yaml"
        mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert volumes[mounts["/run/topmast"]]["secret"]["secretName"] == "topmast-tier"
        assert volumes[mounts["/etc/topmast"]]["configMap"]["name"] == "topmast-scheduler"


def test_the_certificate_on_kubernetes_is_good_for_the_names_at_which_tiers_listen(tmp_path: Path) -> None:
    """As it is made by the command that the manifest tells, and as gRPC looks at it."""
    (command,) = re.findall(r"#     topmast (certs init .+)\n", text(SCHEDULERS))
    folder = tmp_path / "certificates"
    arguments = [str(folder) if one == "certificates" else one for one in shlex.split(command)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    names = ["topmast", *(_listens_at(pod, container) for pod, container in _tiers_on_kubernetes())]
    assert names[1:] == [
        "topmast-global-0.topmast-tiers.default.svc.cluster.local",
        "topmast-regional-east-0.topmast-tiers.default.svc.cluster.local",
        "topmast-cluster-east-a.topmast-tiers.default.svc.cluster.local",
    ]

    async def answers() -> list[str]:
        async with listening(security_of(folder)) as address:
            return [await answer_on(_channel_to(address, name, folder)) for name in [*names, "elsewhere.example"]]

    told = asyncio.run(answers())
    assert told[:-1] == ["answers"] * len(names)
    assert told[-1] != "answers"


def _channel_to(address: str, name: str, folder: Path) -> grpc.aio.Channel:
    """To the address, as if it had been found under the name."""
    credentials = grpc.ssl_channel_credentials((folder / "authority.pem").read_bytes())
    return grpc.aio.secure_channel(address, credentials, options=[("grpc.ssl_target_name_override", name)])


def _listens_at(pod: dict[str, Any], container: dict[str, Any]) -> str:
    """Of the first pod, in the namespace `default`."""
    values = {one["name"]: one.get("value") for one in container["env"]}
    values["POD_NAMESPACE"] = "default"
    values["POD_NAME"] = pod["name"]
    (listen,) = (one.removeprefix("--listen=") for one in container["args"] if one.startswith("--listen="))
    host, _, port = re.sub(r"\$\((\w+)\)", lambda found: str(values[found[1]]), listen).rpartition(":")
    assert {"name": "topmast", "containerPort": int(port)} in container["ports"]
    return host


def _tiers_on_kubernetes() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each container that serves a tier, with its pod and the name of the first of its pods."""
    found = []
    for kind in ("StatefulSet", "RayCluster"):
        for document in _manifests(kind):
            name = f"{document['metadata']['name']}-0"
            if kind == "StatefulSet":
                assert document["spec"]["serviceName"] == "topmast-tiers"
            for pod in _pods(document):
                tiers = [one for one in pod["containers"] if one.get("args", [""])[0] == "serve"]
                found += [({"name": name, **pod}, container) for container in tiers]
                if tiers and kind == "RayCluster":
                    assert pod["subdomain"] == "topmast-tiers"
    return found


def _manifests(kind: str) -> list[dict[str, Any]]:
    files = ("schedulers.yaml", "ray-cluster.yaml")
    documents = [one for file in files for one in yaml.safe_load_all(text(Path("deploy/kuberay") / file))]
    return [document for document in documents if document["kind"] == kind]


def test_a_worker_of_kuberay_offers_the_node_on_which_it_is() -> None:
    cluster = yaml.safe_load((ROOT / "deploy" / "kuberay" / "ray-cluster.yaml").read_text(encoding="utf-8"))
    (group,) = cluster["spec"]["workerGroupSpecs"]
    (container,) = group["template"]["spec"]["containers"]
    environment = {"KUBERAY_GEN_RAY_START_CMD": "printf %s\\n ray start --block", "NODE_NAME": "gpu-1"}
    command = [*container["command"], *container["args"]]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()
    assert printed[:3] == ["ray", "start", "--block"]
    option, _, resources = printed[3].partition("=")
    assert (option, json.loads(resources)) == ("--resources", {"machine:gpu-1": 1_000_000_000})
    head = cluster["spec"]["headGroupSpec"]["template"]["spec"]
    assert head["shareProcessNamespace"] is True, "a cluster manager looks for its Ray among the processes that it sees"
    assert shlex.join(head["containers"][1]["args"][:2]) == "serve cluster"


def _pods(document: dict[str, Any]) -> list[dict[str, Any]]:
    """What a manifest says of its pods."""
    found = []
    for key, value in document.items():
        if key == "template":
            found.append(value["spec"])
        elif isinstance(value, dict):
            found += _pods(value)
        elif isinstance(value, list):
            found += [pod for one in value if isinstance(one, dict) for pod in _pods(one)]
    return found


def test_prometheus_reads_every_tier() -> None:
    jobs = yaml.safe_load((ROOT / "deploy" / "compose" / "prometheus.yml").read_text())["scrape_configs"]
    targets = {target for job in jobs if job["job_name"] == "topmast" for target in job["static_configs"][0]["targets"]}
    tiers = [name for name in _services() if name.startswith(("global-", "regional-", "cluster-"))]
    assert len(tiers) == 14
    assert targets == {f"{name}:9464" if name.startswith("global-") else f"{name}.inside:9464" for name in tiers}
