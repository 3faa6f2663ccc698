"""A simulation whose supervisor can die at any point: a new one asks the workers and gateways, and continues."""

from __future__ import annotations

from protocol.ids import RequestKey
from protocol.messages.engines import EngineReady
from protocol.messages.work import SubmitRequest
from protocol.worker_states import WorkerState
from supervisor.scheduler.effects import Effect, NotifyGrant, SpawnWorker
from supervisor.scheduler.inputs import ModelTarget
from supervisor.scheduler.policy import FixedPolicies
from supervisor.scheduler.recovery.joined_snapshots import is_consistent, join_snapshots, to_be_submitted
from tests.supervisor.scheduler import invariants
from tests.supervisor.scheduler.effect_player import spec
from tests.supervisor.scheduler.simulated_peers import GatewayTruth, ObservedScheduler, WorkerTruth
from tests.supervisor.scheduler.simulation import Simulation


class RecoverySimulation(Simulation):
    def __init__(self, models: int = 1, slots: int = 2, **limits: object) -> None:
        self.truth: dict[str, WorkerTruth] = {}
        self.gateways = GatewayTruth()
        self.dies_after: int | None = None
        """The supervisor dies when it has carried out this many of its next effects."""
        self._unread_answers: list[RequestKey] = []
        super().__init__(models, slots, **limits)
        self.recover()

    # Peers see what is sent to them.

    def _play(self, effect: Effect) -> None:
        match effect:
            case SpawnWorker(worker, _):
                self.truth[worker] = WorkerTruth()
            case NotifyGrant(gateway, grant):
                self.gateways.note_grant(RequestKey(gateway, grant.number, grant.attempt), grant.worker)
        super()._play(effect)
        self.gateways.calls = {call: again for call, again in self.gateways.calls.items() if call in self.calls}

    def deliver(self, peer: str, message: object) -> None:
        if peer in self.truth:
            self.truth[peer].receive(message, self.now)
        super().deliver(peer, message)

    def end(self, key: RequestKey) -> None:
        self.gateways.end(key)
        super().end(key)

    def worker_dies(self, worker: str) -> list[RequestKey]:
        self.truth.pop(worker, None)
        return super().worker_dies(worker)

    # The supervisor dies.

    def settle(self, *, light: bool = False) -> None:
        if self.dies_after is None:
            super().settle(light=light)
            return
        if not (light and self.scheduler.view.settled):
            self.scheduler.reconcile(self.now)
        for effect in self.scheduler.effects()[: self.dies_after]:
            self._play(effect)
        self.recover()

    def reload(self, policies: FixedPolicies) -> None:
        """A supervisor with another configuration takes over: what it does not let stay leaves when idle."""
        self.before_change = invariants.loaded_now(self.scheduler)
        self.recover(policies)

    def recover(self, policies: FixedPolicies | None = None) -> None:
        """Start a new supervisor, whose scheduler knows what the peers tell."""
        self.dies_after = None
        for worker in self.killed:
            if self.workers.pop(worker, None) is not None:
                del self.truth[worker]
        self._end_unwanted()
        self._unread_answers = [key for key in self._unread_answers if key in self.gateways.waiting]
        old = self.state
        self.scheduler = ObservedScheduler(old.limits, old.new_worker, policies=policies or old.policies)
        self.scheduler.workers_truth, self.scheduler.gateways = self.truth, self.gateways
        connected = {worker: truth.snapshot(self.now) for worker, truth in self.truth.items() if truth.connected}
        assert all(is_consistent(snapshot) for snapshot in connected.values())
        gateways = self.gateways.snapshots(self.now)
        starting = [worker for worker, truth in self.truth.items() if not truth.connected]
        arrivals = dict.fromkeys([*connected, *gateways], self.now)
        self.scheduler.recovered(join_snapshots(connected, gateways, arrivals, starting), self.now)
        self._check_nothing_is_reloaded()
        again = to_be_submitted(gateways)
        for key in sorted(again, key=lambda key: self.gateways.waiting[key].since):
            self._submit_again(key)
        for key in self._unread_answers:  # a second Run of it would fail from here on
            self.end(key)
        self._unread_answers.clear()
        self._check_order()
        for call, make in list(self.gateways.calls.items()):
            make(self.scheduler, self.now)
            if call not in self.gateways.calls:  # what was to be unloaded is gone
                self.calls.discard(call)
        super().settle()

    def _end_unwanted(self) -> None:
        """Requests that no gateway waits for and no worker has were cancelled, and are over."""
        running = {key for worker in self.workers.values() for key in worker.running}
        for key in [key for key in self.live if key not in running and key not in self.gateways.waiting]:
            self.end(key)

    def _submit_again(self, key: RequestKey) -> None:
        asked = self.gateways.waiting[key]
        fields = {field: getattr(asked.request, field) for field in SubmitRequest.__struct_fields__}
        again = SubmitRequest(**{**fields, "age": self.now - asked.since})
        self.scheduler.request_submitted(key, again, b"", asked.target, self.now)

    def _check_nothing_is_reloaded(self) -> None:
        for worker, truth in self.truth.items():
            if truth.state is WorkerState.READY:
                process = self.state.workers[worker]
                assert process.state is WorkerState.READY
                assert process.model.grants.keys() == truth.attempts.keys()
                assert process.model.spec == truth.spec
                assert process.model.abandoned == {key for key, each in truth.attempts.items() if each.abandoned}
                assert process.model.overrides == truth.remembered

    def _check_order(self) -> None:
        """For each model, waiting requests are in the order in which they arrived at their gateways."""
        waiting = [each for model in self.state.models.values() for each in model.queue]
        waiting.sort(key=lambda each: each.order)
        arrivals = [self.gateways.waiting[each.key].since for each in waiting]
        assert arrivals == sorted(arrivals)

    # What happens while there is no supervisor.

    def ends_unheard(self, key: RequestKey, *, answer_read: bool = True) -> None:
        """An attempt ends: no supervisor gets the report; its gateway has read the answer, or reads it after its Hello."""
        worker = next(worker for worker, truth in self.truth.items() if key in truth.attempts)
        self.truth[worker].end(key, self.now)
        self.workers[worker].running.remove(key)
        if answer_read or key not in self.gateways.waiting:
            self.end(key)
        else:
            self._unread_answers.append(key)

    def run_unread(self, key: RequestKey) -> None:
        """The last ``Run`` was still on its way."""
        worker = next(worker for worker, truth in self.truth.items() if key in truth.attempts)
        del self.truth[worker].attempts[key]
        self.workers[worker].running.remove(key)
        self.workers[worker].abandoned.discard(key)

    def granted_unread(self, key: RequestKey) -> None:
        """``Granted`` was still on its way."""
        self.gateways.granted.pop(key, None)

    def ready_unheard(self, worker: str) -> None:
        """An engine becomes ready."""
        self.truth[worker].ready(EngineReady(self.slots, 4096, 1, "http://127.0.0.1:1", 0.1), self.now)

    def engine_dies_unheard(self, worker: str) -> None:
        """An engine dies; its worker tells the gateways."""
        self.truth[worker].lose_engine()
        self._fail_running(worker)

    def worker_dies_unheard(self, worker: str) -> None:
        """A worker dies at the same moment as the supervisor."""
        self._fail_running(worker)
        for key in [key for key in self._unread_answers if key in self.truth[worker].ended]:
            self._unread_answers.remove(key)
            self.end(key)  # its gateway reads all events before it disconnects
        del self.truth[worker], self.workers[worker]
        for key in [key for key, at in self.gateways.granted.items() if at == worker]:
            self.end(key)  # although the worker had not read of it

    def _fail_running(self, worker: str) -> None:
        running, self.workers[worker].running = self.workers[worker].running, []
        for key in running:
            self.end(key)

    def gateway_dies_unheard(self, gateway: str) -> None:
        """A gateway dies at the same moment as the supervisor."""
        self.gateways.gateway_gone(gateway)
        self.calls = {call for call in self.calls if call[0] != gateway}

    def cancel_unheard(self, key: RequestKey) -> None:
        """A client hangs up, and ``Cancel`` is lost."""
        self.gateways.end(key)

    def submit_unheard(self, name: str, gateway: str) -> RequestKey:
        """A request arrives at a gateway; it waits there for a supervisor."""
        key = RequestKey(gateway, next(self._numbers), 1)
        self.live[key] = name
        request = SubmitRequest(key.number, key.attempt, name, "chat/completions", "label", 1, 10)
        self.gateways.submitted(key, request, ModelTarget(name, "llm", spec(name)), self.now)
        return key


def recoverable(*names: str, models: int = 1, slots: int = 2, **more: object) -> RecoverySimulation:
    """Return a simulation with these models loaded, as :func:`tests.supervisor.scheduler.simulation.loaded` does."""
    sim = RecoverySimulation(models, slots, **more)
    sim.now = 1.0  # a last use at 0 is an unknown one to snapshots
    for index, name in enumerate(names):
        sim.load(name, 500 + index)
        sim.run_until_idle()
    return sim
