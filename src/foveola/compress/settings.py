"""Tables of a recipe as frozen dataclasses: nothing malformed is replaced by a default, nothing unknown ignored."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from foveola.exchange import Invalid

T = TypeVar("T")


def build(kind: type[T], table: Mapping[str, Any], where: str) -> T:
    """``kind`` with the values of ``table``. ``where`` names the table in messages, as in "step 2 (awq)".

    Fields may be bool, int, float, str, Literal, ``X | None``, ``tuple[X, ...]``, ``Mapping[str, X]`` and dataclasses
    of such. Raises ``Invalid`` for an unknown key, a missing one, a wrong type, and for what the dataclass refuses.
    """
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind) if field.init}  # type: ignore[arg-type]
    for key in table:
        if key not in fields:
            raise Invalid(f"{where} has no setting {key!r}; there are: {', '.join(fields)}.", field=str(key))
    missing = [
        name
        for name, field in fields.items()
        if name not in table and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise Invalid(f"{where} lacks {', '.join(missing)}; add it to the recipe.", field=missing[0])
    values = {key: _value(value, hints[key], f"{key} of {where}", key) for key, value in table.items()}
    try:
        return kind(**values)
    except ValueError as error:
        raise Invalid(f"{where}: {error}.") from None


def _value(value: Any, wanted: Any, where: str, key: str) -> Any:
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (types.UnionType, typing.Union):
        return _one_of(value, [a for a in arguments if a is not types.NoneType], where, key)
    if origin is Literal:
        if value in arguments and type(value) in {type(a) for a in arguments}:
            return value
        raise Invalid(f"{where} is {value!r}; expected {' or '.join(map(repr, arguments))}.", field=key)
    if origin is tuple and isinstance(value, (list, tuple)):
        return tuple(_value(one, arguments[0], where, key) for one in value)
    if origin is not None and issubclass(origin, Mapping) and isinstance(value, Mapping):
        return {str(name): _value(one, arguments[1], where, key) for name, one in value.items()}
    if dataclasses.is_dataclass(wanted):
        if isinstance(value, Mapping):
            return build(typing.cast(type, wanted), value, where)
        if isinstance(value, typing.cast(type, wanted)):
            return value
    if wanted is float and type(value) is int:
        return float(value)
    if wanted is float and type(value) is float and not math.isfinite(value):
        raise Invalid(f"{where} is {value}; expected a finite number.", field=key)
    if origin is None and type(value) is wanted:
        return value
    raise Invalid(f"{where} is {value!r}; expected {_words(wanted)}.", field=key)


def _one_of(value: Any, options: list[Any], where: str, key: str) -> Any:
    if value is None:
        return None
    if isinstance(value, Mapping):  # only one of them can be meant: what is wrong with it shall be told
        options = [option for option in options if dataclasses.is_dataclass(option)] or options
    for option in options[:-1]:
        try:
            return _value(value, option, where, key)
        except Invalid:
            continue
    return _value(value, options[-1], where, key)


def _words(wanted: Any) -> str:
    plain = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    if wanted in plain:
        return plain[wanted]
    if typing.get_origin(wanted) is tuple:
        return f"a list, each {_words(typing.get_args(wanted)[0])}"
    return "a table"
