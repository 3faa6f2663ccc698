"""Clusters of two nodes, servers on them, and what they say of their nodes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.cluster.cluster_server import ClusterServer
from tests.support.network.nodes import Network
from tests.support.network.ray_cluster import RayCluster


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[RayCluster]:
    """A cluster that tests leave as they found it."""
    with Network(2) as network, RayCluster(network, npu=1) as cluster:
        yield cluster


@pytest.fixture
def cluster() -> Iterator[RayCluster]:
    """A cluster of its own, for a test that ends a part of it."""
    with Network(2) as network, RayCluster(network, npu=1) as cluster:
        yield cluster


@pytest.fixture
def servers() -> Iterator[ExitStack]:
    """Servers that are entered here end with the test in an orderly way, and have then left nothing on any node."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def server(shared_cluster: RayCluster, servers: ExitStack) -> ClusterServer:
    """A server on the shared cluster, with a node besides the head."""
    server = servers.enter_context(ClusterServer(shared_cluster))
    server.wait_joined()
    return server
