"""What tests of the documents share: servers, what those ask on loopback, and that a test finds them as they were at their start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import OpenHouse
from tests.house.hub import Hub
from tests.house.releases import Releases
from tests.house.server import Server
from tests.seeds.installing import released
from tests.seeds.npu import npu_house
from tests.seeds.shop import Shop, shop


@pytest.fixture(scope="module")
def opened_shop(tmp_path_factory: pytest.TempPathFactory, open_shared: OpenHouse) -> Iterator[Shop]:
    """A server and its hub, for all tests of a module."""
    folder = tmp_path_factory.mktemp("shop")
    with shop(folder) as hub:
        yield Shop(open_shared("tiny-chat", offline=False), hub, folder)


@pytest.fixture
def tidy_shop(opened_shop: Shop) -> Shop:
    """The same, with nothing registered, downloaded or loaded, and a hub without faults."""
    opened_shop.tidy()
    return opened_shop


@pytest.fixture
def server(tidy_shop: Shop) -> Server:
    return tidy_shop.server


@pytest.fixture
def hub(tidy_shop: Shop) -> Hub:
    return tidy_shop.hub


@pytest.fixture
def folder(tidy_shop: Shop) -> Path:
    return tidy_shop.folder


@pytest.fixture(scope="module")
def opened_npu(open_shared: OpenHouse, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    """A server with flm, and the folder of that, for all tests of a module."""
    with npu_house(open_shared, tmp_path_factory.mktemp("flm")) as house:
        yield house


@pytest.fixture(scope="module")
def open_releases() -> Iterator[Releases]:
    with released() as releases:
        yield releases
