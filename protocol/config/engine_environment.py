"""Which environment variables the configuration may give to an engine: none that loads code into it or holds a key.

Pure.

``PATH`` is allowed: engines get none by default, and an operator's wrapper script may need it.
"""

from __future__ import annotations

from typing import Final

REFUSED_PREFIXES: Final = ("LD_", "DYLD_", "PYTHON", "BASH_FUNC_", "LEMONBUS_", "LEMONADE_")
"""Variables of the dynamic linker, of Python, of shells, and of lemonbus, which sets its own."""
REFUSED_NAMES: Final = frozenset(
    {
        *("IFS", "ENV", "BASH_ENV", "SHELLOPTS", "BASHOPTS", "PS4", "PROMPT_COMMAND"),
        *("GCONV_PATH", "LOCPATH", "NLSPATH", "GLIBC_TUNABLES", "MALLOC_CHECK_", "MALLOC_TRACE", "RES_OPTIONS"),
        *("PERL5LIB", "PERL5OPT", "PERLLIB", "RUBYLIB", "RUBYOPT", "NODE_OPTIONS", "NODE_PATH", "JAVA_TOOL_OPTIONS"),
        *("OPENSSL_CONF", "OPENSSL_ENGINES", "OPENSSL_MODULES", "GIO_MODULE_DIR", "GTK_MODULES", "QT_PLUGIN_PATH"),
        *("CUDA_INJECTION64_PATH", "NVTX_INJECTION32_PATH", "NVTX_INJECTION64_PATH", "HSA_TOOLS_LIB", "OPENCL_LAYERS"),
        *("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"),
    }
)
"""Variables that make a program load or run something, and keys that no engine needs."""


def refusal(name: str) -> str:
    """Return why an engine may not get a variable; empty if it may."""
    upper = name.upper()
    if upper in REFUSED_NAMES or upper.startswith(REFUSED_PREFIXES):
        return f"{name} is not given to an engine: it can make a program load other code, or is lemonbus's own"
    return ""
