"""Everything that the supervisor counts for `/metrics`. Pure: each method only adds.

Each method is called once for what its name says, as soon as the scheduler or a handler knows it. A model's name is a
label value, so one :class:`RecentValues` handles it for all metrics: a model has its own series in all of them or in
none. The same holds for the name of an API key.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from protocol.failures import Code
from protocol.messages.events import Outcome
from protocol.messages.metrics import DURATION_BUCKETS, OTHER, RequestSeries
from supervisor.metrics.accumulators import Counter, Histogram, LabelValues, RecentValues
from supervisor.metrics.recent_figures import RecentFigures

DOCUMENTED_DURATION_BUCKETS: Final = (0.1, 0.5, 1.0, 5.0)
QUEUE_BUCKETS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0)
FIRST_TOKEN_BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
INTER_TOKEN_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
LOAD_BUCKETS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
MAX_ENDPOINTS: Final = 128
"""Values of the label ``endpoint``; the route table has fewer."""
MAX_DIALECTS: Final = 16
MAX_KEYS: Final = 256
"""API keys with series of their own: those that were used last."""
INFERENCE_ENDPOINTS: Final = {
    "chat/completions": "chat",
    "completions": "generate",
    "completion": "generate",
    "embeddings": "embeddings",
    "embedding": "embeddings",
    "rerank": "rerank",
    "audio/transcriptions": "transcriptions",
    "audio/translations": "translations",
    "images/generations": "images",
    "images/edits": "images",
    "infill": "infill",
}
"""What an engine was asked for → its name in ``requests_total``, for every dialect. Reads of state have none."""
_CODES: Final = frozenset(code.value for code in Code)


class ServerMetrics:
    """The counters and histograms of one server, from its start."""

    def __init__(self, most_models: int = 100) -> None:
        """Start at zero. ``most_models`` have series of their own: the loaded ones, and those that were used last."""
        self._models = RecentValues(most_models, partial(self._drop, "model"))
        self._endpoints = LabelValues(MAX_ENDPOINTS)
        self._dialects = LabelValues(MAX_DIALECTS)
        self._keys = RecentValues(MAX_KEYS, partial(self._drop, "key"))
        self.http_requests = Counter("endpoint", "dialect", "code")
        self.http_durations = Histogram(DURATION_BUCKETS, "endpoint")
        self.errors = Counter("endpoint", "dialect", "code")
        self.inference_requests = Counter("endpoint", initial=[("chat",), ("generate",), ("embeddings",)])
        self.inference_durations = Histogram(DOCUMENTED_DURATION_BUCKETS)
        self.queue_wait = Histogram(QUEUE_BUCKETS, "model")
        self.first_token = Histogram(FIRST_TOKEN_BUCKETS, "model")
        self.inter_token = Histogram(INTER_TOKEN_BUCKETS, "model")
        self.prompt_tokens = Counter("model")
        self.cached_tokens = Counter("model")
        self.generated_tokens = Counter("model")
        self._timed_tokens = Counter("model")
        self._decode_seconds = Counter("model")
        self.loads = Counter("model", "result")
        self.load_seconds = Histogram(LOAD_BUCKETS, "model")
        self.evictions = Counter("reason")
        self.idle_unloads = Counter(initial=[()])
        self.restarts = Counter("model", "reason")
        self.crashes = Counter("model")
        self.retries = Counter("reason")
        self.refusals = Counter("code")
        self.key_requests = Counter("key")
        self.key_tokens = Counter("key", "direction")
        self.recent = RecentFigures()

    def state(self) -> dict[str, Any]:
        """Return everything, for the next supervisor."""
        return {name: each.state() for name, each in vars(self).items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what an earlier supervisor had counted, perhaps one of another release. Nothing was counted yet."""
        for name, each in vars(self).items():
            each.restore(state.get(name, ()))
        shown = {
            model
            for each in vars(self).values()
            if isinstance(each, Counter | Histogram)
            for model in each.seen("model")
        }
        for model in shown.difference(self._models.state(), [OTHER]):  # fewer models have series of their own now
            self._drop("model", model)

    def keep_series_while(self, is_loaded: Callable[[str], bool]) -> None:
        """Tell which models are loaded. The scheduler knows, but is given these metrics when it is made."""
        self._models.in_use = is_loaded

    # Requests

    def requests_observed(self, series: Iterable[RequestSeries]) -> None:
        """Add what a gateway has counted since its last report."""
        for each in series:
            requests = sum(each.buckets)
            endpoint, dialect = self._endpoints.bounded(each.endpoint), self._dialects.bounded(each.dialect)
            status = str(each.status) if 100 <= each.status <= 599 else OTHER
            self.http_requests.add((endpoint, dialect, status), requests)
            self.http_durations.merge((endpoint,), each.buckets, each.seconds)
            if each.code:
                self.errors.add((endpoint, dialect, known_code(each.code)), requests)
            inference = INFERENCE_ENDPOINTS.get(each.inference)
            if inference is not None:
                self.inference_requests.add((inference,), requests)
                self.inference_durations.merge((), _documented_buckets(each.buckets), each.seconds)

    def request_submitted(self, key: str) -> None:
        """Note an inference request that came with an API key, by the key's name."""
        self.key_requests.add((self._keys.bounded(key),))

    def shown_keys(self, keys: Iterable[str]) -> set[str]:
        """Return which API keys, by their names, are shown: those with series of their own, and others within the limit."""
        return self._keys.shown(keys)

    def attempt_granted(self, model: str, waited: float) -> None:
        """Note that a request got its slot after ``waited`` seconds."""
        self.queue_wait.observe((self._models.bounded(model),), waited)
        self.recent.granted(waited)

    def attempt_retried(self, code: str) -> None:
        """Note that a gateway tries a request again. ``code``: the failure of the attempt before."""
        self.retries.add((known_code(code),))

    def attempt_refused(self, code: str) -> None:
        """Note that a request or a call ended before it reached a worker."""
        self.refusals.add((known_code(code),))

    def generation_ended(self, model: str, outcome: Outcome) -> None:
        """Add a finished generation."""
        if not outcome.prompt_tokens and not outcome.output_tokens:
            return
        labels = (self._models.bounded(model),)
        self.prompt_tokens.add(labels, outcome.prompt_tokens)
        self.cached_tokens.add(labels, outcome.cached_tokens)
        if not outcome.output_tokens:
            return
        self.generated_tokens.add(labels, outcome.output_tokens)
        self._timed_tokens.add(labels, outcome.output_tokens)
        self._decode_seconds.add(labels, outcome.decode_s if outcome.output_tokens > 1 else outcome.total_s)
        self.recent.answered(labels[0], outcome)
        if outcome.first_token_s:  # otherwise it is unknown: the answer came whole
            self.first_token.observe(labels, outcome.first_token_s)
        if outcome.output_tokens > 1:
            # The first value is the time since the prompt was processed: it follows no token.
            self.inter_token.observe_all(labels, array("f", outcome.token_times)[1:])

    def generation_stopped(self, model: str, tokens: int, prompt_tokens: int = 0) -> None:
        """Add the output and the prompt of a generation that did not reach its end."""
        if tokens:
            self.generated_tokens.add((self._models.bounded(model),), tokens)
        if prompt_tokens:
            self.prompt_tokens.add((self._models.bounded(model),), prompt_tokens)

    def tokens_used(self, key: str, prompt_tokens: int, output_tokens: int) -> None:
        """Add the tokens of a request that came with an API key, by the key's name."""
        for direction, tokens in (("in", prompt_tokens), ("out", output_tokens)):
            if tokens:
                self.key_tokens.add((self._keys.bounded(key), direction), tokens)

    # Models

    def model_loaded(self, model: str, seconds: float) -> None:
        """Note that an engine became ready."""
        label = self._models.bounded(model)
        self.loads.add((label, "ok"))
        self.load_seconds.observe((label,), seconds)

    def load_failed(self, model: str) -> None:
        """Note that a check or the start of an engine failed."""
        self.loads.add((self._models.bounded(model), "failed"))

    def model_evicted(self, reason: str) -> None:
        """Note that a model was unloaded for another one."""
        self.evictions.add((reason,))

    def model_expired(self) -> None:
        """Note that a model was unloaded because it was idle."""
        self.idle_unloads.add(())

    def engine_restarted(self, model: str, reason: str) -> None:
        """Note that an engine is started again without a request for it.

        ``reason``: a failure's code, or ``abandoned``.
        """
        self.restarts.add((self._models.bounded(model), reason))

    def engine_crashed(self, model: str) -> None:
        """Note that an engine died of a request."""
        self.crashes.add((self._models.bounded(model),))

    def has_series(self, model: str) -> bool:
        """Return whether a model that is used or wanted now has series of its own."""
        return self._models.bounded(model) != OTHER

    def shown_models(self, models: Iterable[str]) -> set[str]:
        """Return the same of models that need not be in use."""
        return self._models.shown(models)

    def _drop(self, label: str, value: str) -> None:
        if label == "model":
            self.recent.forget(value)
        for each in vars(self).values():
            if isinstance(each, Counter | Histogram):
                each.drop(label, value)

    def average_speeds(self) -> dict[str, float]:
        """Return each model's tokens per second of generation, over all its finished generations."""
        seconds = self._decode_seconds.values
        return {
            labels[0]: tokens / seconds[labels]
            for labels, tokens in self._timed_tokens.values.items()
            if seconds.get(labels)
        }


def known_code(code: str) -> str:
    """Return a failure's code, or ``other``."""
    return code if code in _CODES else OTHER


def _documented_buckets(counts: list[int]) -> list[int]:
    """Convert counts in a gateway's buckets to counts in the documented buckets, whose bounds are a subset."""
    if len(counts) != len(DURATION_BUCKETS) + 1:
        return []
    documented, start = [], 0
    for bound in DOCUMENTED_DURATION_BUCKETS:
        end = DURATION_BUCKETS.index(bound) + 1
        documented.append(sum(counts[start:end]))
        start = end
    return [*documented, sum(counts[start:])]
