"""A receiver of files in this process."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from protocol.messages.model_transfer import FileSender, FilesPresent, StartFileTransfer, TransferFile
from protocol.models.recipes import ModelSpec
from tests.workers.jobs.transfer_files import KEY, content
from workers.jobs.model_transfer.file_places import NodeFolders
from workers.jobs.model_transfer.file_receiver import FileReceiver

SPEC = ModelSpec("m", "shop/tiny", "llamacpp", "cpu", "llm", "/m.gguf")
DATA = content(300_007)


def fetch(folders: NodeFolders, files: list[TransferFile], senders: list[FileSender], key: str = KEY) -> FilesPresent:
    return FileReceiver(StartFileTransfer(SPEC, files, senders, key), folders, lambda _seconds: None).run()


def all_files(folder: Path) -> set[str]:
    """Return what is below a folder, without locks."""
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if not path.is_dir() and not {".locks", ".file_locks"} & set(path.parts)
    }


def on_another_machine(file: TransferFile) -> TransferFile:
    """Return a file with a path that only the head has."""
    return replace(file, path=f"/of-the-head{file.path}")
