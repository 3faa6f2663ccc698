"""``lemonbus system-info``: shows the machine, its devices, and the backends that run on them."""

from __future__ import annotations

import click

from gateway.api.lemonade.system_info import (
    DeviceEntry,
    Devices,
    SystemInfoAnswer,
    SystemInfoQuery,
    show_system_info,
)
from gateway.cli import output
from gateway.cli.api_client import ApiClient
from gateway.cli.options import json_option, server_option
from protocol.messages.system_info import RecipeStatus


@click.command("system-info", short_help="Show the machine, its devices, and the backends that run on them.")
@click.option("--verbose", "-v", is_flag=True, help="Also Python packages, kernel, mainboard and BIOS.")
@json_option("the server's answer")
@server_option
def command(verbose: bool, as_json: bool, server: ApiClient) -> None:
    """Show the machine that the server runs on, its devices, and the state of each backend."""
    info = server.ask(show_system_info, SystemInfoQuery(verbose))
    if as_json:
        output.print_json(info)
        return
    for key, value in (
        *(("OS Version", info.system), ("Processor", info.processor)),
        ("Physical Memory", info.memory),
    ):
        click.echo(f"{key + ':':<17} {output.plain(value)}")
    _devices(info.devices)
    _backends(info.recipes)
    if verbose:
        _more(info)


def _devices(devices: Devices) -> None:
    cpu = devices.cpu
    rows = [("cpu", cpu.name, f"{cpu.cores} cores, {cpu.threads} threads", cpu.family, "-", "yes")]
    for kind, gpus in (("amd_gpu", devices.amd_gpu), ("nvidia_gpu", devices.nvidia_gpu)):
        rows += [(kind, gpu.name, f"{gpu.vram_gb:g} GB" if gpu.vram_gb else "-", *_about(gpu)) for gpu in gpus]
    npu = devices.amd_npu
    if npu.name:
        rows.append(("amd_npu", npu.name, f"power mode {npu.power_mode}", *_about(npu)))
    click.echo()
    output.table(("DEVICE", "NAME", "SIZE", "FAMILY", "DRIVER", "USABLE"), rows)


def _about(device: DeviceEntry) -> tuple[str, str, str]:
    return device.family or "-", device.driver_version or "-", "yes" if device.available else "no driver"


def _backends(recipes: dict[str, RecipeStatus]) -> None:
    rows = [
        (
            f"{recipe}:{name}" + (" (default)" if name == about.default_backend else ""),
            *output.backend_columns(backend),
        )
        for recipe, about in recipes.items()
        for name, backend in about.backends.items()
        if name != "default" or len(about.backends) == 1  # an alias of one of the others
    ]
    if rows:
        click.echo()
        output.table(("BACKEND", "STATE", "VERSION", "DEVICES", "NOTE"), rows)


def _more(info: SystemInfoAnswer) -> None:
    click.echo()
    for key, value in (info.lemonbus or {}).items():
        click.echo(f"{key + ':':<17} {output.plain(str(value))}")
    packages = info.packages or []
    click.echo(f"\nPython packages: {len(packages)}")
    for package in packages:
        click.echo("  " + output.plain(package))
