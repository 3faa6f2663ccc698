"""``lemonbus system-info``: shows the machine, its devices, and the backends that run on them."""

from __future__ import annotations

from typing import Any

import click

from gateway.cli import output
from gateway.cli.api_client import ApiClient
from gateway.cli.options import json_option, server_option


@click.command("system-info", short_help="Show the machine, its devices, and the backends that run on them.")
@click.option("--verbose", "-v", is_flag=True, help="Also Python packages, kernel, mainboard and BIOS.")
@json_option("the server's answer")
@server_option
def command(verbose: bool, as_json: bool, server: ApiClient) -> None:
    """Show the machine that the server runs on, its devices, and the state of each backend."""
    info = server.call("GET", "/v1/system-info" + ("?verbose=true" if verbose else ""))
    if as_json:
        output.print_json(info)
        return
    for key in ("OS Version", "Processor", "Physical Memory"):
        click.echo(f"{key + ':':<17} {output.plain(str(info[key]))}")
    _devices(info["devices"])
    _backends(info.get("recipes") or {})
    if verbose:
        _more(info)


def _devices(devices: dict[str, Any]) -> None:
    cpu = devices["cpu"]
    rows = [("cpu", cpu["name"], f"{cpu['cores']} cores, {cpu['threads']} threads", cpu["family"], "-", "yes")]
    for kind in ("amd_gpu", "nvidia_gpu"):
        for gpu in devices.get(kind) or []:
            memory = "-" if gpu.get("vram_gb") is None else f"{gpu['vram_gb']:g} GB"
            rows.append((kind, gpu["name"], memory, *_about(gpu)))
    npu = devices.get("amd_npu") or {}
    if "name" in npu:
        rows.append(("amd_npu", npu["name"], f"power mode {npu['power_mode']}", *_about(npu)))
    click.echo()
    output.table(("DEVICE", "NAME", "SIZE", "FAMILY", "DRIVER", "USABLE"), rows)


def _about(device: dict[str, Any]) -> tuple[str, str, str]:
    usable = "yes" if device["available"] else "no driver"
    return device.get("family") or "-", device.get("driver_version") or "-", usable


def _backends(recipes: dict[str, Any]) -> None:
    rows = [
        (
            f"{recipe}:{name}" + (" (default)" if name == about.get("default_backend") else ""),
            backend["state"],
            backend.get("version") or "-",
            " ".join(backend["devices"]) or "-",
            " ".join(filter(None, (backend["message"], backend["action"]))) or "-",
        )
        for recipe, about in recipes.items()
        for name, backend in about["backends"].items()
        if name != "default" or len(about["backends"]) == 1  # an alias of one of the others
    ]
    if rows:
        click.echo()
        output.table(("BACKEND", "STATE", "VERSION", "DEVICES", "NOTE"), rows)


def _more(info: dict[str, Any]) -> None:
    click.echo()
    for key, value in (info.get("lemonbus") or {}).items():
        click.echo(f"{key + ':':<17} {output.plain(str(value))}")
    packages = info.get("Python Packages") or []
    click.echo(f"\nPython packages: {len(packages)}")
    for package in packages:
        click.echo("  " + output.plain(package))
