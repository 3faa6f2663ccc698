"""The texts of the tiny models, word by word, and the chat templates by which llama.cpp recognizes the models."""

from __future__ import annotations

import re

SPACE = "\u2581"
"""How a SentencePiece vocabulary writes a blank."""


def words(text: str) -> list[str]:
    """Return the pieces of a text: every word carries the blank before it."""
    return [SPACE + word for word in text.split()]


CHAT_WORDS = words("Once a very small model knew one short story by heart and told it to all who came in .")
TALE_WORDS = words(
    "Far away in another file lives a second model whose tale no listener could ever confuse with the first ."
)
TOOL_CALL_WORDS = ["<tool_call>", '\n{"name":', f'{SPACE}"get_weather",', f'{SPACE}"arguments":']
TOOL_CALL_WORDS += [f'{SPACE}{{"city":', f'{SPACE}"Paris"}}}}\n', "</tool_call>"]
REASONING_WORDS = [
    "<think>",
    "\nThe user",
    *words("asks for a"),
    f"{SPACE}number.\n",
    "</think>",
    "\n\nForty",
    f"{SPACE}two.",
]
MARKERS = {"<tool_call>", "</tool_call>", "<think>", "</think>"}
"""Pieces that are always tokens of their own, whatever text is around them."""

PLAIN_TEMPLATE = """\
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\n' }}
{%- endif -%}
"""

TOOLS_TEMPLATE = """\
{%- if tools %}
{{- '<|im_start|>system\n# Tools\n<tools>' }}
{%- for tool in tools %}{{- '\n' + tool | tojson }}{%- endfor %}
{{- '\n</tools>\nAnswer a call as\n<tool_call>\n{"name": <name>, "arguments": <object>}\n</tool_call><|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}
{{- '<|im_start|>user\n<tool_response>\n' + message.content + '\n</tool_response><|im_end|>\n' }}
{%- elif message.role == 'assistant' %}
{{- '<|im_start|>assistant\n' }}
{%- if message.reasoning_content %}{{- '<think>\n' + message.reasoning_content + '\n</think>\n\n' }}{%- endif %}
{{- message.content or '' }}
{%- for call in message.tool_calls or [] %}
{%- if message.content or not loop.first %}{{- '\n' }}{%- endif %}
{%- set function = call.function or call %}
{{- '<tool_call>\n{"name": "' + function.name + '", "arguments": ' }}
{{- function.arguments if function.arguments is string else function.arguments | tojson }}
{{- '}\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\n' }}
{%- else %}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}
"""

CALL_MARK = "<|call|>"
"""Ends a prompt that asks for a call."""
_BEGIN_ANSWER = "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}\n"
ONE_CALL_TEMPLATE = (
    # Without thoughts: otherwise a grammar would allow them, and this model could not end them.
    re.sub(r"(?s)\{%- if message.reasoning_content %}.*?endif %}\n", "", TOOLS_TEMPLATE).removesuffix(_BEGIN_ANSWER)
    + """\
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\n' }}
{%- if tools and tools | length == 1 and messages[-1].role != 'tool' %}{{- '<|call|>' }}{%- endif %}
{%- endif %}
"""
)
"""Of a model that calls a tool if it is the only one, and then answers."""
