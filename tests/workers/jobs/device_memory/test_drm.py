"""AMD's and Intel's graphics on recorded machines: cards, graphics in processors, and what processes use."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.messages.devices import DeviceReading
from protocol.models.memory import HOST
from tests.support.fakes.machines import FakeMachine
from workers.jobs.device_memory import drm
from workers.jobs.device_memory.drm import GraphicsCards, process_memory

GIB = 1 << 30
MIB = 1 << 20
AMD_FDINFO = """pos:\t0
flags:\t02100002
drm-driver:\tamdgpu
drm-client-id:\t{client}
drm-pdev:\t{card}
drm-total-vram:\t{kib} KiB
drm-resident-vram:\t{kib} KiB
drm-memory-vram:\t{kib} KiB
drm-memory-gtt:\t15300 KiB
drm-resident-gtt:\t15300 KiB
"""
XE_FDINFO = """drm-driver:\txe
drm-client-id:\t{client}
drm-pdev:\t{card}
drm-total-system:\t0
drm-resident-gtt:\t384 KiB
drm-total-vram0:\t4 GiB
drm-shared-vram0:\t0
drm-resident-vram0:\t{mib} MiB
drm-resident-vram1:\t1024
"""
I915_FDINFO = """drm-driver:\ti915
drm-client-id:\t7
drm-pdev:\t{card}
drm-total-system0:\t2 GiB
drm-resident-system0:\t1 GiB
drm-total-local0:\t4 GiB
drm-shared-local0:\t0
drm-resident-local0:\t3145728 KiB
drm-engine-compute:\t9288864723 ns
"""


def process(machine: FakeMachine, pid: int, *descriptors: str, children: str = "") -> None:
    """Add a process with open devices, a socket, and a file that was closed meanwhile."""
    folder = machine.root / f"proc/{pid}"
    (folder / "fd").mkdir(parents=True)
    (folder / "fd/0").symlink_to("socket:[123]")
    (folder / "fd/99").symlink_to("/dev/dri/renderD128")
    for number, text in enumerate(descriptors, 5):
        (folder / f"fd/{number}").symlink_to("/dev/dri/renderD128")
        machine.write(f"proc/{pid}/fdinfo/{number}", text)
    machine.write(f"proc/{pid}/task/{pid}/children", children)


def read(machine: FakeMachine, *wanted: int, integrated: tuple[str, ...] = ()) -> list[DeviceReading]:
    return GraphicsCards(machine.root, machine.root).read(integrated, wanted)


def amd(machine: FakeMachine, address: str, vram: int, used: int, gtt: int, **files: str) -> None:
    sizes = {"mem_info_vram_total": vram, "mem_info_vram_used": used, "mem_info_gtt_total": gtt}
    named = {name: str(size) for name, size in sizes.items()}
    machine.device(address, "1002:744c:c8", "0x030000", "amdgpu", **named, **files)


def test_an_amd_card(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    amd(
        machine,
        "0000:03:00.0",
        24 * GIB,
        5 * GIB,
        62 * GIB,
        gpu_busy_percent="97",
        unique_id="ab12",
        product_name="W7900",
    )
    machine.device("0000:03:00.1", "1002:ab30:00", "0x040300", "snd_hda_intel")
    machine.device("0000:04:00.0", "1002:744c:c8", "0x030000", "vfio-pci", mem_info_vram_total="7")
    assert read(machine) == [
        DeviceReading("amd", "0000:03:00.0", "0000:03:00.0", "ab12", "W7900", 24 * GIB, 19 * GIB, used_percent=97.0)
    ]


def test_graphics_in_a_processor_use_the_hosts_memory(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    amd(machine, "0000:c4:00.0", GIB // 2, 1, 14 * GIB, gpu_busy_percent="")
    assert read(machine, integrated=("0000:c4:00.0",)) == [DeviceReading("amd", "0000:c4:00.0", HOST)]


def test_what_engines_use_of_the_hosts_memory_by_graphics_in_a_processor(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    amd(machine, "0000:c4:00.0", GIB // 2, 1, 14 * GIB)
    process(machine, 11, AMD_FDINFO.format(client=7, card="0000:c4:00.0", kib=1024))
    (found,) = read(machine, 11, integrated=("0000:c4:00.0",))
    assert (found.place, found.processes) == (HOST, {11: 15300 << 10})


def test_memory_that_was_set_aside_for_graphics_in_a_processor_is_their_own(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    amd(machine, "0000:c4:00.0", 96 * GIB, 6 * GIB, 16 * GIB)
    (found,) = read(machine, integrated=("0000:c4:00.0",))
    assert (found.place, found.total, found.free) == ("0000:c4:00.0", 96 * GIB, 90 * GIB)


def test_what_the_engines_of_workers_use_on_amd_cards(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    amd(machine, "0000:03:00.0", 24 * GIB, 5 * GIB, 62 * GIB)
    first = AMD_FDINFO.format(client=7, card="0000:03:00.0", kib=1024)
    other = AMD_FDINFO.format(client=8, card="0000:03:00.0", kib=2048)
    elsewhere = AMD_FDINFO.format(client=9, card="0000:09:00.0", kib=4096)
    process(machine, 10, children="11 12 ")
    process(machine, 11, first, first, other, elsewhere)
    process(machine, 20, first)
    assert read(machine, 10, 404)[0].processes == {11: 3 * MIB}
    assert process_memory(machine.root, [11]) == {11: {"0000:03:00.0": 3 * MIB, "0000:09:00.0": 4 * MIB}}


def test_an_older_kernel_has_one_name_for_a_cards_memory(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    process(machine, 1, "drm-pdev:\t0000:03:00.0\ndrm-memory-vram:\t2048 KiB\n", "drm-driver:\tamdgpu\n", "garbage")
    assert process_memory(machine.root, None) == {1: {"0000:03:00.0": 2 * MIB}}


def test_an_intel_card_has_what_no_process_uses(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    folder = machine.device("0000:03:00.0", "8086:e20b:00", "0x030000", "xe")
    machine.write(f"{folder}/tile0/physical_vram_size_bytes", f"{12 * GIB}\n")
    process(machine, 5, XE_FDINFO.format(client=1, card="0000:03:00.0", mib=2048))
    process(machine, 6, XE_FDINFO.format(client=2, card="0000:03:00.0", mib=1024))
    used = {5: 2 * GIB + 1024, 6: GIB + 1024}
    assert read(machine) == [
        DeviceReading("intel", "0000:03:00.0", "0000:03:00.0", total=12 * GIB, free=9 * GIB - 2048, processes=used)
    ]


def test_an_intel_card_whose_driver_shows_no_memory(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    folder = machine.device("0000:03:00.0", "8086:56a0:08", "0x030000", "i915")
    problem = "The memory of 0000:03:00.0 is unknown: the driver i915 does not show it"
    assert read(machine) == [DeviceReading("intel", "0000:03:00.0", "0000:03:00.0", problem=problem)]
    machine.write(f"{folder}/drm/card1/lmem_total_bytes", f"{16 * GIB}\n")
    assert [(each.total, each.free, each.problem) for each in read(machine)] == [(16 * GIB, 16 * GIB, "")]
    process(machine, 5, I915_FDINFO.format(card="0000:03:00.0"))
    assert [(each.free, each.processes) for each in read(machine)] == [(13 * GIB, {5: 3 * GIB})]


def test_an_intel_card_whose_driver_shows_what_is_free(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    folder = machine.device("0000:03:00.0", "8086:56a0:08", "0x030000", "i915")
    machine.write(f"{folder}/drm/card1/lmem_total_bytes", f"{16 * GIB}\n")
    machine.write(f"{folder}/drm/card1/lmem_avail_bytes", f"{9 * GIB}\n")
    process(machine, 5, I915_FDINFO.format(card="0000:03:00.0"))
    assert [(each.free, each.processes) for each in read(machine)] == [(9 * GIB, {5: 3 * GIB})], (
        "another program has the rest"
    )
    machine.write(f"{folder}/drm/card1/lmem_avail_bytes", "0\n")
    assert read(machine)[0].free == 0


def test_how_busy_intels_graphics_were_since_the_last_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(drm.time, "monotonic", lambda: now)
    machine = FakeMachine(tmp_path)
    folder = machine.device("0000:00:02.0", "8086:46a6:0c", "0x030000", "i915")
    idle = {"gt0": 1000, "gt1": 5000}
    cards = GraphicsCards(machine.root, machine.root)

    def busy() -> float | None:
        for part, milliseconds in idle.items():
            machine.write(f"{folder}/drm/card0/gt/{part}/rc6_residency_ms", f"{milliseconds}\n")
        (found,) = cards.read()
        assert (found.place, found.problem) == (HOST, "")
        return found.used_percent

    assert busy() is None
    now, idle = 102.0, {"gt0": 2500, "gt1": 7000}
    assert busy() == pytest.approx(25)
    now, idle = 104.0, {"gt0": 4600, "gt1": 7000}  # the driver's clock may differ a little
    assert busy() == pytest.approx(100)


def test_without_graphics_no_process_is_looked_at(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    machine.device("0000:00:1f.0", "8086:7a83:11", "0x060100")
    assert GraphicsCards(machine.root, tmp_path / "nowhere").read() == []


def test_this_processs_own_descriptors_can_be_read() -> None:
    assert isinstance(process_memory(Path("/"), None), dict)
