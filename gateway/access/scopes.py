"""The scope that a key needs for a route. Pure.

A resource of a dialect declares it by method: ``scopes = {"POST": Scope.INFERENCE}``; ``changes = frozenset({"POST"})``
means :attr:`Scope.ADMIN`. With ``monitors = True``, :attr:`Scope.METRICS` also suffices for a GET, for monitors. A GET
without a declaration is a read and needs :attr:`Scope.INFERENCE`. Everything else must be declared:
``tests/gateway/access/test_scopes.py`` checks the routes of all dialects, and a method without a declaration needs
:attr:`Scope.ADMIN`.
"""

from __future__ import annotations

from protocol.config.api_keys import Scope

__all__ = ["Scope", "declared_scope", "handled_as", "needed_scope", "suffices_for_monitor"]


def handled_as(method: str) -> str:
    """Return the method that answers: for HEAD, it is GET."""
    return "GET" if method == "HEAD" else method


def declared_scope(resource: object, method: str) -> Scope | None:
    """Return the scope that a resource declares for an HTTP method; None if it declares none."""
    method = handled_as(method)
    scopes: dict[str, Scope] = getattr(resource, "scopes", {})
    if method in scopes:
        return scopes[method]
    if method in getattr(resource, "changes", ()):
        return Scope.ADMIN
    return Scope.INFERENCE if method == "GET" else None


def needed_scope(resource: object, method: str) -> Scope:
    """Return the scope that a request needs."""
    return declared_scope(resource, method) or Scope.ADMIN


def suffices_for_monitor(resource: object, method: str) -> bool:
    """Return whether a key with only :attr:`Scope.METRICS` may send the request."""
    return handled_as(method) == "GET" and bool(getattr(resource, "monitors", False))
