"""Treats null fields as absent: removes them from a request's JSON, before it is checked and before an engine gets it.

Pure.

Clients write null where they have nothing to say, and engines refuse it as a wrong type. The declared type of a body
says where null means absent: for all fields, declared or not, of an object that is a struct, and below a type with
:data:`NULL_IS_ABSENT`. Other objects are data, in which null is a value: JSON schemas, arguments of tools, variables of
templates. The same holds for a field with :data:`NULL_IS_A_VALUE`, and for one that may be null and may be unset.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import Meta, inspect

NULL_IS_ABSENT: Final = Meta(extra={"null": "absent"})
"""Marks the type of an object without declared fields that an engine reads: none of its fields, however deep, is passed on as null."""
NULL_IS_A_VALUE: Final = Meta(extra={"null": "value"})
"""Marks a field of a struct that may be null."""

_Cleaner = Callable[[Any], Any]
"""Returns a value without null fields."""
_NULL: Final = b"null"
_has_null: Final = re.compile(_NULL).search
"""Half the time of ``in``, for large bodies."""
_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def without_null_fields(data: bytes, cls: type) -> bytes:
    """Return the JSON object in ``data`` without its absent fields. All others keep their bytes.

    Invalid JSON is returned unchanged.
    """
    fields = _fields_of(cls) if _has_null(data) else None
    try:
        return data if fields is None else _cleaned(data, fields)
    except msgspec.DecodeError:
        return data


def _cleaned(data: bytes, fields: _Fields) -> bytes:
    kept: dict[str, msgspec.Raw] = {}
    for name, raw in _object(data).items():
        value = bytes(raw)
        if value == _NULL and fields.null_is_absent(name):
            continue
        clean = fields.cleaners.get(name)
        if clean is not None and _NULL in value:
            kept[name] = msgspec.Raw(msgspec.json.encode(clean(msgspec.json.decode(value))))
        else:
            kept[name] = raw
    return msgspec.json.encode(kept)


def without_nulls(value: Mapping[str, Any], cls: type) -> Mapping[str, Any]:
    """Return a decoded object without its absent fields."""
    fields = _fields_of(cls)
    return value if fields is None else fields.clean(value)


class _Fields:
    """Where null means absent in the objects of one struct."""

    def __init__(self) -> None:
        self.cleaners: dict[str, _Cleaner] = {}
        """Field → what removes the null fields of its objects."""
        self.nullable: set[str] = set()
        self.known: set[str] | None = None
        """The fields, if no other one is allowed."""

    def null_is_absent(self, name: str) -> bool:
        """Return whether a field that is null is absent. An unknown one stays where it is an error: it may be a mistyped one."""
        return name not in self.nullable and (self.known is None or name in self.known)

    def clean(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        kept = {}
        for name, each in value.items():
            if each is not None:
                cleaner = self.cleaners.get(name)
                kept[name] = each if cleaner is None else cleaner(each)
            elif not self.null_is_absent(name):
                kept[name] = None
        return kept


@lru_cache(maxsize=128)
def _fields_of(cls: type) -> _Fields | None:
    info = inspect.type_info(cls)
    return _struct_fields(info, {}) if isinstance(info, inspect.StructType) else None


def _struct_fields(info: inspect.StructType, known: dict[type, _Fields]) -> _Fields:
    """Return the fields of a struct. ``known``: the structs around it, which may also appear inside it."""
    if info.cls in known:
        return known[info.cls]
    fields = known[info.cls] = _Fields()
    if info.forbid_unknown_fields:
        fields.known = {field.encode_name for field in info.fields}
    for field in info.fields:
        if _marked(field.type) == "value" or _may_be_unset_or_null(field):
            fields.nullable.add(field.encode_name)
        cleaner = _cleaner(field.type, known)
        if cleaner is not None:
            fields.cleaners[field.encode_name] = cleaner
    return fields


def _may_be_unset_or_null(field: inspect.Field) -> bool:
    has_value = field.required or field.default != msgspec.NODEFAULT or field.default_factory != msgspec.NODEFAULT
    return not has_value and isinstance(field.type, inspect.UnionType) and field.type.includes_none


def _marked(info: inspect.Type) -> str:
    return (info.extra or {}).get("null", "") if isinstance(info, inspect.Metadata) else ""


def _cleaner(info: inspect.Type, known: dict[type, _Fields]) -> _Cleaner | None:
    """Return what removes the null fields in values of a type; None if there can be none."""
    match info:
        case inspect.Metadata():
            return _clean_all if _marked(info) == "absent" else _cleaner(info.type, known)
        case inspect.StructType():
            return _struct_fields(info, known).clean
        case inspect.ListType():
            return _in_lists(_cleaner(info.item_type, known))
        case inspect.UnionType():
            return _in_union(info, known)
    return None


def _clean_all(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _clean_all(each) for name, each in value.items() if each is not None}
    return [_clean_all(each) for each in value] if isinstance(value, list) else value


def _in_lists(clean: _Cleaner | None) -> _Cleaner | None:
    if clean is None:
        return None
    return lambda value: [clean(each) for each in value] if isinstance(value, list) else value


def _in_union(info: inspect.UnionType, known: dict[type, _Fields]) -> _Cleaner | None:
    """Return a cleaner for whatever type of a union a value has. Several structs differ in their tags."""
    structs = {each.tag: each for each in info.types if isinstance(each, inspect.StructType)}
    others = [_cleaner(each, known) for each in info.types if not isinstance(each, inspect.StructType)]
    cleaners = [each for each in others if each is not None]
    if len(structs) == 1:
        cleaners += [_struct_fields(each, known).clean for each in structs.values()]
    elif structs:
        cleaners.append(_by_tag({tag: _struct_fields(each, known).clean for tag, each in structs.items()}, structs))
    if not cleaners:
        return None

    def clean(value: Any) -> Any:
        for each in cleaners:
            value = each(value)
        return value

    return clean


def _by_tag(cleaners: Mapping[Any, _Cleaner], structs: Mapping[Any, inspect.StructType]) -> _Cleaner:
    name = next(iter(structs.values())).tag_field or ""

    def clean(value: Any) -> Any:
        tag = value.get(name) if isinstance(value, dict) else None
        found = cleaners.get(tag) if isinstance(tag, str) else None
        return value if found is None else found(value)

    return clean
