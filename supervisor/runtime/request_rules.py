"""Tells workers that were taken over how the configuration changes the requests of their model.

Other workers get the rules with each start of an engine (``effect_executor.py``).
"""

from __future__ import annotations

from protocol.messages.peers import SetRequestRules
from supervisor.runtime.supervisor import Supervisor


def send_to_loaded(supervisor: Supervisor) -> None:
    """Send its rules to each worker that has a model: this supervisor may have other settings than the last one."""
    configuration = supervisor.models.configuration
    for worker in supervisor.scheduler.view.workers():
        if worker.spec is not None:
            rules = configuration.request_rules(worker.spec)
            supervisor.bus.send(worker.worker, SetRequestRules(rules))
