"""What each setting is called and what it may be, read off the one type ``Settings``.

Flags, environment variables, the TOML file and ``lemonbus config`` are all made from this table. What a setting is for
is in the docstrings below the fields.
"""

from __future__ import annotations

import ipaddress
import re
from functools import cache
from types import NoneType
from typing import Any, Final, NamedTuple, get_args

import msgspec
from msgspec.inspect import BoolType, FloatType, IntType, ListType, LiteralType, StrType, Type, type_info

from protocol.config.settings import KEY_DIGEST, SECTIONS, Bytes, BytesOrNone, Settings
from protocol.models.recipes import AUTOMATIC
from protocol.wire.bus_address import is_unspecified, port_range, split_address

SECRET_SETTINGS: Final = frozenset({"api_key", "admin_api_key"})
"""Never shown, and without flags, because every user of the machine can read command lines."""

_NETWORKS: Final = ("trusted_proxies", "fetch_images_networks")
_EXPECTED: Final = {
    "allowed_hosts": "a list of names of hosts, without ports",
    "cluster_address": "HOST:PORT of this machine, with an address or a name that other machines can reach",
    "cors_origins": "a list of origins such as https://chat.example.org, without a path, or *",
    "host": "an IP address or a host name",
    **dict.fromkeys(_NETWORKS, "a list of addresses or networks such as 10.0.0.0/8"),
    "engine_file_dirs": "a list of absolute directories",
    "backend_releases": "a list of RECIPE:BACKEND@VERSION=URL#sha256=DIGEST",
    "worker_ports": "FIRST-LAST, two ports above 1023, or empty",
    "release_mirror": "an http or https address",
}
"""Setting → its allowed values in words, where the rule in its type is too long to read."""
_PREFIX: Final = "LEMONBUS_"
_TRUE_WORDS: Final = frozenset({"1", "true", "yes", "on"})
_FALSE_WORDS: Final = frozenset({"0", "false", "no", "off"})
_HOST_NAME: Final = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")
_UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


class SettingField(NamedTuple):
    """One setting."""

    name: str
    type: Type
    annotation: Any

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return _PREFIX + self.name.upper()

    @property
    def flag(self) -> str:
        """Its flag of ``lemonbus serve``."""
        return "--" + self.name.replace("_", "-")

    @property
    def is_list(self) -> bool:
        """Whether it is a list: a repeatable flag, commas in the environment."""
        return isinstance(self.type, ListType)

    @property
    def is_switch(self) -> bool:
        """Whether it is on or off."""
        return isinstance(self.type, BoolType)

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory; a relative one is resolved where it was written."""
        return self.name.endswith("_dir")

    @property
    def unit(self) -> str:
        """``seconds``, ``bytes``, or empty."""
        if isinstance(self.type, FloatType):
            return "seconds"
        return "bytes" if self.annotation in (Bytes, BytesOrNone) else ""

    @property
    def choices(self) -> list[str]:
        """The words it may be, in the order of their declaration; empty for any other kind of setting."""
        return list(self.annotation.__args__) if isinstance(self.type, LiteralType) else []

    @property
    def may_be_automatic(self) -> bool:
        """Whether it is a number that lemonbus chooses if it is -1, so that it may also be :data:`AUTOMATIC`."""
        return isinstance(self.type, IntType) and self.type.ge == -1

    @property
    def expected(self) -> str:
        """Its allowed values, in words."""
        if self.name in _EXPECTED:
            return _EXPECTED[self.name]
        if self.choices:
            return "one of " + ", ".join(self.choices)
        match self.type:
            case BoolType():
                return "true or false"
            case ListType():
                return "a list of texts without control characters"
            case IntType() as whole:
                return "a whole number" + _bounds(whole) + (f', or "{AUTOMATIC}"' if self.may_be_automatic else "")
            case FloatType() as number:
                return "a number" + _bounds(number)
            case StrType(pattern=str()):
                return "printable ASCII characters, without spaces"
            case StrType(min_length=int()):
                return "a non-empty text without control characters"
            case _:
                return "a text without control characters"

    def parse_text(self, text: str) -> Any:
        """Return the value of the text of a flag or an environment variable; raises ValueError."""
        match self.type:
            case BoolType():
                if text.lower() not in _TRUE_WORDS | _FALSE_WORDS:
                    raise ValueError(text)
                return self.checked(text.lower() in _TRUE_WORDS)
            case IntType():
                return self.checked(int(text) if re.fullmatch(r"[+-]?[0-9]{1,19}", text) else text)
            case FloatType():
                return self.checked(float(text))
            case ListType():
                return self.checked([part.strip() for part in text.split(",") if part.strip()])
            case _:
                return self.checked(text)

    def checked(self, value: object) -> Any:
        """Return the value as its type; raises ValueError if it has another type or is out of bounds."""
        given = -1 if self.may_be_automatic and value == AUTOMATIC else value
        good: Any = msgspec.convert(given, self.annotation)
        for text in good if isinstance(good, list) else [good]:
            if isinstance(text, str) and _UNPRINTABLE.search(text):
                raise ValueError("a control character or broken UTF-8")
        if self.name in SECRET_SETTINGS and good.startswith(KEY_DIGEST):
            raise ValueError("the digest of a key, which only processes of other nodes get")
        if self.name in _NETWORKS:
            for network in good:
                ipaddress.ip_network(network)
        if self.name == "host" and not _is_host(good):
            raise ValueError("neither an address nor a name")
        if self.name == "cluster_address" and good:
            host, _ = split_address(good)
            if not _is_host(host) or is_unspecified(host):
                raise ValueError("not an address or a name that other machines can reach")
        if self.name == "worker_ports":
            port_range(good)
        return good


def shown_value(given: object) -> str:
    """Return a wrong value as messages show it: on one line, and cut if it is long."""
    try:
        text = str(given).lower() if isinstance(given, bool) else repr(given)
    except (ValueError, RecursionError):
        text = f"a huge {type(given).__name__}"
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= 80 else text[:77] + "..."


def _is_host(text: str) -> bool:
    """Return whether this may be an address or a host name. A text that ends in digits must be a complete address."""
    try:
        return bool(ipaddress.ip_address(text))
    except ValueError:
        return bool(_HOST_NAME.fullmatch(text)) and not text.rstrip(".").rpartition(".")[2].isdigit()


def _bounds(number: IntType | FloatType) -> str:
    above = f" above {number.gt:g}" if number.gt is not None else ""
    least = f" from {number.ge:g}" if number.ge is not None else ""
    most = f"{' up' if least or above else ''} to {int(number.le)}" if number.le is not None else ""
    return above + least + most


@cache
def setting_fields() -> dict[str, SettingField]:
    """Return every setting except the sections by its name, in the order of declaration."""
    return {name: field for name, field in declared_fields(Settings).items() if name not in SECTIONS}


def declared_fields(kind: type[msgspec.Struct]) -> dict[str, SettingField]:
    """Return the fields of a type by their names, in the order of declaration, each as if it always had a value."""
    found = {}
    for field in msgspec.structs.fields(kind):
        hint = next((each for each in get_args(field.type) if each is not NoneType), field.type)
        annotation = hint if NoneType in get_args(field.type) else field.type
        found[field.name] = SettingField(field.name, type_info(annotation), annotation)
    return found
