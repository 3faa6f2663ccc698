"""The router finds what falcon's own finds: for the real routes, and for any path that resembles one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from falcon.routing import CompiledRouter
from hypothesis import given
from hypothesis import strategies as st

from gateway.app import DIALECTS
from gateway.bus.session import SupervisorSession
from gateway.http.router import Router
from gateway.requests.spool import Spool
from protocol.config.settings import Settings

SESSION = SupervisorSession("g1", Settings(), Spool(Path("/nonexistent"), "g1", 0))
ROUTES = {path: resource for dialect in DIALECTS for path, resource in dialect.routes(SESSION).items()}
INNER = {path for path in ROUTES if ":path}/" in path}
"""Routes with a parameter of several segments before their last one, which falcon does not have."""
SEGMENTS = sorted({segment for path in ROUTES for segment in path.split("/")} - {""})


class GetAndPost:
    """A resource without methods of its own for the other methods."""

    def on_get(self) -> None:
        """Answer nothing."""

    def on_post(self) -> None:
        """Answer nothing."""


@pytest.fixture(scope="module")
def routers() -> tuple[Router, CompiledRouter]:
    ours, falcons = Router(), CompiledRouter()
    for path, resource in ROUTES.items():
        ours.add_route(path, resource)
        if path not in INNER:
            falcons.add_route(path, resource)
    return ours, falcons


def found(router: CompiledRouter, path: str) -> Any:
    """Return a route without its responders, which are bound again at each lookup."""
    match = router.find(path)
    return match and (match[0], match[2], match[3])


@given(st.data())
def test_any_path_has_the_route_that_falcon_finds(routers: tuple[Router, CompiledRouter], data: st.DataObject) -> None:
    segments = data.draw(st.lists(st.sampled_from([*SEGMENTS, "", "x", "a%2Fb"]), max_size=5))
    known = data.draw(st.sampled_from(["", *ROUTES]))
    path = "/".join([known, *segments])
    got, expected = found(routers[0], path), found(routers[1], path)
    if got is not None and got[2] in INNER:
        before, _, after = got[2].partition("{model_id:path}")
        assert path.lstrip("/") == (before + got[1]["model_id"] + after).lstrip("/")
    else:
        assert got == expected


def test_every_route_is_found_with_its_methods(routers: tuple[Router, CompiledRouter]) -> None:
    ours, falcons = routers
    for path in ROUTES.keys() - INNER:
        got, expected = ours.find(path), falcons.find(path)
        assert got is not None
        assert expected is not None
        assert got[0] is expected[0]
        assert got[3] == path
        assert got[1].keys() == expected[1].keys()
        of_the_resource = [method for method, responder in expected[1].items() if getattr(responder, "__self__", None)]
        assert all(got[1][method] == expected[1][method] for method in of_the_resource)


@pytest.mark.parametrize("path", ["/plain", "/with/{parameter}"])
def test_head_is_answered_like_get_and_other_methods_are_refused(path: str) -> None:
    router, resource = Router(), GetAndPost()
    router.add_route(path, resource)
    route = router.find(path)
    assert route is not None
    methods = route[1]
    assert methods["HEAD"] == methods["GET"] == resource.on_get
    assert methods["POST"] == resource.on_post
    assert methods["PUT"] not in (resource.on_get, resource.on_post)


@pytest.mark.parametrize(
    ("path", "name"),
    [("/v1/items/a/options", "a"), ("/v1/items/o/r:Q4/options", "o/r:Q4"), ("/v1/items/options/options", "options")],
)
def test_a_parameter_of_several_segments_may_be_before_the_last_segment(path: str, name: str) -> None:
    router, inner, outer = Router(), GetAndPost(), GetAndPost()
    router.add_route("/v1/items/{name:path}/options", inner)
    router.add_route("/v1/items/{name:path}", outer)
    assert found(router, path) == (inner, {"name": name}, "/v1/items/{name:path}/options")
    route = router.find(path)
    assert route is not None
    assert route[1]["HEAD"] == route[1]["GET"]
    for other in (path + "/more", path.removesuffix("/options"), path + "s"):
        assert found(router, other)[0] is outer
    assert found(router, "/v1/items/options")[1] == {"name": "options"}
    assert found(router, "/v2/items/a/options") is None
