"""OpenAI's routes."""

from __future__ import annotations

from typing import ClassVar

from gateway.api.common.dialect import VERSION_PREFIXES, Dialect, Routes, versioned
from gateway.api.common.operations import Documentation
from gateway.api.common.route_resource import resources
from gateway.api.openai import (
    audio,
    batches,
    completions,
    embeddings,
    files,
    images,
    models,
    moderations,
    speech,
    unsupported,
    voices,
)
from gateway.api.openai.preview_completions import PreviewCompletionsResource
from gateway.api.openai.realtime.resource import RealtimeResource
from gateway.bus.session import SupervisorSession


class OpenAIDialect(Dialect):
    """OpenAI's API. Its errors have the default form, which every versioned path uses, also below ``/api``."""

    error_prefixes: ClassVar[tuple[str, ...]] = VERSION_PREFIXES

    def routes(self, session: SupervisorSession) -> Routes:
        """Return the routes, under every version prefix."""
        routes: Routes = {
            "chat/completions": completions.ChatCompletionsResource(session),
            "completions": completions.CompletionsResource(session),
            "embeddings": embeddings.EmbeddingsResource(session),
            "moderations": moderations.ModerationsResource(session),
            "images/generations": images.ImageGenerationsResource(session),
            "images/edits": images.ImageEditsResource(session),
            "audio/transcriptions": audio.TranscriptionsResource(session),
            "audio/translations": audio.TranslationsResource(session),
            "realtime": RealtimeResource(session),
            "audio/speech": speech.SpeechResource(session),
            "text-to-speech/{voice}": speech.TextToSpeechResource(session),
        }
        preview = {"completions": PreviewCompletionsResource(session)}
        # llama-server answers chats with and without a prefix, and Lemonade live audio.
        unprefixed: Routes = {f"/{path}": routes[path] for path in ("chat/completions", "realtime")}
        unprefixed["/tts"] = speech.TtsResource(session)
        declared = resources(session, batches, files, models, unsupported, voices)
        uploads = versioned({"files": files.FilesResource(session)})
        return {**unprefixed, **versioned(routes, preview), **declared, **uploads}

    def documentation(self) -> Documentation:
        """Return what the routes take and answer."""
        from gateway.api.openai.documentation import DOCUMENTATION  # noqa: PLC0415 - only when the document is asked for

        return DOCUMENTATION
