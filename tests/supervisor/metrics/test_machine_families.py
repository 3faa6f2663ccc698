"""What ``/metrics`` shows of machines: their memory, devices and disks."""

from __future__ import annotations

import re

from protocol.messages.node_reports import NodeReport, NodeState
from protocol.models.memory import Capacity
from protocol.models.nodes import NodeFacts
from supervisor.metrics.exposition import render
from supervisor.metrics.server_metrics import ServerMetrics
from tests.supervisor.metrics.rendered_metrics import LOADED, MACHINE, busy_metrics, snapshot
from tests.support.metric_rules import broken_rules, promtool_problems

NODES = [
    NodeReport(NodeFacts("head"), NodeState.READY, memory=list(MACHINE.memory), models=["a"]),
    NodeReport(
        NodeFacts("gpu2"),
        NodeState.DRAINING,
        memory=[Capacity("host", 32, 8), Capacity("GPU-2", 24, 1, name="Card", used_percent=50.0)],
        models=["b", "c"],
        drained=True,
    ),
    NodeReport(NodeFacts("gpu3"), NodeState.LOST),
]


def test_with_several_machines_memory_devices_and_workers_have_a_node() -> None:
    loaded = LOADED._replace(name="b", node="gpu2")
    several = snapshot(models=(loaded,))._replace(machine=MACHINE, nodes=NODES)
    lines = render(busy_metrics(), several, with_mullama=False).decode().splitlines()
    assert [line for line in lines if re.match("lemonbus_(memory_[fr]|dev|node)", line)] == [
        'lemonbus_memory_free_bytes{place="host",node="head"} 48.0',
        'lemonbus_memory_free_bytes{place="0000:03:00.0",node="head"} 20.0',
        'lemonbus_memory_free_bytes{place="host",node="gpu2"} 8.0',
        'lemonbus_memory_free_bytes{place="GPU-2",node="gpu2"} 1.0',
        'lemonbus_memory_reading_age_seconds{place="host",node="head"} 0.0',
        'lemonbus_memory_reading_age_seconds{place="0000:03:00.0",node="head"} 2.5',
        'lemonbus_memory_reading_age_seconds{place="host",node="gpu2"} 0.0',
        'lemonbus_memory_reading_age_seconds{place="GPU-2",node="gpu2"} 0.0',
        'lemonbus_device_info{device="0000:03:00.0",place="0000:03:00.0",name="Card",node="head"} 1.0',
        'lemonbus_device_info{device="0000:c4:00.0",place="host",name="Graphics",node="head"} 1.0',
        'lemonbus_device_info{device="MIG-1",place="MIG-1",name="Part",node="head"} 1.0',
        'lemonbus_device_info{device="GPU-2",place="GPU-2",name="Card",node="gpu2"} 1.0',
        'lemonbus_device_utilization_ratio{device="0000:03:00.0",node="head"} 0.07',
        'lemonbus_device_utilization_ratio{device="0000:c4:00.0",node="head"} 0.5',
        'lemonbus_device_utilization_ratio{device="GPU-2",node="gpu2"} 0.5',
        'lemonbus_nodes{state="ready"} 1.0',
        'lemonbus_nodes{state="draining"} 1.0',
        'lemonbus_nodes{state="drained"} 0.0',
        'lemonbus_nodes{state="unreachable"} 0.0',
        'lemonbus_nodes{state="lost"} 1.0',
        'lemonbus_node_up{node="head"} 1.0',
        'lemonbus_node_up{node="gpu2"} 1.0',
        'lemonbus_node_up{node="gpu3"} 0.0',
        'lemonbus_node_drained{node="head"} 0.0',
        'lemonbus_node_drained{node="gpu2"} 1.0',
        'lemonbus_node_drained{node="gpu3"} 0.0',
        'lemonbus_node_models{node="head"} 1.0',
        'lemonbus_node_models{node="gpu2"} 2.0',
        'lemonbus_node_models{node="gpu3"} 0.0',
    ]
    assert 'lemonbus_engine_memory_bytes{model="b",node="gpu2"} 4500000000.0' in lines
    assert 'lemonbus_worker_memory_bytes{model="b",node="gpu2"} 100.0' in lines
    text = "\n".join(lines) + "\n"
    assert broken_rules(text) == []
    assert promtool_problems(text) == ""


def test_the_metrics_of_one_machine_name_no_node() -> None:
    text = render(busy_metrics(), snapshot(models=(LOADED,))._replace(machine=MACHINE), with_mullama=False).decode()
    assert "node" not in text


def test_the_machine_is_shown() -> None:
    lines = render(ServerMetrics(), snapshot()._replace(machine=MACHINE), with_mullama=False).decode().splitlines()
    shown = [line for line in lines if re.match("lemonbus_(memory_[tfr]|dev|disk)", line)]
    assert shown == [
        'lemonbus_memory_total_bytes{place="host"} 64.0',
        'lemonbus_memory_total_bytes{place="0000:03:00.0"} 24.0',
        'lemonbus_memory_free_bytes{place="host"} 48.0',
        'lemonbus_memory_free_bytes{place="0000:03:00.0"} 20.0',
        'lemonbus_memory_reading_age_seconds{place="host"} 0.0',
        'lemonbus_memory_reading_age_seconds{place="0000:03:00.0"} 2.5',
        'lemonbus_device_info{device="0000:03:00.0",place="0000:03:00.0",name="Card"} 1.0',
        'lemonbus_device_info{device="0000:c4:00.0",place="host",name="Graphics"} 1.0',
        'lemonbus_device_info{device="MIG-1",place="MIG-1",name="Part"} 1.0',
        'lemonbus_device_utilization_ratio{device="0000:03:00.0"} 0.07',
        'lemonbus_device_utilization_ratio{device="0000:c4:00.0"} 0.5',
        'lemonbus_disk_free_bytes{directory="cache"} 5.0',
        'lemonbus_disk_free_bytes{directory="state"} 4.0',
        'lemonbus_disk_size_bytes{directory="cache"} 9.0',
        'lemonbus_disk_size_bytes{directory="state"} 9.0',
    ]
