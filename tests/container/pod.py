"""The pod of deploy/kubernetes/lemonbus.yaml, run by podman: its user, rights, volumes, variables, probes and the way it is stopped."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

import yaml

from tests.container.podman import Podman
from tests.support.clients.http_client import RawHttpClient
from tests.support.models.tiny_models import link_models
from tests.support.ports import free_port
from tests.support.waiting import wait_for

NAME = "lemonbus-pod"
KEY = "secret"
MODEL = "extra.tiny-loop"
CONFIGURATION = f'load = ["{MODEL}"]\nthreads = 1\nctx_size = 8192\n'
READY_S = 60.0


def check(podman: Podman, folder: Path, manifest: Path) -> None:
    """Run the container of the pod until it is ready, and stop it as the kubelet does, while clients send requests."""
    port = free_port()
    (workload,) = [each for each in yaml.safe_load_all(manifest.read_text()) if each and each["kind"] == "StatefulSet"]
    pod = workload["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    podman.run("run", "--detach", "--name", NAME, *_words(workload, folder / "pod", port), "localhost/lemonbus")
    try:
        client = RawHttpClient(port, {"Authorization": f"Bearer {KEY}"})
        paths = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
        wait_for(lambda: _status(client, paths["startup"]) == 200, "it has started", READY_S)
        wait_for(lambda: _status(client, paths["readiness"]) == 200, "it is ready", READY_S)
        whole = _stopped(podman, client, container["lifecycle"]["preStop"]["exec"]["command"])
        assert _status(client, paths["readiness"]) == 503, "nothing is sent here any more"
        assert _status(client, paths["liveness"]) == 200, "it is not started again"
        podman.run("stop", "--time", str(pod["terminationGracePeriodSeconds"]), NAME)
        assert podman.run("inspect", "--format", "{{.State.ExitCode}}", NAME) == "0"
    except BaseException:
        print(*podman.logs(NAME)[-40:], sep="\n", flush=True)
        raise
    finally:
        podman.code("rm", "--force", "--time", "5", NAME)
    print(f"container: the pod was ready, and {whole} streams ended whole while it was stopped", flush=True)


def _stopped(podman: Podman, client: RawHttpClient, command: list[str]) -> int:
    """Run the `preStop`; return how many streams began meanwhile, all of which must be whole."""
    stopping = podman.start("exec", NAME, *command)
    whole = 0
    while (stream := client.start_chat(MODEL, stream=True, max_tokens=2000)).finish(60).done:
        whole += 1
    assert stream.status == 503, f"a stream was cut: {stream.status}"
    output, _ = stopping.communicate(timeout=60)
    assert stopping.returncode == 0, output
    assert whole, "the pause before the drain lets requests through"
    return whole


def _words(workload: dict[str, Any], folder: Path, port: int) -> list[str]:
    """Return words of ``podman run`` that mean what the pod says."""
    pod = workload["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    user, security = pod["securityContext"], container["securityContext"]
    assert security["readOnlyRootFilesystem"]
    assert not security["allowPrivilegeEscalation"]
    words = ["--health-interval", "disable", "--network", "host", "--read-only", "--read-only-tmpfs=false"]
    words += [f"--cap-drop={each}" for each in security["capabilities"]["drop"]]
    words += ["--security-opt", "no-new-privileges", f"--group-add={user['fsGroup']}"]
    words += [f"--user={user['runAsUser']}:{user['runAsGroup']}"]
    variables = {each["name"]: each.get("value", KEY) for each in container["env"]} | {"LEMONBUS_PORT": str(port)}
    words += [f"--env={name}={value}" for name, value in variables.items()]
    volumes = {each["name"]: each for each in pod["volumes"]}
    for mount in container["volumeMounts"]:
        place = mount["mountPath"]
        if "emptyDir" in volumes.get(mount["name"], {}):
            words += ["--tmpfs", place]
        else:
            made = _volume(folder / mount["name"], user["fsGroup"], "configMap" in volumes.get(mount["name"], {}))
            words += ["--volume", f"{made}:{place}{':ro' * bool(mount.get('readOnly'))}"]
    link_models(folder / "links", "tiny-loop")
    shutil.copytree(folder / "links", folder / "models")  # what the links mean
    for path in (folder / "models", *(folder / "models").iterdir()):
        path.chmod(0o755)
    return [*words, "--volume", f"{folder / 'models'}:/models:ro"]


def _volume(folder: Path, group: int, configuration: bool) -> Path:
    """Make a volume as the kubelet gives it to a pod: of root, and of the pod's group; files of a ConfigMap are links."""
    folder.mkdir(parents=True)
    if configuration:
        (folder / "..version").mkdir()
        (folder / "..version" / "lemonbus.toml").write_text(CONFIGURATION)
        (folder / "..data").symlink_to("..version")
        (folder / "lemonbus.toml").symlink_to("..data/lemonbus.toml")
        (folder / "..version").chmod(0o755)
        folder.chmod(0o755)
    else:
        os.chown(folder, 0, group)
        folder.chmod(0o2775)
    return folder


def _status(client: RawHttpClient, path: str) -> int:
    with contextlib.suppress(OSError):
        return client.get(path, patience=2.0).status
    return 0
