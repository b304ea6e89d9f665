"""The manifests in docs/kubernetes: what kustomize renders is valid, and fits together."""

import shutil
import subprocess
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from ragkv.engine.supervisor import SupervisionTimes
from ragkv.settings import Settings

FOLDER = Path(__file__).parents[2] / "docs" / "kubernetes"
VERSION = "1.33"
OF_OPERATORS = {"ServiceMonitor", "ScaledObject"}
"""Kinds whose schemas come with operators, not with Kubernetes."""

Manifest = dict[str, Any]


@pytest.fixture(scope="module", params=["cpu", "gpu"])
def rendered(request: pytest.FixtureRequest) -> list[Manifest]:
    if (kubectl := shutil.which("kubectl")) is None:
        pytest.skip("kubectl, which renders the manifests, is not installed")
    text = subprocess.run([kubectl, "kustomize", FOLDER / request.param], check=True, capture_output=True).stdout
    return list(yaml.safe_load_all(text))


def base() -> list[Manifest]:
    names = yaml.safe_load((FOLDER / "base" / "kustomization.yaml").read_text())["resources"]
    return [manifest for name in names for manifest in yaml.safe_load_all((FOLDER / "base" / name).read_text())]


def pods(manifests: list[Manifest]) -> dict[str, Manifest]:
    """Templates of pods by the name of what makes them."""
    made = (manifest for manifest in manifests if "template" in manifest.get("spec", {}))
    return {manifest["metadata"]["name"]: manifest["spec"]["template"] for manifest in made}


def labels(pod: Manifest) -> set[tuple[str, str]]:
    return set(pod["metadata"]["labels"].items())


def selects(selector: Manifest, pod: Manifest) -> bool:
    """Whether a selector, or the plain labels of a Service, chooses a pod."""
    has = dict(labels(pod)) | {"app.kubernetes.io/part-of": "ragkv"}
    expressions = selector.get("matchExpressions", [])
    plain = selector.get("matchLabels", {} if expressions else selector)
    assert all(expression["operator"] == "In" for expression in expressions)
    return plain.items() <= has.items() and all(
        has.get(expression["key"]) in expression["values"] for expression in expressions
    )


def check(manifest: Manifest) -> None:
    if manifest["kind"] not in OF_OPERATORS:
        kubernetes_validate.validate(manifest, VERSION, strict=True)


def test_every_manifest_is_valid():
    for manifest in base():
        check(manifest)
    assert {"Deployment", "StatefulSet", "Job", "NetworkPolicy", "PodDisruptionBudget", *OF_OPERATORS} <= {
        manifest["kind"] for manifest in base()
    }


def test_what_is_rendered_is_valid_and_every_image_has_a_version(rendered: list[Manifest]):
    for manifest in rendered:
        check(manifest)
    images = {container["image"] for pod in pods(rendered).values() for container in pod["spec"]["containers"]}
    assert all(":" in image for image in images)


def test_engines_have_the_gpu_of_their_overlay(request: pytest.FixtureRequest, rendered: list[Manifest]):
    of_gpu = "gpu" in request.node.callspec.id
    (engine,), (worker,) = (pods(rendered)[name]["spec"]["containers"] for name in ("engine", "worker"))
    assert ("nvidia.com/gpu" in engine["resources"]["limits"]) == of_gpu
    assert "nvidia.com/gpu" not in worker["resources"]["limits"], "the engine computes KV"


def test_services_budgets_and_policies_select_pods_that_there_are(rendered: list[Manifest]):
    known = list(pods(rendered).values())
    chosen = [
        manifest["spec"].get("selector", manifest["spec"].get("podSelector"))
        for manifest in rendered
        if manifest["kind"] in ("Service", "PodDisruptionBudget", "NetworkPolicy")
    ]
    assert len(chosen) > 8
    for selector in chosen:
        assert any(selects(selector, pod) for pod in known), selector


def may_connect(component: str, address: str, port: int | str) -> bool:
    """Whether policies let the pods of a component open a connection to an address outside the cluster's pods."""
    policies = [manifest["spec"] for manifest in base() if manifest["kind"] == "NetworkPolicy"]
    (pod,) = (pod for name, pod in pods(base()).items() if name == component)
    mine = [policy for policy in policies if "Egress" in policy["policyTypes"] and selects(policy["podSelector"], pod)]
    assert mine, f"{component} may connect anywhere"
    rules = [rule for policy in mine for rule in policy["egress"] if port in [at["port"] for at in rule["ports"]]]
    return any(contains(peer["ipBlock"], address) for rule in rules for peer in rule["to"] if "ipBlock" in peer)


def contains(block: Manifest, address: str) -> bool:
    inside, outside = ip_network(block["cidr"]), map(ip_network, block.get("except", ()))
    return ip_address(address) in inside and not any(ip_address(address) in network for network in outside)


@pytest.mark.parametrize("component", ["api", "worker"])
def test_api_and_workers_reach_the_internet_by_https_and_private_addresses_on_the_ports_of_stores_alone(component: str):
    private = ["10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "127.0.0.1", "169.254.169.254", "fd00::1", "fe80::1", "::1", "::ffff:a00:1", "64:ff9b::a00:1", "2002:a00:1::"]  # fmt: skip
    assert not any(may_connect(component, address, 443) for address in private)
    assert all(may_connect(component, address, 443) for address in ("8.8.8.8", "2606:4700:4700::1111"))
    assert may_connect(component, "10.1.2.3", 5432) and not may_connect(component, "169.254.169.254", 5432)
    for port in (22, 80, 8001, "http"):
        assert not any(may_connect(component, address, port) for address in ("8.8.8.8", "10.1.2.3"))


def test_engines_and_the_migration_do_not_reach_the_internet():
    assert not any(may_connect(component, "8.8.8.8", 443) for component in ("engine", "migrate"))


def test_the_api_reaches_the_router():
    (rule,) = (
        rule
        for manifest in base()
        if manifest["kind"] == "NetworkPolicy" and selects(manifest["spec"]["podSelector"], pods(base())["api"])
        for rule in manifest["spec"].get("egress", ())
        if any(
            selects(peer.get("podSelector", {"matchLabels": {"no": "pod"}}), pods(base())["router"])
            for peer in rule["to"]
        )
    )
    assert rule["ports"] == [{"port": "http"}]


def test_no_pod_may_become_root_or_write_to_its_image():
    for name, pod in pods(base()).items():
        assert pod["spec"]["securityContext"]["runAsNonRoot"], name
        for container in pod["spec"]["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"]
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_settings_are_known_and_the_router_is_where_they_say():
    manifests = base()
    (settings,) = (manifest["data"] for manifest in manifests if manifest["kind"] == "ConfigMap")
    assert Settings.from_env(settings).engine_url == "http://router:8000"
    (router,) = (
        manifest["spec"]["ports"][0]["port"]
        for manifest in manifests
        if manifest["kind"] == "Service" and manifest["metadata"]["name"] == "router"
    )
    assert router == 8000


def test_an_api_that_ends_refuses_nothing_while_requests_are_still_sent_to_it_and_has_time_for_answers():
    """It refuses requests from SIGTERM on, which Kubernetes sends while its Service still has the pod's address."""
    manifests = base()
    (settings,) = (Settings.from_env(manifest["data"]) for manifest in manifests if manifest["kind"] == "ConfigMap")
    pod = pods(manifests)["api"]["spec"]
    command, seconds = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]

    assert command == "sleep" and float(seconds) >= 5
    assert float(seconds) + settings.shutdown_grace_s + 20 <= pod["terminationGracePeriodSeconds"]


def test_an_engine_has_the_time_to_start_that_the_service_gives_one():
    probe = pods(base())["engine"]["spec"]["containers"][0]["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= SupervisionTimes().start


def test_addresses_of_services_are_no_settings():
    """Kubernetes would put RAGKV_REDIS_PORT into the environment for a Service `ragkv-redis`."""
    for name, pod in pods(base()).items():
        if any("envFrom" in container for container in pod["spec"]["containers"]):
            assert pod["spec"]["enableServiceLinks"] is False, name


def test_the_api_believes_the_proxies_of_one_network_which_the_operator_is_told_to_name():
    text = (FOLDER / "base" / "settings.yaml").read_text()
    (settings,) = (manifest["data"] for manifest in base() if manifest["kind"] == "ConfigMap")

    assert ip_network(settings["FORWARDED_ALLOW_IPS"]).is_private
    assert Settings.from_env({"RAGKV_PUBLIC_URL": text.split("RAGKV_PUBLIC_URL: ")[1].split()[0]}).public_url
    guide = (FOLDER.parent / "SCALING.md").read_text()
    assert "FORWARDED_ALLOW_IPS" in guide and "RAGKV_PUBLIC_URL" in guide


def test_one_file_system_is_shared_by_those_that_read_and_write_kv():
    shared = {"claimName": "data"}
    for name in ("api", "worker", "engine"):
        volumes = pods(base())[name]["spec"]["volumes"]
        assert shared in [volume.get("persistentVolumeClaim") for volume in volumes]
