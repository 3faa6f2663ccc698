"""Kokoro over ONNX Runtime: phonemes and a voice become samples, until the client leaves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime

from workers.engine_servers.http_server import DISCONNECT_POLL_S
from workers.engine_servers.kokoro_server.symbols import MAX_SYMBOLS, numbers_of
from workers.files.errors import BrokenError
from workers.files.voices import VECTOR, Voices

SAMPLES_PER_FRAME: Final = 600
"""The model makes sound in frames of 25 ms, which are counted as its tokens."""
_QUIET: Final = 0.002
"""Samples below this at the ends of a piece are cut: pieces have their own pauses."""
_MARGIN: Final = 720
"""Samples of silence that stay at each end: 30 ms."""
_TOKEN_INPUTS: Final = ("input_ids", "tokens")
"""Names of the input with phonemes, by the exporter of the file."""


class KokoroModel:
    """One model with its voices. One piece at a time."""

    def __init__(self, path: Path, threads: int) -> None:
        """Load it; raises :class:`BrokenError`, OSError, or what ONNX Runtime raises. ``threads`` 0: the library's choice."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        options.enable_mem_pattern = False  # a plan for each length of a piece: 170 MB more, and not faster
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        inputs = {each.name for each in self._session.get_inputs()}
        self._tokens = next((name for name in _TOKEN_INPUTS if name in inputs), "")
        if not self._tokens or inputs != {self._tokens, "style", "speed"}:
            raise BrokenError("its inputs are not those of Kokoro: input_ids (or tokens), style and speed")
        self.voices = Voices(path)
        if not self.voices.names:
            raise BrokenError("there are no voices beside it: voices/NAME.bin")
        self.build = f"onnxruntime {onnxruntime.__version__}"
        self._read: dict[str, Any] = {}

    def mixed_voice(self, shares: Sequence[tuple[str, float]]) -> Any:
        """Return the vectors of a mixture of voices; raises :class:`BrokenError`, OSError, KeyError."""
        for name, _ in shares:
            if name not in self._read:
                self._read[name] = self.voices.read(name)
        length = min(len(self._read[name]) for name, _ in shares)
        return sum(self._read[name][:length] * np.float32(share) for name, share in shares)

    def synthesize(self, phonemes: str, voice: Any, speed: float, disconnected: Callable[[], bool]) -> Any:
        """Return the samples of a piece, floats from -1 to 1; raises OSError soon after the client has hung up."""
        numbers = numbers_of(phonemes)[:MAX_SYMBOLS]
        style = voice[min(len(numbers), len(voice) - 1)].reshape(1, VECTOR)
        given = {
            self._tokens: np.array([[0, *numbers, 0]], np.int64),
            "style": style.astype(np.float32),
            "speed": np.array([speed], np.float32),
        }
        run = onnxruntime.RunOptions()
        done = threading.Event()

        def watch() -> None:
            while not done.wait(DISCONNECT_POLL_S):
                if disconnected():
                    run.terminate = True
                    return

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            samples = self._session.run(None, given, run)[0].ravel()
        except Exception:
            if run.terminate:
                raise BrokenPipeError from None
            raise
        finally:
            done.set()
            watcher.join()
        return np.nan_to_num(samples.astype(np.float32, copy=False))


def frames(samples: Any) -> int:
    """Return how many frames of the model a piece has."""
    return -(-len(samples) // SAMPLES_PER_FRAME)


def trimmed(samples: Any) -> Any:
    """Return a piece without the silence at its ends."""
    loud = np.flatnonzero(np.abs(samples) > _QUIET)
    if not loud.size:
        return samples[:0]
    return samples[max(0, loud[0] - _MARGIN) : loud[-1] + _MARGIN]
