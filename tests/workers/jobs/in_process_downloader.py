"""A download without its process: what a job does between its order and its result, in the tests' own process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import constants, file_download

from protocol.messages.model_files import CheckpointSource, Pulled, PullFailed, StartPull
from workers.jobs.model_download.sources import download_model
from workers.jobs.progress import DownloadProgress


class InProcessDownloader:
    """A cache, and downloads into it. The library read the environment when it was imported, so it is told again."""

    def __init__(self, cache: Path, endpoint: str, home: Path, patch: pytest.MonkeyPatch) -> None:
        self.cache = cache
        self.progress = DownloadProgress()
        """That of the last download."""
        reported = {
            "ENDPOINT": endpoint,
            "HUGGINGFACE_CO_URL_TEMPLATE": endpoint + "/{repo_id}/resolve/{revision}/{filename}",
            "HF_HUB_CACHE": str(home / "hub"),
            "HF_TOKEN_PATH": str(home / "token"),
        }
        for module in (constants, file_download):  # old versions have names of their own for them
            for name, value in reported.items():
                if hasattr(module, name):
                    patch.setattr(module, name, value)
        for name in ("DOWNLOAD_CHUNK_SIZE", "HF_HUB_ENABLE_HF_TRANSFER"):  # the job sets them for good
            patch.setattr(constants, name, getattr(constants, name, False), raising=False)

    def pull(self, *sources: CheckpointSource, name: str = "", present: Sequence[str] = ()) -> Pulled | PullFailed:
        """Fetch once; ``name`` is a job's where there are jobs; ``present``: files of the model that are known."""
        self.progress = DownloadProgress()
        order = StartPull("m", list(sources), str(self.cache), present=list(present))
        return download_model(order, self.progress).result

    def close(self) -> None:
        """Let go of the connections that the library keeps, if it does."""
        getattr(huggingface_hub, "close_session", lambda: None)()
