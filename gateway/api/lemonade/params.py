"""``params``: the sampling defaults, as the spec and the preview ask for them."""

from __future__ import annotations

from typing import ClassVar

import falcon
import msgspec

from gateway.api.common.request_fields import optional_body
from gateway.bus.session import SupervisorSession
from protocol.models import sampling
from protocol.models.sampling import GetParams, SetParams
from protocol.models.sampling import ParamsReport as Report


class ParamsResource:
    """Show the defaults, or set some of them."""

    changes: ClassVar[frozenset[str]] = frozenset({"POST"})

    def __init__(self, session: SupervisorSession) -> None:
        """Call the supervisor through ``session``."""
        self._session = session

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """All six, and which of them were set."""
        answer(resp, self._session.call(req.env, GetParams, Report), "Generation parameters")

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Set what the body names; null takes a value back. The rest stays as it is."""
        given = sampling.check_params(optional_body(req, self._session.settings))
        report = self._session.call(req.env, lambda number: SetParams(number, given), Report)
        answer(resp, report, "Generation parameters set successfully")


def answer(resp: falcon.Response, report: Report, message: str) -> None:
    """Make ``resp`` the documents' answer, with what they do not tell: which values were set."""
    body = {"status": "success", "message": message, "params": report.params, "set": report.set}
    resp.content_type = falcon.MEDIA_JSON
    resp.data = msgspec.json.encode(body | ({"ignored": report.ignored} if report.ignored else {}))
