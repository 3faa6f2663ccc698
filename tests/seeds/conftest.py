"""What tests of the documents share: one server in front of a shop, which every test finds as it was at its start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import OpenHouse
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
