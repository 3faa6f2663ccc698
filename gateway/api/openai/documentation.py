"""What OpenAI's routes take and answer, for the OpenAPI document. Engines write most answers, which may have more fields."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from gateway.api.common.inference import transcription_form
from gateway.api.common.operations import (
    EVENT_STREAM,
    INFERENCE,
    UNSUPPORTED,
    Documentation,
    Form,
    LateError,
    Operation,
    Stream,
)
from gateway.api.openai import audio, completions, embeddings, images, moderations, speech
from gateway.api.openai.preview_completions import PreviewCompletionsResource, PreviewTextRequest
from gateway.api.openai.realtime.resource import RealtimeResource
from protocol.failures import Code, Failure
from protocol.wire.speech import DEFAULT_FORMAT, MEDIA_TYPES

Logprobs = dict[str, Any]


class RealtimeQuery(msgspec.Struct):
    """The settings that a session begins with, and the API key of a client that can send no header."""

    model: str = ""
    intent: str = ""
    api_key: str = ""


class TokenUsage(msgspec.Struct):
    """Tokens of a request and its answer."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int = 0


class AnsweredMessage(msgspec.Struct):
    """What the model wrote."""

    role: str
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[dict[str, Any]] | None = None


class ChatChoice(msgspec.Struct):
    """One of `n` answers."""

    index: int
    message: AnsweredMessage
    finish_reason: str | None
    logprobs: Logprobs | None = None


class ChatCompletion(msgspec.Struct):
    """The next message of a conversation."""

    id: str
    object: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: TokenUsage


class TextChoice(msgspec.Struct):
    """One of `n` texts for each prompt."""

    index: int
    text: str
    finish_reason: str | None
    logprobs: Logprobs | None = None


class TextCompletion(msgspec.Struct):
    """The continuation of the prompt; `text` is the text of the first choice."""

    id: str
    object: str
    created: int
    model: str
    choices: list[TextChoice]
    text: str
    usage: TokenUsage


class Embedding(msgspec.Struct):
    """The vector of one input: numbers, or base64 of little-endian floats."""

    index: int
    embedding: list[float] | str
    object: str


class EmbeddingList(msgspec.Struct):
    """A vector for each input, in their order."""

    object: str
    data: list[Embedding]
    model: str
    usage: TokenUsage


class DrawnImage(msgspec.Struct):
    """An image in base64."""

    b64_json: str
    seed: int


class ImageList(msgspec.Struct):
    """The images."""

    created: int
    data: list[DrawnImage]


class TranscriptionText(msgspec.Struct):
    """The words of a recording; `verbose_json` also has the times."""

    text: str


_MODEL: Final = "SmolLM2-135M-Instruct-GGUF"
_MESSAGES: Final = [{"role": "user", "content": "Why is the sky blue?"}]
_CHAT: Final = {"model": _MODEL, "messages": _MESSAGES, "max_tokens": 64}
_TEXT: Final = {"model": _MODEL, "prompt": "Once upon a time", "max_tokens": 32}
_EMBED: Final = {"model": "nomic-embed-text-v1-GGUF", "input": ["a cat", "a dog"]}
_JUDGE: Final = {"model": "Llama-Guard-3-8B", "input": "How do I grow tomatoes?"}
_DRAW: Final = {"model": "SD-Turbo", "prompt": "a lighthouse in a storm", "size": "512x512"}
_SPEECH: Final = {"model": "Kokoro-82M", "input": "The sky is blue.", "voice": "af_heart"}
_SOUNDS: Final = tuple(MEDIA_TYPES.values())
_STREAM_OF_CHUNKS: Final = Stream(
    EVENT_STREAM,
    'data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Be"}}]}\n\ndata: [DONE]\n\n',
)


class SpeechQuery(msgspec.Struct):
    """The form of the sound."""

    output_format: str = DEFAULT_FORMAT
    """Begins with `mp3`, `opus`, `aac`, `flac`, `wav` or `pcm`; what follows has no effect."""


class TranscriptionFields(msgspec.Struct, kw_only=True):
    """The fields of the form besides the recording."""

    model: str | msgspec.UnsetType = msgspec.UNSET
    language: str | msgspec.UnsetType = msgspec.UNSET
    """A code or a name of a language that whisper models know."""
    prompt: Annotated[str, Meta(max_length=transcription_form.MAX_PROMPT_LENGTH)] | msgspec.UnsetType = msgspec.UNSET
    response_format: Literal["json", "text", "srt", "vtt", "verbose_json"] | msgspec.UnsetType = msgspec.UNSET
    temperature: Annotated[float, Meta(ge=0, le=1)] | msgspec.UnsetType = msgspec.UNSET
    stream: bool | msgspec.UnsetType = msgspec.UNSET
    timestamp_granularities: list[Literal["word", "segment"]] | msgspec.UnsetType = msgspec.UNSET


def _transcription(summary: str) -> Operation:
    return Operation(
        summary,
        answer=(TranscriptionText, LateError),
        form=Form(TranscriptionFields, files=("file",)),
        texts=("text/plain",),
        stream=Stream(
            EVENT_STREAM,
            'data: {"type":"transcript.text.delta","delta":"Hello"}\n\ndata: {"type":"transcript.text.done","text":"Hello"}\n\n',
        ),
        failures=INFERENCE,
        examples={"a recording": {"model": "Whisper-Tiny", "file": "(the bytes of a WAV file)"}},
    )


_COMPLETION: Final = Operation(
    "Continues a text.",
    answer=TextCompletion,
    stream=Stream(EVENT_STREAM, 'data: {"choices":[{"index":0,"text":" there"}]}\n\ndata: [DONE]\n\n'),
    failures=INFERENCE,
    examples={"whole": _TEXT, "stream": {**_TEXT, "stream": True}},
)

DOCUMENTATION: Final = Documentation(
    "OpenAI",
    "Chats, texts, embeddings, recordings, pictures and the list of models, as OpenAI's clients know them.",
    {
        completions.ChatCompletionsResource: {
            "POST": Operation(
                "Generates the next message of a conversation.",
                answer=ChatCompletion,
                stream=_STREAM_OF_CHUNKS,
                failures=INFERENCE,
                examples={
                    "whole": _CHAT,
                    "stream": {**_CHAT, "stream": True, "stream_options": {"include_usage": True}},
                    "JSON": {**_CHAT, "response_format": {"type": "json_object"}},
                },
            )
        },
        completions.CompletionsResource: {"POST": _COMPLETION},
        PreviewCompletionsResource: {"POST": _COMPLETION._replace(body=PreviewTextRequest)},
        embeddings.EmbeddingsResource: {
            "POST": Operation(
                "Makes a vector of each text.",
                answer=EmbeddingList,
                failures=INFERENCE,
                examples={"texts": _EMBED, "base64": {**_EMBED, "encoding_format": "base64"}},
            )
        },
        moderations.ModerationsResource: {
            "POST": Operation(
                "Judges whether texts are harmful, by the guard model that the setting `moderation_model` names.",
                answer=moderations.ModerationAnswer,
                failures=INFERENCE,
                examples={"a text": _JUDGE, "texts": {**_JUDGE, "input": ["a cat", "a dog"]}},
            )
        },
        images.ImageGenerationsResource: {
            "POST": Operation(
                "Draws pictures.",
                answer=(ImageList, LateError),
                failures=INFERENCE,
                examples={"a picture": _DRAW},
            )
        },
        images.ImageEditsResource: {
            "POST": Operation(
                "Draws pictures over other pictures.",
                form=Form(images.ImageEditRequest, files=("image",), optional_files=("mask",)),
                answer=(ImageList, LateError),
                failures=INFERENCE,
                examples={"a picture": {**_DRAW, "image": "(the bytes of a PNG or JPEG)"}},
            )
        },
        audio.TranscriptionsResource: {"POST": _transcription("Writes down a recording.")},
        audio.TranslationsResource: {"POST": _transcription("Writes down a recording in English.")},
        speech.TtsResource: {
            "POST": Operation(
                "Reads a text aloud: LocalAI's name of `audio/speech`.",
                binaries=_SOUNDS,
                failures=INFERENCE,
                examples={"WAV": {"model": "Kokoro-82M", "input": "The sky is blue."}},
            )
        },
        speech.TextToSpeechResource: {
            "POST": Operation(
                "Reads a text aloud with the voice in the path: the name that ElevenLabs and LocalAI have for `audio/speech`.",
                query=SpeechQuery,
                binaries=_SOUNDS,
                failures=INFERENCE,
                examples={
                    "MP3": {"model_id": "Kokoro-82M", "text": "The sky is blue."},
                    "faster": {
                        "model_id": "Kokoro-82M",
                        "text": "The sky is blue.",
                        "voice_settings": {"speed": 1.2},
                    },
                },
            )
        },
        RealtimeResource: {
            "GET": Operation(
                "Transcribes live audio over a WebSocket: events of OpenAI's realtime API, one JSON object per message.",
                query=RealtimeQuery,
                failures=INFERENCE | {Failure(Code.INVALID_REQUEST, "", status=426), Failure(Code.RATE_LIMITED, "")},
                status=101,
            ),
            "POST": Operation("Would begin a call over WebRTC: 501 says what to use instead.", failures=UNSUPPORTED),
        },
        speech.SpeechResource: {
            "POST": Operation(
                "Reads a text aloud. The sound is sent from its first sentence on; a connection that breaks before its end means "
                "that the rest could not be made.",
                binaries=_SOUNDS,
                stream=Stream(
                    EVENT_STREAM,
                    'data: {"type":"speech.audio.delta","audio":"UklGRv…"}\n\ndata: {"type":"speech.audio.done",'
                    '"usage":{"input_tokens":26,"output_tokens":52,"total_tokens":78}}\n\n',
                ),
                failures=INFERENCE,
                examples={"MP3": _SPEECH, "events": {**_SPEECH, "response_format": "pcm", "stream_format": "sse"}},
            )
        },
    },
)
