"""The recipe of a program of the operator's own: any server with OpenAI's API."""

from __future__ import annotations

from typing import Final

from protocol.config.model_settings import PROGRAM_KEYS
from protocol.models.devices import Device
from protocol.models.recipes import BackendDescriptor, Provision, RecipeDescriptor
from workers.backends.openai_server import IDLE_CHECK, SAMPLING, SERVES

DESCRIPTOR: Final = RecipeDescriptor(
    recipe="command",
    title="A server of your own",
    backends=[
        BackendDescriptor(
            name="command",
            devices=[Device.CPU],
            executable="",
            provision=Provision.SECTION,
            help="the command of a section of the configuration",
        )
    ],
    options=[],
    section_keys=list(PROGRAM_KEYS),
    serves=SERVES,
    idle_check=IDLE_CHECK,
    sampling=SAMPLING,
)
