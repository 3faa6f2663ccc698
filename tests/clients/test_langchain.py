"""LangChain's ``ChatOpenAI`` and ``OpenAIEmbeddings`` unmodified, over the Responses API and over chats."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.images import png
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.server import LemonbusServer

if TYPE_CHECKING:
    from langchain_openai import ChatOpenAI

pytestmark = pytest.mark.filterwarnings("ignore:Core Pydantic V1 functionality:UserWarning")
"""LangChain imports ``pydantic.v1``, which warns from Python 3.14 on."""

CHAT, LOOP, TOOL, VISION, EMBED = (f"extra.tiny-{name}" for name in ("chat", "loop", "tool", "vision", "embed"))
PICTURE = base64.b64encode(png(8, 8)).decode()
ONLY_YES = {
    "title": "only_yes",
    "description": "The answer.",
    "type": "object",
    "properties": {"answer": {"type": "string", "enum": ["yes"]}},
    "required": ["answer"],
    "additionalProperties": False,
}


class LangChain:
    """Makes LangChain's objects for one server and one of LangChain's two ways to chat."""

    def __init__(self, server: LemonbusServer, *, responses: bool) -> None:
        self.responses = responses
        self._connection: dict[str, Any] = {
            "base_url": f"http://127.0.0.1:{server.port}/v1",
            "api_key": "none",
            "max_retries": 0,
            "timeout": 30,
        }

    def chat(self, model: str, **more: Any) -> ChatOpenAI:
        from langchain_openai import ChatOpenAI  # noqa: PLC0415 - takes most of a second in every test process

        return ChatOpenAI(model=model, use_responses_api=self.responses, **self._connection, **more)

    def embeddings(self, model: str) -> Any:
        from langchain_openai import OpenAIEmbeddings  # noqa: PLC0415 - see above

        return OpenAIEmbeddings(model=model, check_embedding_ctx_length=False, **self._connection)


@pytest.fixture(params=["responses", "chat"])
def langchain(request: pytest.FixtureRequest, shared_server: LemonbusServer) -> LangChain:
    return LangChain(shared_server, responses=request.param == "responses")


def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return f"sunny in {city}"


def test_invoke(langchain: LangChain) -> None:
    message = langchain.chat(CHAT, temperature=0).invoke([("system", "Be brief."), ("human", "Hello")])
    assert message.text == CHAT_TEXT
    assert message.response_metadata["model_name"] == CHAT
    assert message.usage_metadata is not None
    assert message.usage_metadata["output_tokens"] == 21, "the end token counts"
    assert message.id
    cut = langchain.chat(LOOP, max_tokens=5).invoke("Hello")
    if langchain.responses:
        assert cut.response_metadata["incomplete_details"] == {"reason": "max_output_tokens"}
    else:
        assert cut.response_metadata["finish_reason"] == "length"
    assert cut.text == " Once a very small model"


def test_stream(langchain: LangChain) -> None:
    chunks = list(langchain.chat(CHAT, stream_usage=True).stream("Hello"))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert whole.text == CHAT_TEXT
    assert len([chunk for chunk in chunks if chunk.text]) > 5, "the text came in pieces"
    assert whole.usage_metadata is not None
    assert whole.usage_metadata["output_tokens"] == 21
    assert whole.id
    assert chunks[-1].chunk_position == "last"


@pytest.mark.parametrize("streamed", [False, True])
def test_a_tools_round_trip(langchain: LangChain, streamed: bool) -> None:
    from langchain_core.messages import HumanMessage, ToolMessage  # noqa: PLC0415 - see above

    question = HumanMessage("Weather?")
    asking = langchain.chat(TOOL, streaming=streamed).bind_tools([get_weather])
    message = asking.invoke([question])
    (call,) = message.tool_calls
    assert (call["name"], call["args"]) == ("get_weather", {"city": "Paris"})
    result = ToolMessage(get_weather(**call["args"]), tool_call_id=call["id"])
    answering = langchain.chat(CHAT).bind_tools([get_weather])
    final = answering.invoke([question, message, result])
    assert final.text == CHAT_TEXT
    assert final.usage_metadata is not None
    alone = answering.invoke([question]).usage_metadata
    assert alone is not None
    assert final.usage_metadata["input_tokens"] > alone["input_tokens"], "the call and its result are in the prompt"


def test_structured_output(langchain: LangChain) -> None:
    answer = langchain.chat(CHAT, max_tokens=60).with_structured_output(ONLY_YES, method="json_schema", strict=True)
    assert answer.invoke("Hello") == {"answer": "yes"}


@pytest.mark.parametrize("streamed", [False, True])
def test_structured_output_by_a_tool_of_a_model_without_tools(langchain: LangChain, streamed: bool) -> None:
    chat = langchain.chat(CHAT, max_tokens=400, temperature=0, streaming=streamed)
    assert chat.with_structured_output(ONLY_YES, method="function_calling").invoke("Hello") == {"answer": "yes"}


def test_a_picture(langchain: LangChain) -> None:
    def tokens(*parts: Any) -> int:
        content = [{"type": "text", "text": "What is it?"}, *parts]
        message = langchain.chat(VISION).invoke([{"role": "user", "content": content}])
        assert message.text == CHAT_TEXT
        assert message.usage_metadata is not None
        return message.usage_metadata["input_tokens"]

    assert tokens({"type": "image", "base64": PICTURE, "mime_type": "image/png"}) >= tokens() + 16


def test_errors_are_those_of_the_openai_package(langchain: LangChain) -> None:
    import openai  # noqa: PLC0415 - see above

    with pytest.raises(openai.NotFoundError) as unknown:
        langchain.chat("no-such-model").invoke("Hello")
    assert unknown.value.code == "model_not_found"
    assert unknown.value.request_id
    with pytest.raises(openai.NotFoundError):
        list(langchain.chat("no-such-model").stream("Hello"))
    with pytest.raises(openai.BadRequestError):
        langchain.chat(CHAT, temperature=99).invoke("Hello")
    with pytest.raises(openai.BadRequestError) as long:
        langchain.chat(CHAT).invoke("word " * 9000)
    assert long.value.code == "context_length_exceeded"


def test_embeddings(shared_server: LemonbusServer) -> None:
    embeddings = LangChain(shared_server, responses=False).embeddings(EMBED)
    one, two = embeddings.embed_documents(["a lemon", "a lime"])
    assert len(one) == len(two) == 32
    assert one != two
    assert embeddings.embed_query("a lemon") == pytest.approx(one, abs=1e-6)
