"""One session: its client's events come in, turns are transcribed one after the other, events go out.

Three greenlets serve it: one reads the WebSocket, that of the request handles what came, and one transcribes. The transcripts come
in the order of the turns. A client that is faster than its transcripts is read no further when much audio waits.
"""

from __future__ import annotations

import binascii
import contextlib
import time
from collections import deque
from typing import Any, Final

import falcon
import gevent
from gevent.event import Event

from gateway.api.openai.realtime import settings as session_settings
from gateway.api.openai.realtime.events import RealtimeEvent, RealtimeEventWriter, client_event, new_id
from gateway.api.openai.realtime.input_audio_buffer import Change, FoundTurn, InputAudioBuffer, SpeechStarted
from gateway.api.openai.realtime.settings import SPEECH_ADVICE
from gateway.api.openai.realtime.transcription import CommittedTurn, transcribe, turn_environment
from gateway.bus.session import SupervisorSession
from gateway.decoding.base64_text import from_base64
from gateway.http.bodies import body_limits
from gateway.http.body_memory import BodyMemory
from gateway.http.request_context import MEMORY_KEY, SOCKET_KEY, request_context
from gateway.websockets import handshake
from gateway.websockets.handshake import CLOSE_TIMEOUT_S, AcceptedWebSocket
from protocol.failures import Code, Failure, LemonbusError, invalid
from protocol.runtime import logs

MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024
"""Of one event. A minute of 16-bit audio at 24 kHz has 3.8 MB in base64."""
MAX_BUFFER_BYTES: Final = 16 * 1024 * 1024
"""Of audio that belongs to no turn yet, as 16-bit PCM."""
MAX_WAITING_BYTES: Final = 32 * 1024 * 1024
"""Of turns that wait for their transcription: beyond it, no further event is handled."""
IDLE_TIMEOUT_S: Final = 600.0
"""Seconds without an event after which a session ends, unless something is transcribed."""
_MAX_UNREAD: Final = 64
_MAX_UNREAD_BYTES: Final = 1024 * 1024
"""Events that were received and not handled, beyond which nothing more is read."""
_CHECK_INTERVAL_S: Final = 0.5
_FORM_BYTES: Final = 64 * 1024
"""More than a form has besides its recording."""
_SPEECH_EVENTS: Final = ("response.", "conversation.item.", "output_audio_buffer.")
"""The events for a model that speaks."""


class RealtimeSession:
    """One client."""

    def __init__(self, session: SupervisorSession, req: falcon.Request, accepted: AcceptedWebSocket) -> None:
        """Begin with the settings in the address of ``req``."""
        self._session, self._env = session, req.env
        self._context = request_context(req.env)
        self._socket = accepted.socket
        accepted.adapter.before_read = self._before_read
        intent = req.get_param("intent", default="") == "transcription"
        offered = f"{req.get_header('OpenAI-Beta') or ''} {req.get_header('Sec-WebSocket-Protocol') or ''}"
        openai = "realtime=v1" in offered or "realtime-v1" in offered
        self._beta = openai and intent
        """Whether the client reads the events of the beta of OpenAI's API."""
        self._id = new_id("sess")
        self._settings = session_settings.first_settings(req.get_param("model", default=""), openai=openai or intent)
        most = min(MAX_BUFFER_BYTES, session.settings.body_limit - _FORM_BYTES)
        self._input = InputAudioBuffer(self._settings.format, self._settings.turn_detection, most)
        self._memory: BodyMemory | None = req.env.get(MEMORY_KEY)
        self._held = body_limits.new_held_body(req.env)
        self._item_id = ""
        """The item of the speech that goes on; empty in silence."""
        self._previous: str | None = None
        """The item of the turn before."""
        self._writer = RealtimeEventWriter()
        self._turns: deque[CommittedTurn] = deque()
        """The first one is being transcribed."""
        self._turn_count = 0
        self._turns_changed = Event()
        self._may_read = Event()
        self._next_check = self._last_event = time.monotonic()

    def serve(self) -> None:
        """Serve until the client leaves or the session must end."""
        transcriber = gevent.spawn(self._transcribe_turns)
        try:
            kind = "transcription_session" if self._beta else "session"
            self._send(f"{kind}.created", session=self._shown())
            self._serve_events()
        except handshake.closed():
            return
        except LemonbusError as problem:
            with contextlib.suppress(*handshake.closed()):
                self._end(problem.failure, transcriber)
        finally:
            transcriber.kill()
            for turn in self._turns:
                self._release(turn)
            if self._memory is not None:
                self._memory.release(self._held)

    def _end(self, failure: Failure, transcriber: Any) -> None:
        """Let what is transcribed end if only this process ends, then say why the session does."""
        if self._session.admission.process_ends:
            while self._turns and self._socket.connected and not transcriber.ready():
                transcriber.join(0.25)
        # The end of this process must not wait for a client that does not read.
        gevent.spawn_later(CLOSE_TIMEOUT_S, self._env[SOCKET_KEY].cut)
        self._context.failure = failure
        self._socket.send(self._writer.error(failure, self._context.label))
        if failure.code is Code.TIMEOUT:
            self._socket.close(handshake.NORMAL, failure.message)
        else:
            handshake.close_for(self._socket, failure)

    def _before_read(self) -> bool:
        """Wait while many events wait to be handled (in the greenlet that reads); return whether to read on."""
        unread, client = self._socket.input_buffer, self._env[SOCKET_KEY]
        while self._socket.connected and (len(unread) > _MAX_UNREAD or sum(map(len, unread)) > _MAX_UNREAD_BYTES):
            if client.is_closed_by_client():
                return False
            self._may_read.clear()
            self._may_read.wait(_CHECK_INTERVAL_S)
        self._socket.pong_received = True  # whatever comes shows that the client is there
        return True

    def _send(self, kind: str, **fields: Any) -> None:
        self._socket.send(self._writer.event(kind, **fields))

    def _shown(self) -> dict[str, Any]:
        return session_settings.shown_settings(self._settings, self._id, beta=self._beta)

    # Events of the client

    def _serve_events(self) -> None:
        while True:
            self._check()
            message = self._socket.receive(timeout=_CHECK_INTERVAL_S)
            self._may_read.set()
            if message is None:
                continue
            self._last_event = time.monotonic()
            event = None
            try:
                event = client_event(message)
                self._handle(event)
            except LemonbusError as problem:
                label = self._context.label
                logs.get_logger().debug("realtime event refused", request_id=label, reason=problem.failure.message)
                given = event.event_id if event is not None else None
                self._socket.send(self._writer.error(problem.failure, label, given))

    def _check(self) -> None:
        """Raise why the session has to end now, if it has."""
        now = time.monotonic()
        if now < self._next_check:
            return
        self._next_check = now + _CHECK_INTERVAL_S
        if self._session.admission.process_ends:
            raise self._session.admission.refusal.raised()
        self._context.check_access()
        if now - self._last_event > IDLE_TIMEOUT_S and not self._turns:
            raise Failure(Code.TIMEOUT, f"no event came for {IDLE_TIMEOUT_S:.0f} s").raised()

    def _handle(self, event: RealtimeEvent) -> None:
        kind = event.type
        if kind == "input_audio_buffer.append":
            self._append(event)
        elif kind == "input_audio_buffer.commit":
            self._commit(self._input.commit())
        elif kind == "input_audio_buffer.clear":
            self._input.clear()
            self._item_id = ""
            self._send("input_audio_buffer.cleared")
        elif kind in ("session.update", "transcription_session.update"):
            self._update(event, beta=kind != "session.update")
        elif kind.startswith(_SPEECH_EVENTS):
            raise Failure(Code.UNSUPPORTED, f"`{kind[:80]}`: {SPEECH_ADVICE}", param="type").raised()
        else:
            raise invalid(f"`{kind[:80]}` is not an event that clients send", "type")

    def _update(self, event: RealtimeEvent, *, beta: bool) -> None:
        if event.session is None:
            raise invalid("`session` is required", "session")
        self._settings = session_settings.updated_settings(self._settings, event.session, beta=beta)
        self._input.configure(self._settings.format, self._settings.turn_detection)
        self._beta = self._beta or beta
        self._send("transcription_session.updated" if beta else "session.updated", session=self._shown())

    def _append(self, event: RealtimeEvent) -> None:
        try:
            data = from_base64((event.audio or "").encode("ascii"))
        except (UnicodeEncodeError, binascii.Error):
            raise invalid("`audio` must be base64", "audio") from None
        step = self._input.step_bytes
        for start in range(0, len(data), step):
            if start:
                gevent.sleep(0)
            piece = data[start : start + step]
            self._reserve(2 * len(piece))
            try:
                for change in self._input.append(piece):
                    self._take_change(change)
            finally:
                if self._memory is not None:
                    self._memory.release(self._held, self._input.size)

    def _reserve(self, size: int) -> None:
        if self._memory is not None:
            self._memory.reserve(self._held, size)

    def _take_change(self, change: Change) -> None:
        if isinstance(change, FoundTurn):
            self._commit(change.samples)
        elif isinstance(change, SpeechStarted):
            self._item_id = new_id("item")
            self._send("input_audio_buffer.speech_started", audio_start_ms=change.at_ms, item_id=self._item_id)
        else:
            self._send("input_audio_buffer.speech_stopped", audio_end_ms=change.at_ms, item_id=self._item_id)

    def _commit(self, samples: bytes) -> None:
        """Have a turn transcribed. Waits while too much is to be transcribed before it."""
        item_id, previous = self._item_id or new_id("item"), self._previous
        self._item_id, self._previous = "", item_id
        held = body_limits.new_held_body(self._env)
        if self._memory is not None:
            self._memory.release(self._held, self._input.size)
            self._memory.reserve(held, len(samples))
        self._turn_count += 1
        label = f"{self._context.label[:100]}.{self._turn_count}"
        self._send("input_audio_buffer.committed", item_id=item_id, previous_item_id=previous)
        for kind in ("created",) if self._beta else ("added", "done"):
            self._socket.send(self._writer.item(kind, item_id, previous))
        self._turns.append(CommittedTurn(item_id, label, samples, self._settings, held))
        self._turns_changed.set()
        while sum(len(turn.samples) for turn in self._turns) > MAX_WAITING_BYTES:
            self._turns_changed.clear()
            self._turns_changed.wait(_CHECK_INTERVAL_S)
            self._check()

    # Turns

    def _transcribe_turns(self) -> None:
        try:
            while True:
                while not self._turns:
                    self._turns_changed.clear()
                    self._turns_changed.wait()
                turn = self._turns[0]
                self._transcribe(turn)
                self._turns.popleft()
                self._release(turn)
                self._turns_changed.set()
        except handshake.closed():
            self._env[SOCKET_KEY].cut()

    def _transcribe(self, turn: CommittedTurn) -> None:
        def send_delta(text: str) -> None:
            self._socket.send(self._writer.transcription("delta", turn.item_id, delta=text))

        env = turn_environment(self._env, turn)
        try:
            text = transcribe(self._session, env, turn, send_delta)
        except LemonbusError as problem:
            self._socket.send(self._writer.failed(turn.item_id, problem.failure, turn.label))
            return
        usage = {"type": "duration", "seconds": round(turn.seconds, 3)}
        self._socket.send(self._writer.transcription("completed", turn.item_id, transcript=text, usage=usage))

    def _release(self, turn: CommittedTurn) -> None:
        if self._memory is not None:
            self._memory.release(turn.held)
