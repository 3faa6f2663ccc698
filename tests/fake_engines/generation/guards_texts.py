"""Answers as a guard model of the Llama Guard family: a verdict on the last message, with the probabilities of its tokens.

A text with ``unsafe:S1,S9`` gets this verdict, one with ``chatty`` none at all, and any other one is safe.
"""

import re
import sys
from asyncio import StreamWriter
from math import log
from typing import Any, Final

from tests.fake_engines.llama_server import Body, FakeLlamaServer, answer, usage

SURE: Final = 0.875
"""The probability of the verdict; that of the other one is a seventh of it."""


class GuardsTexts(FakeLlamaServer):
    """See the file's first lines."""

    async def generate(self, writer: StreamWriter, path: str, body: Body) -> None:
        if body.get("stream"):  # the warm-up
            await super().generate(writer, path, body)
            return
        tokens = tokens_of(str(body.get("messages") or ""))
        message = {"role": "assistant", "content": "".join(tokens)}
        scored = {"logprobs": {"content": [scores(each) for each in tokens]}} if body.get("logprobs") else {}
        whole = {"index": 0, "finish_reason": "stop", "message": message, **scored}
        answer(writer, 200, {"choices": [whole], "usage": usage(len(tokens))})


def tokens_of(conversation: str) -> list[str]:
    """Return the tokens of the verdict."""
    if "chatty" in conversation:
        return ["I", " like", " it"]
    found = re.search(r"unsafe:((?:S\d+,?)+)", conversation)
    return ["\n\n", "unsafe", "\n", found[1].strip(",")] if found else ["\n\n", "safe"]


def scores(token: str) -> dict[str, Any]:
    """Return the probabilities of a token and of the other verdict."""
    other = "safe" if token == "unsafe" else "unsafe"
    top = [{"token": each, "logprob": log(share)} for each, share in ((token, SURE), (other, SURE / 7))]
    return {**top[0], "bytes": None, "top_logprobs": top}


if __name__ == "__main__":
    GuardsTexts(sys.argv).main()
