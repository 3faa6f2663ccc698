"""The manifest for KubeRay agrees with itself and with what lemonbus is: flags, ports, folders, the version of Ray."""

from __future__ import annotations

from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest

from protocol.config.fields import setting_fields
from protocol.config.ray_address import CLUSTER_PORT
from protocol.config.settings import Settings

yaml = pytest.importorskip("yaml", reason="no PyYAML")

ROOT = Path(__file__).parents[2]
MANIFEST = ROOT / "deploy" / "kuberay" / "raycluster.yaml"


@pytest.fixture
def spec() -> dict[str, Any]:
    cluster = yaml.safe_load(MANIFEST.read_text())
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    return dict(cluster["spec"])


def pods(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [group["template"]["spec"] for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"])]


def test_ray_is_one_that_the_extra_allows(spec: dict[str, Any]) -> None:
    setup = ConfigParser(interpolation=None)
    setup.read(ROOT / "setup.cfg")
    _, _, least = setup["options.extras_require"]["ray"].strip().partition(">= ")
    assert spec["rayVersion"].startswith(least.partition(",")[0])


def test_the_server_is_started_with_flags_that_exist_and_the_ports_that_are_declared(spec: dict[str, Any]) -> None:
    ray, server = pods(spec)[0]["containers"]
    assert ray["name"] == "ray-head", "KubeRay starts Ray in the first container"
    verb, *words = server["args"]
    assert verb == "serve"
    flags = {field.flag: field for field in setting_fields().values()}
    given = {flags[flag].name: flags[flag] for flag in words[::2]}
    values = dict(zip(given, words[1::2], strict=True))
    settings = {name: given[name].parse_text(text.replace("$(POD_IP)", "10.0.0.1")) for name, text in values.items()}
    assert (settings["placement"], settings["cluster_address"]) == ("ray", f"10.0.0.1:{CLUSTER_PORT}")
    assert settings["ray_address"].endswith(":" + str(ray["ports"][0]["containerPort"]))
    ports = {port["name"]: port["containerPort"] for port in server["ports"]}
    assert ports == {"http": Settings().port, "bus": CLUSTER_PORT, "logs": CLUSTER_PORT + 1}


def test_every_volume_is_mounted_and_every_mount_has_a_volume(spec: dict[str, Any]) -> None:
    for pod in pods(spec):
        mounts = {mount["name"] for container in pod["containers"] for mount in container["volumeMounts"]}
        assert mounts == {volume["name"] for volume in pod["volumes"]}
        assert len({container["image"] for container in pod["containers"]}) == 1
