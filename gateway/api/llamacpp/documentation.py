"""What llama.cpp's routes take and answer, for the OpenAPI document.

Engines write the answers, which have more fields.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from gateway.api.common.operations import (
    BODY,
    ENGINE,
    EVENT_STREAM,
    INFERENCE,
    MODEL,
    Documentation,
    ErrorObject,
    Operation,
    Stream,
)
from gateway.api.llamacpp import completion, embedding, props, reranking, slots, tokens

_MODEL: Final = "SmolLM2-135M-Instruct-GGUF"


class ModelQuery(msgspec.Struct):
    """The model; without it, the one used last."""

    model: str | msgspec.UnsetType = msgspec.UNSET


class SlotQuery(ModelQuery, kw_only=True):
    """What to do with the slot's prompt cache."""

    action: Literal["save", "restore", "erase"]


class SlotPath(msgspec.Struct):
    """The number of the slot."""

    slot_id: Annotated[int, Meta(ge=0, le=999_999_999)]


class SlotFile(msgspec.Struct):
    """A bare name, needed to save and to restore."""

    filename: Annotated[str, Meta(max_length=slots.MAX_FILENAME_LENGTH)] | None = None


class RerankResult(msgspec.Struct):
    """The score of one document, with `document` if `return_documents` asks for it."""

    index: int
    relevance_score: float
    document: reranking.RerankDocument | msgspec.UnsetType = msgspec.UNSET


class RerankAnswer(msgspec.Struct):
    """A score for each document, in the order of the documents."""

    model: str
    object: str
    results: list[RerankResult]
    usage: dict[str, int]


class CohereAnswer(msgspec.Struct):
    """The scores of the best documents, best first."""

    id: str
    results: list[RerankResult]
    meta: dict[str, Any]


class NativeCompletion(msgspec.Struct):
    """A text; with `response_fields`, only those fields."""

    content: str | msgspec.UnsetType = msgspec.UNSET
    stop: bool | msgspec.UnsetType = msgspec.UNSET
    model: str | msgspec.UnsetType = msgspec.UNSET


class NativeEmbedding(msgspec.Struct):
    """The vectors of one input."""

    index: int
    embedding: list[list[float] | str] | str


class TokenList(msgspec.Struct):
    """Token numbers, or objects with `with_pieces`."""

    tokens: list[int | dict[str, Any]]


class DetokenizedText(msgspec.Struct):
    """The text of tokens."""

    content: str


class RenderedPrompt(msgspec.Struct):
    """The prompt that the model's chat template makes from the messages."""

    prompt: str


class ModelProps(msgspec.Struct):
    """The properties of a loaded model, and how it generates by default."""

    model_path: str
    model_alias: str
    default_generation_settings: dict[str, Any]
    total_slots: int


class SlotState(msgspec.Struct):
    """The state of a slot."""

    id: int
    state: Literal["idle", "processing"]
    task_id: int
    cache_tokens: int
    next_token: dict[str, Any]


class SlotAnswer(msgspec.Struct):
    """The result for the slot's prompt cache."""

    id_slot: int
    filename: str | msgspec.UnsetType = msgspec.UNSET


class LlamaCppErrorObject(ErrorObject, kw_only=True):
    """llama-server's error: `code` is the status; `reason` is our code."""

    reason: str


class LlamaCppError(msgspec.Struct):
    """An error in llama-server's form."""

    error: LlamaCppErrorObject


_COMPLETION: Final = Stream(
    EVENT_STREAM, 'data: {"content":" there","stop":false}\n\ndata: {"content":"","stop":true}\n\n'
)


_RERANK: Final = {"model": "jina-reranker-v1-tiny-en-GGUF", "query": "pets", "documents": ["a cat", "a bridge"]}


def _inference(summary: str, answer: Any, example: dict[str, Any], **more: Any) -> Operation:
    """Return what a route takes whose model may be named in the query. ``more``: further fields of the operation."""
    examples = {"one": {"model": _MODEL, **example}}
    return Operation(summary, answer=answer, query=ModelQuery, failures=INFERENCE, examples=examples, **more)


DOCUMENTATION: Final = Documentation(
    "llama.cpp",
    "llama.cpp's own routes, for models of the recipe llamacpp. Without a version prefix they have llama-server's forms.",
    {
        completion.CompletionResource: {
            "POST": _inference(
                "Continues a text.",
                (NativeCompletion, list[NativeCompletion]),
                {"prompt": "Once upon a time", "n_predict": 32},
                stream=_COMPLETION,
            )
        },
        completion.InfillResource: {
            "POST": _inference(
                "Fills in between two pieces of code.",
                (NativeCompletion, list[NativeCompletion]),
                {"input_prefix": "def add(a, b):\n", "input_suffix": "\n", "n_predict": 16},
                stream=_COMPLETION,
            )
        },
        embedding.NativeEmbeddingResource: {
            "POST": _inference(
                "Makes vectors of each input.",
                list[NativeEmbedding],
                {"model": "nomic-embed-text-v1-GGUF", "content": "a cat"},
                needs=("content", "input"),
            )
        },
        reranking.RerankingResource: {"POST": _inference("Scores documents for a query.", RerankAnswer, _RERANK)},
        reranking.CohereRerankResource: {
            "POST": Operation(
                "Scores documents for a query, in Cohere's form.",
                answer=CohereAnswer,
                failures=INFERENCE,
                examples={"best": {**_RERANK, "top_n": 1}},
            )
        },
        tokens.TokenizeResource: {"POST": _inference("Splits a text into tokens.", TokenList, {"content": "Hello"})},
        tokens.DetokenizeResource: {"POST": _inference("Makes a text of tokens.", DetokenizedText, {"tokens": [1, 2]})},
        tokens.ApplyTemplateResource: {
            "POST": _inference(
                "Makes a prompt of messages.",
                RenderedPrompt,
                {"messages": [{"role": "user", "content": "Hello"}]},
            )
        },
        props.PropsResource: {
            "GET": Operation("Shows a loaded model.", answer=ModelProps, query=ModelQuery, failures=MODEL | ENGINE)
        },
        slots.SlotsResource: {
            "GET": Operation(
                "Shows the slots of a loaded model.",
                answer=list[SlotState],
                query=ModelQuery,
                failures=MODEL | ENGINE,
            )
        },
        slots.SlotResource: {
            "POST": Operation(
                "Saves, restores or erases the prompt cache of a slot.",
                body=SlotFile,
                body_required=False,
                answer=SlotAnswer,
                query=SlotQuery,
                path_parameters=SlotPath,
                failures=BODY | MODEL | ENGINE,
                examples={"save": {"filename": "story.bin"}},
            )
        },
    },
    error=LlamaCppError,
)
