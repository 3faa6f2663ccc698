"""A pull of a model of several files, each with its own source."""

from __future__ import annotations

from pathlib import Path

from protocol.failures import Code
from protocol.messages.model_files import CheckpointSource, Pulled, PullFailed
from tests.support.fakes.hub import Hub, gguf
from tests.support.fakes.wheels import sha256
from tests.workers.jobs.download_results import found, message
from tests.workers.jobs.in_process_downloader import InProcessDownloader
from tests.workers.jobs.job_runner import JobRunner

VAE, ENCODER = gguf(2000, 7), gguf(400_000, 8)

PICTURE = CheckpointSource(
    "shop/diffusion:main.gguf",
    parts={
        "text_encoder": CheckpointSource("shop/encoder:Q8_0"),
        "vae": CheckpointSource("shop/vae:split/vae.gguf", sha256=sha256(VAE)),
    },
)


def picture_repositories(hub: Hub) -> None:
    hub.repositories |= {
        "shop/diffusion": {"main.gguf": gguf(5000, 6), "other.gguf": gguf(50)},
        "shop/encoder": {"t-Q4_0.gguf": gguf(50), "t-Q8_0.gguf": ENCODER},
        "shop/vae": {"split/vae.gguf": VAE},
    }


def test_the_parts_of_a_model_come_from_their_repositories(hub: Hub, runner: JobRunner) -> None:
    picture_repositories(hub)
    assert runner.pull(PICTURE) == Pulled("m", 3)
    there = found(runner, PICTURE)
    assert there is not None
    assert {part: Path(path).read_bytes() for part, path in there.parts.items()} == {
        "vae": VAE,
        "text_encoder": ENCODER,
    }
    assert there.size == 5000 + len(VAE) + len(ENCODER)
    last = runner.progress()[-1]
    assert (last.file, last.file_index, last.total_files) == ("main.gguf", 3, 3)
    Path(there.parts["vae"]).unlink()
    assert found(runner, PICTURE) is None


def test_a_part_that_broke_off_is_continued_and_whole_ones_stay(hub: Hub, downloader: InProcessDownloader) -> None:
    picture_repositories(hub)
    hub.break_after = 200_000
    assert downloader.pull(PICTURE) == Pulled("m", 3)
    first, second = [begin for file, begin in hub.transfers if file == "t-Q8_0.gguf"]
    assert (first, second > 0) == (0, True)
    there = found(downloader, PICTURE)
    assert there is not None
    Path(there.path).resolve().unlink()
    hub.transfers.clear()
    assert downloader.pull(PICTURE) == Pulled("m", 3)
    assert [file for file, _ in hub.transfers] == ["main.gguf"]


def test_a_missing_part_is_named_before_anything_is_fetched(hub: Hub, downloader: InProcessDownloader) -> None:
    picture_repositories(hub)
    del hub.repositories["shop/vae"]["split/vae.gguf"]
    result = downloader.pull(PICTURE)
    assert "its vae: shop/vae has no file 'split/vae.gguf'" in message(result, downloader)
    assert isinstance(result, PullFailed)
    assert (result.failure.code, result.failure.param) == (Code.CHECKPOINT_NOT_FOUND, "checkpoints")
    del hub.repositories["shop/vae"]
    assert "its vae: there is no repository shop/vae" in message(downloader.pull(PICTURE), downloader)
    assert hub.transfers == []


def test_a_part_that_is_another_file_than_the_catalogues_is_refused(hub: Hub, downloader: InProcessDownloader) -> None:
    picture_repositories(hub)
    hub.repositories["shop/vae"] = {"split/vae.gguf": gguf(2000, 9)}
    assert "its vae: shop/vae has a file that is not the one" in message(downloader.pull(PICTURE), downloader)
    assert hub.transfers == []
