"""What a model demands of its node, and why a node cannot run it."""

from __future__ import annotations

import pytest

from protocol.models.nodes import NodeFacts, NodeNeeds, unsuitable

GPU2 = NodeFacts(
    name="gpu-2",
    devices=["cpu", "nvidia_gpu"],
    labels={"zone": "west"},
    resources={"npu": 1},
    backends=["llamacpp:cpu", "llamacpp:cuda"],
)


@pytest.mark.parametrize(
    ("needs", "why"),
    [
        (NodeNeeds(), ""),
        (NodeNeeds(backends=["llamacpp:cuda"]), ""),
        (
            NodeNeeds(backends=["llamacpp:vulkan", "llamacpp:rocm"]),
            "llamacpp:vulkan or llamacpp:rocm is not installed there",
        ),
        (NodeNeeds(devices=["amd_npu", "nvidia_gpu"]), ""),
        (NodeNeeds(devices=["amd_npu", "amd_gpu"]), "it has no device of kind amd_npu or amd_gpu"),
        (NodeNeeds(labels={"zone": "west"}), ""),
        (NodeNeeds(labels={"zone": "east"}), "its label zone is west, not east"),
        (NodeNeeds(labels={"rack": "1", "zone": "west"}), "its label rack is not set, not 1"),
        (NodeNeeds(resources={"npu": 1}), ""),
        (NodeNeeds(resources={"npu": 1.5}), "it has 1 of resource npu, not 1.5"),
        (NodeNeeds(resources={"tpu": 1}), "it has 0 of resource tpu, not 1"),
        (NodeNeeds(resources={"tpu": 0}), ""),
        (NodeNeeds(nodes=["cpu-*", "gpu-*"]), ""),
        (NodeNeeds(nodes=["GPU-*", "gpu"]), "its name matches none of GPU-* or gpu"),
        (
            NodeNeeds(["llamacpp:cuda"], ["nvidia_gpu"], {"zone": "west"}, {"npu": 0.5}, ["gpu-2"]),
            "",
        ),
    ],
)
def test_why_a_node_cannot_run_a_model(needs: NodeNeeds, why: str) -> None:
    assert unsuitable(needs, GPU2) == why


def test_a_node_of_which_nothing_is_known_runs_what_demands_nothing() -> None:
    unknown = NodeFacts("new")
    assert unsuitable(NodeNeeds(), unknown) == ""
    assert unsuitable(NodeNeeds(backends=["llamacpp:cpu"]), unknown)
    assert unsuitable(NodeNeeds(devices=["cpu"]), unknown)
