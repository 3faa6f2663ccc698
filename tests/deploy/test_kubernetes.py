"""The chart and the manifests for Kubernetes: accepted by Helm and by the API's schemas, and in agreement with the image and the server."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from protocol import RELEASE
from protocol.config.fields import setting_fields
from tests.support.kubernetes import CHART, HELM, MANIFESTS, RENDERED, ApiSchemas, helm, render, schemas_wheel, written

yaml = pytest.importorskip("yaml", reason="no PyYAML")

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy" / "container" / "Dockerfile"
OPERATOR_SCHEMA = Path(__file__).with_name("prometheus_operator.json")
VERSIONS = ("1.25", "1.31", "1.37")
"""The oldest version that the chart names, one between, and the newest whose schemas there are."""
EVERYTHING = """\
image: {repository: registry.example.org/lemonbus, tag: "1"}
imagePullSecrets: [{name: registry}]
configuration: |
  load = ["A"]
  [models.A]
  ctx_size = 4096
env: [{name: LEMONBUS_OFFLINE, value: "true"}]
resources: {requests: {cpu: 500m}, limits: {memory: 64Gi}}
gpu: {count: 2}
runtimeClassName: nvidia
nodeSelector: {gpu: "yes"}
tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: gpu, operator: Exists}]}]}}}
supplementalGroups: [105]
storage: {className: fast, modelsClaim: models}
networkPolicy:
  from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ingress-nginx}}}]
  egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8}}], ports: [{port: 8000, protocol: TCP}]}]
monitoring: {enabled: true, labels: {release: prometheus}}
"""
needs_helm = pytest.mark.skipif(not HELM.exists() or not schemas_wheel(), reason="no Helm, or no schemas (make helm)")


def documents(text: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(text) if each]


def plain(name: str = "lemonbus.yaml") -> list[dict[str, Any]]:
    return documents((MANIFESTS / name).read_text())


def of_kind(manifests: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = [each for each in manifests if each["kind"] == kind]
    return found


@pytest.fixture
def pod() -> dict[str, Any]:
    return dict(of_kind(plain(), "StatefulSet")["spec"]["template"]["spec"])


@pytest.fixture
def container(pod: dict[str, Any]) -> dict[str, Any]:
    (container,) = pod["containers"]
    return dict(container)


@needs_helm
def test_helm_finds_nothing_wrong() -> None:
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr


@needs_helm
@pytest.mark.parametrize("name", RENDERED)
def test_the_manifests_are_what_helm_renders(name: str) -> None:
    assert plain(name) == documents(written(RENDERED[name])), "make manifests"


@needs_helm
@pytest.mark.parametrize("version", VERSIONS)
def test_the_api_accepts_what_is_rendered(version: str, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(EVERYTHING)
    wheel = schemas_wheel()
    assert wheel
    schemas = ApiSchemas(wheel, version)
    operator = jsonschema_rs.validator_for(json.loads(OPERATOR_SCHEMA.read_text()))
    kinds = set()
    for manifest in [*plain(), *documents(render(f"--values={values}", release="chat"))]:
        kinds.add(manifest["kind"])
        if manifest["apiVersion"].startswith("monitoring.coreos.com/"):
            assert [error.message for error in operator.iter_errors(manifest)] == []
        else:
            assert list(schemas.problems(manifest)) == []
    assert kinds == {"ConfigMap", "NetworkPolicy", "PrometheusRule", "Service", "ServiceMonitor", "StatefulSet"}


@needs_helm
def test_the_schemas_find_a_wrong_field() -> None:
    wheel = schemas_wheel()
    assert wheel
    workload = of_kind(plain(), "StatefulSet")
    workload["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]["httpGet"]["ports"] = 1
    assert "ports" in "".join(ApiSchemas(wheel, VERSIONS[-1]).problems(workload))


@needs_helm
@pytest.mark.parametrize("words", ["gpus=1", "gpu.number=1", "drainSeconds=long", "image.repository="])
def test_a_wrong_value_is_refused(words: str) -> None:
    done = helm("template", "lemonbus", str(CHART), f"--set={words}")
    assert done.returncode, words
    assert re.search(r"additional properties|got string, want integer|minLength", done.stderr), done.stderr


@needs_helm
def test_values_reach_the_pod(tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(EVERYTHING)
    rendered = documents(render(f"--values={values}", release="chat"))
    pod = of_kind(rendered, "StatefulSet")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == "registry.example.org/lemonbus:1"
    assert container["resources"]["limits"] == {"memory": "64Gi", "nvidia.com/gpu": "2"}
    assert {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute,utility"} in container["env"]
    assert {"name": "models", "mountPath": "/models", "readOnly": True} in container["volumeMounts"]
    assert of_kind(rendered, "ConfigMap")["data"]["lemonbus.toml"].startswith('load = ["A"]\n[models.A]\n')
    assert {each["metadata"]["name"] for each in rendered} == {"chat-lemonbus"}


def test_the_chart_is_of_this_release() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == RELEASE


def test_each_probe_asks_a_documented_path(container: dict[str, Any]) -> None:
    paths = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    assert paths == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
    readiness = (ROOT / "docs" / "readiness.md").read_text()
    assert all(f"`{path}`" in readiness for path in paths.values())


def test_a_pod_has_time_for_its_drain_and_its_grace(pod: dict[str, Any], container: dict[str, Any]) -> None:
    script = container["lifecycle"]["preStop"]["exec"]["command"][-1]
    found = re.fullmatch(r"sleep (\d+); exec lemonbus drain --wait --timeout (\d+)", script)
    assert found, script
    grace = next(each["value"] for each in container["env"] if each["name"] == "LEMONBUS_GRACE")
    assert pod["terminationGracePeriodSeconds"] >= int(found[1]) + int(found[2]) + int(grace) + 10


def test_a_pod_writes_only_where_the_image_says_and_every_volume_is_mounted(
    pod: dict[str, Any], container: dict[str, Any]
) -> None:
    claims = of_kind(plain(), "StatefulSet")["spec"]["volumeClaimTemplates"]
    volumes = {each["name"] for each in pod["volumes"]} | {each["metadata"]["name"] for each in claims}
    mounts = {each["name"]: each for each in container["volumeMounts"]}
    assert mounts.keys() == volumes
    writable = {each["mountPath"] for each in mounts.values() if not each.get("readOnly")}
    variables = dict(re.findall(r"(LEMONBUS_(?:STATE|CACHE)_DIR)=(\S+)", DOCKERFILE.read_text()))
    assert writable == {*variables.values(), "/tmp"}  # noqa: S108 - the container's


def test_a_pod_has_no_rights(pod: dict[str, Any], container: dict[str, Any]) -> None:
    """What the standard `restricted` of Kubernetes demands, a read-only root, and no token for the API."""
    security = container["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["readOnlyRootFilesystem"]
    assert not security["allowPrivilegeEscalation"]
    assert not pod["automountServiceAccountToken"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    user = re.search(r"^USER (\d+):", DOCKERFILE.read_text(), re.MULTILINE)
    assert user
    assert pod["securityContext"]["runAsUser"] == int(user[1])


def test_each_variable_is_one_of_a_setting(container: dict[str, Any]) -> None:
    known = {f"LEMONBUS_{name.upper()}" for name in setting_fields()}
    assert {each["name"] for each in container["env"]} <= known


def test_prometheus_gives_the_job_the_name_that_alerts_select() -> None:
    manifests = plain("monitoring.yaml")
    monitor, rule = of_kind(manifests, "ServiceMonitor"), of_kind(manifests, "PrometheusRule")
    labels = of_kind(plain(), "Service")["metadata"]["labels"]
    assert labels[monitor["spec"]["jobLabel"]] == "lemonbus"
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert rule["spec"] == yaml.safe_load((ROOT / "deploy" / "monitoring" / "alerts.yml").read_text())
