"""The router: a path without parameters is looked up in a dictionary; falcon's compiled router finds the others.

Nine routes in ten have no parameters. If falcon compiled these as well, a gateway's start would take 30 ms longer.
"""

from __future__ import annotations

from typing import Any

from falcon import HTTP_METHODS
from falcon.routing import CompiledRouter, set_default_responders

_Found = tuple[object, Any, dict[str, Any], str | None]
"""What falcon asks of a router: resource, method → responder, parameters, template."""


class Router(CompiledRouter):
    """Falcon's router, in which GET routes answer HEAD."""

    def __init__(self) -> None:
        """No route is known yet."""
        super().__init__()
        self._exact: dict[str, tuple[object, Any, str]] = {}
        self._by_last_segment: dict[str, list[tuple[str, str, object, Any, str]]] = {}
        """Last segment → path before the parameter, its name, and the rest, of routes such as ``/v1/models/{id:path}/options``."""
        """The routes without parameters, by path without its first slash."""
        self._method_maps: dict[int, Any] = {}
        """By identity of the resource: one resource answers the same route under several prefixes."""

    def add_route(self, uri_template: str, resource: object, **kwargs: Any) -> None:
        """Add a route. A later one with the same template replaces it."""
        before, path_parameter, after = uri_template.partition(":path}/")
        if path_parameter:
            # falcon has no parameter of several segments before the end of a path.
            prefix, _, name = before.lstrip("/").partition("{")
            methods = self.map_http_methods(resource, **kwargs)
            set_default_responders(methods)
            self._by_last_segment.setdefault(after, []).append((prefix, name, resource, methods, uri_template))
            return
        if "{" in uri_template or kwargs.get("suffix"):
            super().add_route(uri_template, resource, **kwargs)
            return
        methods = self._method_maps.get(id(resource))
        if methods is None:
            methods = self._method_maps[id(resource)] = self.map_http_methods(resource, **kwargs)
            set_default_responders(methods)
        self._exact[uri_template.lstrip("/")] = resource, methods, uri_template

    def find(self, uri: str, req: Any = None) -> _Found | None:
        """Return the route of a path. As in falcon, a route without parameters takes precedence over one with them."""
        path = uri.lstrip("/")
        exact = self._exact.get(path)
        if exact is not None:
            resource, methods, template = exact
            return resource, methods, {}, template
        rest, _, last = path.rpartition("/")
        for prefix, name, resource, methods, template in self._by_last_segment.get(last, ()):
            if rest.startswith(prefix) and len(rest) > len(prefix):
                return resource, methods, {name: rest[len(prefix) :]}, template
        return super().find(uri, req)

    def map_http_methods(self, resource: object, **kwargs: Any) -> Any:
        """Route HEAD to the GET method, unless the resource has its own method for HEAD."""
        if kwargs.get("suffix"):
            methods: Any = super().map_http_methods(resource, **kwargs)
        else:
            # falcon also looks for the methods of WebDAV, which takes longer.
            found = {method: getattr(resource, f"on_{method.lower()}", None) for method in HTTP_METHODS}
            methods = {method: responder for method, responder in found.items() if responder is not None}
        if "GET" in methods:
            methods.setdefault("HEAD", methods["GET"])
        return methods
