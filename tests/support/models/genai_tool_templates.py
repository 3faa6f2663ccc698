"""Chat templates with tools, like those of common families of models, each with the typical demands of its family."""

from __future__ import annotations

MISTRAL = """\
{%- for message in messages %}
{%- if message.role == 'user' %}
{%- if tools and loop.last %}{{- '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{%- endif %}
{{- '[INST]' + message.content + '[/INST]' }}
{%- elif message.tool_calls is defined %}
{%- for call in message.tool_calls %}
{%- if call.id | length != 9 %}{{- raise_exception('ids of tool calls have 9 characters') }}{%- endif %}
{{- '[TOOL_CALLS][{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) }}
{{- ', "id": "' + call.id + '"}]' }}
{%- endfor %}
{%- elif message.role == 'tool' %}
{%- if message.tool_call_id | length != 9 %}{{- raise_exception('ids of tool calls have 9 characters') }}{%- endif %}
{{- '[TOOL_RESULTS]' + message.content + '[/TOOL_RESULTS]' }}
{%- else %}
{{- message.content }}
{%- endif %}
{%- endfor %}
"""
"""Calls have ids of nine characters, and arguments are objects."""

PHI_4_MINI = """\
{%- for message in messages %}
{{- '<|' + message.role + '|>' + message.content }}
{%- if message.role == 'system' and 'tools' in message %}{{- '<|tool|>' + message.tools + '<|/tool|>' }}{%- endif %}
{{- '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- endif %}
"""
"""The tools are at the end of the system message; past calls are not written at all."""

LLAMA_3 = """\
{%- if custom_tools is defined %}{%- set tools = custom_tools %}{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- if tools is not none %}
{{- 'Environment: ipython\\n' }}
{%- for t in tools %}{{- (t | tojson) + '\\n' }}{%- endfor %}
{%- endif %}
{%- for message in messages %}
{{- '<|' + message.role + '|>' }}
{%- if message.tool_calls is defined %}
{%- if message.tool_calls | length != 1 %}{{- raise_exception('one call at a time') }}{%- endif %}
{%- set call = message.tool_calls[0].function %}
{{- '{"name": "' + call.name + '", "parameters": ' + (call.arguments | tojson) + '}' }}
{%- else %}
{{- message.content }}
{%- endif %}
{%- endfor %}
"""
"""A message has one call, and the library simplifies ``tools`` here."""
