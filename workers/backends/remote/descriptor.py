"""The recipe of a model on another server: another lemonbus, vLLM, a cloud."""

from __future__ import annotations

from typing import Final

from protocol.config.model_settings import SERVER_KEYS
from protocol.models.devices import Device
from protocol.models.recipes import BackendDescriptor, IdleCheck, Provision, RecipeDescriptor
from workers.backends.openai_server import IDLE_CHECK, SAMPLING, SERVES

DESCRIPTOR: Final = RecipeDescriptor(
    recipe="remote",
    title="Another server",
    backends=[
        BackendDescriptor(
            name="remote",
            devices=[Device.CPU],
            executable="",
            provision=Provision.SECTION,
            help="the servers of a section of the configuration",
        )
    ],
    options=[],
    section_keys=list(SERVER_KEYS),
    elsewhere=True,
    shown_device="remote",
    serves=SERVES,
    idle_check=dict.fromkeys(IDLE_CHECK, IdleCheck.DISCONNECTED.value),
    silence_by_cpu=False,
    sampling=SAMPLING,
)
