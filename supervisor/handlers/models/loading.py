"""Load and unload: what a call asks for, and when it is answered."""

from __future__ import annotations

from functools import partial

from msgspec import structs

from protocol.failures import Code, Failure, LemonbusError, invalid, printable
from protocol.messages.models import Loaded, LoadModel, PinModel, PolicyOverrides, UnloadModel
from protocol.models.devices import HYBRID, Device, devices_for_name
from protocol.models.recipes import DEFAULT_RECIPE, OptionValue, RecipeDescriptor
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from supervisor.handlers.context_size import with_context
from supervisor.handlers.model_targets import ModelTargets
from supervisor.models.catalogues.catalogue import CatalogueEntry
from supervisor.models.options.load_options import MERGED_ARGS, WITHOUT_SAVED, is_chosen
from supervisor.models.registry import ModelRegistry
from supervisor.runtime.gateway_calls import GatewayCalls
from supervisor.runtime.handler_table import Handler
from supervisor.runtime.internal_calls import InternalCalls
from supervisor.scheduler.inputs import ModelTarget
from supervisor.scheduler.scheduler import Scheduler
from workers.backends.registry import DESCRIPTORS, backend_class

log = logs.get_logger()


class ModelLoading:
    """Loads, unloads and pins models for calls."""

    def __init__(
        self,
        loop: Loop,
        models: ModelRegistry,
        targets: ModelTargets,
        scheduler: Scheduler,
        internal_calls: InternalCalls,
        calls: GatewayCalls,
    ) -> None:
        self._loop, self._models, self._targets = loop, models, targets
        self._scheduler, self._internal_calls, self._calls = scheduler, internal_calls, calls

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {LoadModel: self._load, UnloadModel: self._unload, PinModel: self._pin}

    def _load(self, peer: str, call: LoadModel, _payload: bytes) -> None:
        """Load a model, after its download if necessary; answered when it is ready.

        Options to be saved are saved once the model is ready with them: options that prevent a load must not break every
        later one.
        """
        known = self._models.find(call.model)
        if call.unless_loaded:
            self._check_not_loaded(known.name if known else call.model)
        entry = self._requested_entry(call)
        name = entry.name
        if call.dry_run:
            self._plan(peer, call, entry, is_new=known is None)
            return
        try:
            target, options = self._load_target(entry, call)
        except Exception:
            if known is None:
                self._models.adopted.forget(name)
            raise
        if target.spec is not None:
            self._models.adopted.keep(name)  # forgotten again if its first load fails
        target = target._replace(provisional=known is None)
        if call.save_options or call.set_default:
            self._internal_calls.load(target, partial(self._finish_load, peer, call, name, options))
        else:
            self._scheduler.load_requested(peer, call.number, target, self._loop.now())

    def _plan(self, peer: str, call: LoadModel, entry: CatalogueEntry, *, is_new: bool) -> None:
        """Tell what a load would do; answered when a worker has checked the model. Nothing is kept of it."""
        try:
            target, _ = self._load_target(entry, call)
        finally:
            if is_new:
                self._models.adopted.forget(entry.name)
        if target.spec is None:
            reason = (
                f"Model {entry.name} is not downloaded, so it is not known what it needs; `lemonbus pull` downloads it"
            )
            raise Failure(Code.CONFLICT, reason, model=entry.name).raised()
        self._scheduler.plan_requested(peer, call.number, target.spec)

    def _check_not_loaded(self, name: str) -> None:
        if self._scheduler.view.serving(name) is not None:
            reason = f"Model {name!r} is loaded already: unload it first, or use it as it is"
            raise Failure(Code.CONFLICT, reason, model=name).raised()

    def _load_target(self, entry: CatalogueEntry, call: LoadModel) -> tuple[ModelTarget, dict[str, OptionValue]]:
        """Return the model to load, and the options of the call that may be saved; raises what is wrong with them."""
        descriptor = self._models.descriptor(entry)
        given = {name: value for name, value in call.options.items() if is_chosen(descriptor, name, value)}
        chosen = {name: value for name, value in given.items() if value is not None}
        options = self._models.options.check(entry.name, chosen)
        options |= device_option(descriptor, call.device, options)
        before = self._models.options.of(entry.name) if len(chosen) < len(given) else {}
        hidden = {name: value for name, value in before.items() if name in given.keys() - chosen.keys()}
        saved = {**hidden, **options}
        if hidden:
            options[WITHOUT_SAVED] = " ".join(hidden)
        arguments = next((option.name for option in descriptor.options if option.kind == "args"), "")
        if call.merge_args is False and arguments:
            options.setdefault(arguments, "")
        elif call.merge_args and arguments in options:
            options[MERGED_ARGS] = True
        backend_class(entry.recipe)
        target = self._targets.resolve(entry, options, ignore_saved=call.save_options)
        if target.spec is not None:
            self._models.specs.precheck(target.spec)
        whatever = not options and not call.save_options
        if call.context and whatever and target.spec is not None:
            larger = with_context(target.spec, call.context, self._scheduler.view.model(target.name))
            if larger is not None:
                target, whatever = target._replace(spec=larger), False
        asked = PolicyOverrides(pinned=call.pinned, ttl=call.ttl)
        return target._replace(asked=asked, any=whatever, options={} if target.spec else options), saved

    def _requested_entry(self, call: LoadModel) -> CatalogueEntry:
        """Return the model of a load. An unregistered checkpoint gets an entry under its own name."""
        if call.recipe and call.recipe not in DESCRIPTORS:
            reason = f"there is no recipe {printable(call.recipe)}; there are: {', '.join(DESCRIPTORS)}"
            raise invalid(reason, "recipe")
        if call.path:
            self._check_not_loaded(call.model)
            return self._models.adopted.adopt_file(call.model, call.path, call.mmproj)
        recipe = call.recipe or guess_recipe(call.model, call.device)
        entry = self._models.resolve_or_adopt(call.model, recipe)
        if call.recipe and call.recipe != entry.recipe:
            raise invalid(f"{entry.name} is a model for recipe {entry.recipe}, not {call.recipe}", "recipe")
        return entry

    def _finish_load(
        self, peer: str, call: LoadModel, name: str, options: dict[str, OptionValue], result: object
    ) -> None:
        """If the model is ready with the options, save them and, if requested, make it the default model; then answer."""
        failure = result if isinstance(result, Failure) else None
        if_not_written = (
            f". Model {name} is loaded with these options until it is unloaded; later loads do not use them. "
            "Let the server write into its state directory, which `lemonbus config` shows, and load the model again"
        )
        if failure is None:
            try:
                if call.save_options:
                    self._models.options.save(name, options)
                if call.set_default:
                    entry = self._models.known(name)
                    self._models.user_aliases.set_default(entry.short_name if entry is not None else call.model)
            except LemonbusError as problem:
                failure = structs.replace(problem.failure, message=f"{problem.failure.message}{if_not_written}")
        if failure is not None:
            self._calls.reply(peer, call.number, failure)
        elif isinstance(result, Loaded):
            self._calls.answer_when_written(peer, call.number, result, if_not_written)

    def _unload(self, peer: str, call: UnloadModel, _payload: bytes) -> None:
        """Unload one model, or all; answered when they are unloaded."""
        if call.model:
            known = self._models.find(call.model)
            name = known.name if known else call.model  # a model whose files were removed may still be loaded
            if not self._scheduler.unload_requested(peer, call.number, name):
                raise _not_loaded(call.model, known)
            return
        names = [model.name for model in self._scheduler.view.models() if model.unloadable]
        self._internal_calls.unload(names, partial(self._calls.answer, peer, call.number, names))

    def _pin(self, peer: str, call: PinModel, _payload: bytes) -> None:
        """Pin or unpin a loaded model; answered when its worker remembers this for another supervisor."""
        known = self._models.find(call.model)
        name = known.name if known else call.model
        asked = PolicyOverrides(pinned=call.pinned)
        if not self._scheduler.overrides_requested(peer, call.number, name, asked):
            raise _not_loaded(call.model, known)
        log.info("model pinned" if call.pinned else "model unpinned", model=name)


def guess_recipe(checkpoint: str, device: str) -> str:
    """Return the recipe for an unregistered checkpoint, guessed from its name."""
    hinted = [each for each in DESCRIPTORS.values() if each.name_hint and each.name_hint in checkpoint.lower()]
    for word in (device.lower(), HYBRID):
        for descriptor in hinted:
            if word in descriptor.hint_devices:
                return descriptor.recipe
    return DEFAULT_RECIPE


def device_option(descriptor: RecipeDescriptor, device: str, options: dict[str, OptionValue]) -> dict[str, OptionValue]:
    """If a backend must be chosen for the requested device, return the option that does so.

    Raises ``invalid_request`` if no backend of the recipe does.
    """
    option = f"{descriptor.recipe}_backend"
    if device.lower() in ("", HYBRID) or option in options:
        return {}
    wanted = devices_for_name(device)
    fitting = [each for each in descriptor.backends if not wanted.isdisjoint(each.devices)]
    if not fitting:
        raise invalid(f"recipe {descriptor.recipe} does not run on {device}", "device")
    on_cpu = Device.CPU in descriptor.backends[0].devices
    if (Device.CPU in wanted and on_cpu) or descriptor.option(option) is None:
        return {}  # the default backend runs there
    return {option: fitting[0].name}


def _not_loaded(name: str, known: CatalogueEntry | None) -> LemonbusError:
    if known is None:
        return Failure(Code.MODEL_NOT_FOUND, f"Model not found: {name}", model=name).raised()
    return Failure(Code.NOT_LOADED, f"Model not loaded: {known.name}", model=known.name).raised()
