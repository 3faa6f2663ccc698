"""Generates the cases, sends them, and judges the responses by the document."""

from __future__ import annotations

import random
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import hypothesis
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given
from schemathesis import APIOperation, Case, GenerationMode
from schemathesis.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.core.failures import FailureGroup

from gateway.openapi.document import ALIAS_OF
from tests.fuzz.known_names import with_known_names

PATIENCE_S: Final = 30.0
"""A response that takes longer is a violation."""
_CHECKS: Final[list[Any]] = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
_ENDLESS: Final = frozenset({"/logs/stream", "/internal/overview/stream", "/realtime", "/v1/realtime"})
"""Routes whose answer is not an HTTP response, or has no end."""
_NOT_ASKED: Final = frozenset({"/internal/upgrade", "/internal/drain", "/internal/keys", "/internal/keys/{name}"})
"""Routes whose calls restart processes of the server, or may lock out the fuzzer or what it asks for."""


class Fuzzer:
    """Sends cases to one server and keeps what was wrong."""

    def __init__(self, url: str, seed: int) -> None:
        """Read the document of the server at ``url``."""
        self.document = requests.get(f"{url}/openapi.json", timeout=PATIENCE_S).json()
        self.statuses: Counter[tuple[str, int]] = Counter()
        """How often a kind of cases had a status."""
        self.violations: dict[tuple[str, str], str] = {}
        """Operation and kind of the violation → the first case."""
        self.refusals: Counter[tuple[str, str]] = Counter()
        """Operation and message of cases that follow the document but were still refused."""
        self._seed = seed
        self._chance = random.Random(seed)
        self._session = requests.Session()
        # Most paths are aliases: they share the resource of another one.
        paths = {path: item for path, item in self.document["paths"].items() if ALIAS_OF not in item}
        self._schema = schemathesis.openapi.from_dict({**self.document, "paths": paths})
        self._schema.config.update(base_url=url)

    def operations(self) -> Iterator[APIOperation]:
        """Yield every operation that can be fuzzed."""
        for result in self._schema.get_all_operations():
            operation = result.ok()
            if operation.path not in _ENDLESS:
                yield operation

    def run(self, cases: int, report: Callable[[str], object] = bool, *, only: int = 0) -> None:
        """Send this many cases, an equal share to each operation; half of them follow the document. ``only``: use this

        many cheap operations, because each takes a while before its first case.
        """
        operations = list(self.operations())
        if only:
            cheap = [each for each in operations if each.body and each.path not in _NOT_ASKED]
            operations = self._chance.sample(cheap, only)
        while self.sent < cases:
            share = max(2, -(-(cases - self.sent) // len(operations)))
            for operation in operations:
                report(operation.label)
                self._fuzz(operation, GenerationMode.POSITIVE, share - share // 2)
                if operation.body or operation.query or operation.path_parameters:
                    self._fuzz(operation, GenerationMode.NEGATIVE, share // 2)
            self._seed += 1
            # An operation without a body has few cases; in the next round, the others get its share.
            operations = [each for each in operations if each.body or each.query or each.path_parameters]

    @property
    def sent(self) -> int:
        """The number of cases that were sent."""
        return sum(self.statuses.values())

    def _fuzz(self, operation: APIOperation, mode: GenerationMode, count: int) -> None:
        if count < 1:
            return

        @hypothesis.seed(self._seed)
        @hypothesis.settings(
            max_examples=count,
            phases=[Phase.generate],
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(operation.as_strategy(generation_mode=mode))
        def send(case: Case) -> None:
            self._send(operation, mode, case)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                send()
            except hypothesis.errors.Unsatisfiable:
                return  # the document allows everything, so no case can break it

    def _send(self, operation: APIOperation, mode: GenerationMode, case: Case) -> None:
        with_known_names(case, self._chance, valid=mode is GenerationMode.POSITIVE)
        try:
            response = case.call(session=self._session, timeout=PATIENCE_S)
        except requests.RequestException as problem:
            self.statuses[mode.value, 0] += 1
            self._violate(operation, f"no response: {type(problem).__name__} {problem}", case)
            return
        self.statuses[mode.value, response.status_code] += 1
        if mode is GenerationMode.POSITIVE and response.status_code == 400:
            self.refusals[operation.label, _message(response)] += 1
        if response.status_code == 500:
            self._violate(operation, f"500 {response.text[:300]}", case)
        try:
            case.validate_response(response, checks=_CHECKS)
        except FailureGroup as found:
            for failure in found.exceptions:
                text = f"{type(failure).__name__}: {getattr(failure, 'message', '')[:300]}"
                self._violate(operation, f"{response.status_code} {text}", case, response.text[:400])

    def _violate(self, operation: APIOperation, what: str, case: Case, more: str = "") -> None:
        self.violations.setdefault((operation.label, what[:60]), f"{what}\n  {case.as_curl_command()[:1500]}\n  {more}")


def _message(response: Any) -> str:
    found = re.search(r'"message":"([^"]*)', response.text)
    return found[1][:90] if found else ""
