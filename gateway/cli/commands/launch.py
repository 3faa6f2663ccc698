"""``lemonbus launch``: starts a coding agent of another maker with a model of the server."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

import click
from msgspec import UNSET

from gateway.api.lemonade.load import LemonadeLoadRequest, load_model
from gateway.api.openai.models import ModelId, ModelObject, ModelsQuery, list_models, show_model
from gateway.cli import output
from gateway.cli.api_client import ApiClient
from gateway.cli.coding_agents import AGENTS, AgentStart, CodingAgent, Endpoint, agent_start
from gateway.cli.exit_codes import CommandError
from gateway.cli.options import complete_model, json_option, server_option
from gateway.cli.progress import ensure_downloaded
from protocol.models.recipes import ModelType

_CONTEXT: Final = "ctx_size"


@click.command("launch", short_help="Start a coding agent with a model of the server.")
@click.argument("name", metavar="|".join(AGENTS), type=click.Choice(list(AGENTS)))
@click.argument("arguments", metavar="[-- ARGUMENTS...]", nargs=-1, type=click.UNPROCESSED)
@click.option("--model", "-m", default="", shell_complete=complete_model, help="Without it: the only one there is.")
@click.option(
    "--context", type=click.IntRange(min=1), metavar="TOKENS", help="Load the model with at least this context first."
)
@click.option("--force", is_flag=True, help="Start it even if the context of the model is too small for it.")
@click.option("--print", "only_print", is_flag=True, help="Print the command, with its environment; start nothing.")
@json_option("the command and its environment, and start nothing")
@server_option
def command(
    name: str,
    arguments: tuple[str, ...],
    model: str,
    context: int | None,
    force: bool,
    only_print: bool,
    as_json: bool,
    server: ApiClient,
) -> None:
    """Start a coding agent that is installed on this machine, with MODEL of the server.

    It gets the address, a key, the model and its context by environment and command line. Nothing is written: started
    without lemonbus, it is as it was. What follows -- is passed on to it:

    \b
    lemonbus launch claude --model Qwen3-Coder-30B-A3B-Instruct-GGUF
    lemonbus launch codex --context 65536 -- exec "Explain this repository."
    """  # noqa: D301 - the escape is click's mark for lines that stay as they are
    agent = AGENTS[name]
    shown_only = only_print or as_json
    program = shutil.which(agent.program)
    if program is None and not shown_only:
        raise CommandError(f"{agent.program} is not installed. To install it: {agent.install}")
    known = _model(server, model)
    tokens = _context(server, known, context, load=not shown_only)
    if not force:
        _check_context(name, agent, known, tokens)
    start = agent_start(agent, Endpoint(server.url, server.inference_key, known.id, tokens))
    line = [agent.program, *start.arguments, *arguments]
    if as_json:
        output.print_json(
            {
                "program": program,
                "install": agent.install,
                "command": line,
                "environment": start.environment,
                "removed": sorted(start.removed),
                "model": known.id,
                "context": tokens or None,
            }
        )
        return
    if only_print:
        click.echo(_as_shell(start, line))
        return
    if server.key_is_for_administrators:
        click.echo(
            f"lemonbus: {name} gets the key of an administrator, and runs what a model tells it to run."
            f" `lemonbus keys add {name} --scope inference` makes one that can only use models; set LEMONBUS_API_KEY to it.",
            err=True,
        )
    assert program is not None  # noqa: S101 - checked above
    sys.stdout.flush()
    os.execve(program, line, _inherited(start) | start.environment)  # noqa: S606 - a shell would add nothing


def _inherited(start: AgentStart) -> dict[str, str]:
    """Return the environment of this command without what is to be removed, and without what only our own processes may inherit."""
    variables = {name: value for name, value in os.environ.items() if name not in start.removed}
    packages = str(Path(__file__).parents[3])
    before = variables.pop("PYTHONPATH", "").split(os.pathsep)
    if packages in before:  # our launcher has set both
        variables.pop("PYTHONSAFEPATH", None)
    rest = os.pathsep.join(part for part in before if part not in ("", packages))
    return {**variables, "PYTHONPATH": rest} if rest else variables


def _as_shell(start: AgentStart, line: list[str]) -> str:
    """Return a command line for a shell that does the same."""
    unset = [word for variable in sorted(start.removed) for word in ("-u", variable)]
    variables = [f"{variable}={value}" for variable, value in start.environment.items()]
    return shlex.join(["env", *unset, *variables, *line])


def _model(server: ApiClient, name: str) -> ModelObject:
    """Return the model of this name; without one, the only language model that is loaded, or else downloaded."""
    if name:
        ensure_downloaded(server, name)
        found = server.ask(show_model, ModelId(name))
        if found.model_type not in (ModelType.LLM, UNSET):
            raise CommandError(f"{found.id} does not chat: its type is {found.model_type}")
        return found
    listed = server.ask(list_models, ModelsQuery(show_all=True)).data
    chatting = [model for model in listed if model.downloaded and model.model_type == ModelType.LLM]
    for candidates in ([model for model in chatting if model.loaded], chatting):
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            names = ", ".join(model.id for model in candidates)
            raise click.UsageError(f"Name one of the models with --model: {output.plain(names)}.")
    raise CommandError("no language model is downloaded; `lemonbus list --all` shows what can be pulled")


def _context(server: ApiClient, model: ModelObject, wanted: int | None, *, load: bool) -> int:
    """Return the context tokens of each request, 0 if they are unknown.

    ``wanted``: load the model with this number first, if it has fewer; without ``load``, only find out whether that is possible.
    """
    length = model.context_length
    present = 0 if length is UNSET else length
    if present and model.max_context_window is not UNSET:
        present = min(present, model.max_context_window)
    if present and (wanted is None or wanted <= present):
        return present
    options = {_CONTEXT: wanted} if wanted is not None else {}
    plan = server.ask(load_model, LemonadeLoadRequest(model_name=model.id, dry_run=True), None, options).plan
    if wanted is None:
        return plan.context if plan is not None else 0
    if plan is not None and plan.refusal is not None:
        raise CommandError(f"{model.id} cannot be loaded with a context of {wanted} tokens: {plan.refusal.message}")
    if not load:
        return plan.context if plan is not None else 0
    click.echo(f"Loading {output.plain(model.id)} with a context of {wanted} tokens.", err=True)
    return server.ask(load_model, LemonadeLoadRequest(model_name=model.id), None, options).context


def _check_context(name: str, agent: CodingAgent, model: ModelObject, tokens: int) -> None:
    """Raise ``CommandError`` if the agent's own prompt would fill it."""
    if not tokens or tokens >= agent.least_context:
        return
    trained = model.max_context_window
    if trained is not UNSET and trained < agent.least_context:
        advice = f"the model was trained for {trained} tokens: choose another"
    else:
        advice = f"`--context {agent.least_context}` loads the model with more"
    raise CommandError(
        f"{model.id} has a context of {tokens} tokens, and {name} needs {agent.least_context}:"
        f" {advice}, or start it anyway with --force"
    )
