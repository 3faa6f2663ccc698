"""The forms in which families of models write tool calls, told apart by their chat templates. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple


class ToolCallFormat(NamedTuple):
    """How a model writes calls. Each call is a JSON object with a name and arguments."""

    name: str
    openers: tuple[str, ...]
    """Texts that announce calls. The model is made to write the first one."""
    closer: str = ""
    """The text after the calls that an opener announced; empty if there is none."""
    listed: bool = False
    """Whether an opener announces a JSON list of calls, not a single call."""
    bare: bool = False
    """Whether a message may also be a call without an opener."""
    arguments_key: str = "arguments"
    system_tools_frame: tuple[str, str] | None = None
    """What is before and after the tools at the end of the system message, if the model reads them there: functions
    without OpenAI's frame. They are written into its text, because for a field ``tools`` the library would change
    quotes in the whole prompt."""
    id_length: int = 0
    """How many letters and digits a call's id must have for the template; 0: any number."""

    @property
    def markers(self) -> tuple[str, ...]:
        """All texts that may be special tokens, which a tokenizer does not show."""
        return (*self.openers, self.closer) if self.closer else self.openers


HERMES: Final = ToolCallFormat("hermes", ("<tool_call>",), "</tool_call>")
"""Hermes, Qwen 2.5 and Qwen 3."""
MISTRAL: Final = ToolCallFormat("mistral", ("[TOOL_CALLS]",), listed=True, id_length=9)
PHI_4_MINI: Final = ToolCallFormat(
    "phi-4-mini",
    ("<|tool_call|>", "functools"),
    "<|/tool_call|>",
    listed=True,
    system_tools_frame=("<|tool|>", "<|/tool|>"),
)
LLAMA_3: Final = ToolCallFormat("llama-3", ("<|python_tag|>",), bare=True, arguments_key="parameters")
FORMATS: Final = (HERMES, MISTRAL, PHI_4_MINI, LLAMA_3)

_MARKS: Final = (
    ("<tool_call>", HERMES),
    ("[TOOL_CALLS]", MISTRAL),
    ("<|tool_call|>", PHI_4_MINI),
    ("<|tool|>", PHI_4_MINI),
    ("<|python_tag|>", LLAMA_3),
    ("Environment: ipython", LLAMA_3),
    ('{"name": function name, "parameters":', LLAMA_3),
)
"""A part of a template → the format of its family."""
_OTHER_FAMILIES: Final = ("<function=", "<arg_key>")
"""Parts of templates whose calls are not JSON, although their markers are the same."""


def format_of_template(template: str) -> ToolCallFormat | None:
    """Return the format of calls for this chat template; None if it takes no tools, or writes them in another way."""
    if "tools" not in template or any(part in template for part in _OTHER_FAMILIES):
        return None
    return next((form for mark, form in _MARKS if mark in template), None)
