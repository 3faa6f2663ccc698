"""``params``: the sampling defaults of all models, as the spec and the preview document them."""

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
    """``GET params`` shows the defaults, ``POST params`` sets some of them."""

    changes: ClassVar[frozenset[str]] = frozenset({"POST"})

    def __init__(self, session: SupervisorSession) -> None:
        """Call the supervisor through ``session``."""
        self._session = session

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer with all six, and the names of those that were set."""
        write_answer(resp, self._session.call(req.env, GetParams, Report), "Generation parameters")

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Set the values in the body; null resets a value, and values that the body does not name stay."""
        values = sampling.check_params(optional_body(req, self._session.settings))
        report = self._session.call(req.env, lambda number: SetParams(number, values), Report)
        write_answer(resp, report, "Generation parameters set successfully")


def write_answer(resp: falcon.Response, report: Report, message: str) -> None:
    """Make ``resp`` the documented answer; beyond the documents it names the values that were set."""
    body = {"status": "success", "message": message, "params": report.params, "set": report.set}
    resp.content_type = falcon.MEDIA_JSON
    resp.data = msgspec.json.encode(body | ({"ignored": report.ignored} if report.ignored else {}))
