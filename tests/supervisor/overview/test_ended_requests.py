"""The last requests that ended keep their numbers, also under the next supervisor."""

from __future__ import annotations

from protocol.messages.metrics import EndedRequest
from protocol.messages.overview import MAX_ENDED
from supervisor.overview.ended_requests import EndedRequests


def ended(number: int) -> EndedRequest:
    return EndedRequest(f"r{number}", float(number), 0.5, "chat/completions")


def test_the_last_ones_are_kept_with_their_numbers() -> None:
    requests = EndedRequests()
    assert requests.by_number == {}
    requests.add(ended(number) for number in range(1, 4))
    assert {number: each.id for number, each in requests.by_number.items()} == {"1": "r1", "2": "r2", "3": "r3"}
    requests.add(ended(number) for number in range(4, MAX_ENDED + 3))
    numbers = list(requests.by_number)
    assert (len(numbers), numbers[0], numbers[-1]) == (MAX_ENDED, "3", str(MAX_ENDED + 2))
    assert all(f"r{number}" == each.id for number, each in requests.by_number.items())


def test_the_next_supervisor_goes_on_counting() -> None:
    requests, successor = EndedRequests(), EndedRequests()
    requests.add(ended(number) for number in range(1, MAX_ENDED + 6))
    successor.restore(requests.state())
    assert successor.by_number == requests.by_number
    successor.add([ended(MAX_ENDED + 6)])
    assert list(successor.by_number)[-1] == str(MAX_ENDED + 6)
