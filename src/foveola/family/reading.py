"""A record's functions, guarded: whatever stands in a checkpoint's JSON files, a shape comes out, or a refusal."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

from foveola.exchange import Damaged
from foveola.family.base import Family

_WRONG = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError)
"""What reading a value of another kind ends in."""
_FILES: dict[str, tuple[str, ...]] = {
    "decoder_shape": ("config.json",),
    "tower_shape": ("config.json",),
    "vision_section": ("config.json", "preprocessor_config.json"),
    "text_section": ("config.json",),
    "token_ids": ("config.json", "generation_config.json"),
    "evidence_layer": ("config.json",),
    "prompt_section": ("config.json",),
}
_POSITIVE = (
    "hidden",
    "layers",
    "heads",
    "kv_heads",
    "head_dim",
    "vocabulary",
    "merge_size",
    "patch_size",
    "max_length",
)
_MOST = {"num_crops": 1024, "max_tiles": 1024, "max_tiles_each": 1024, "longest_edge": 2**16}
"""Of one picture. Where there are more, ways to cut it would be tried for hours."""


def guarded(family: Family) -> Family:
    """``family`` whose functions raise ``Damaged``, naming file and entry, instead of whatever Python raises."""
    functions: dict[str, Any] = {name: _guard(getattr(family, name), files) for name, files in _FILES.items()}
    return dataclasses.replace(family, **functions)


def _guard(function: Callable[..., Any], files: tuple[str, ...]) -> Callable[..., Any]:
    def read(*arguments: Any) -> Any:
        try:
            found = function(*arguments)
        except _WRONG:
            raise Damaged(_blame(function, arguments, files)) from None
        _check_range(found, files[-1])
        return found

    return read


def _check_range(found: Any, file: str) -> None:
    numbers = found if isinstance(found, dict) else dict(_fields(found))
    for name in _POSITIVE:
        number = numbers.get(name)
        if isinstance(number, int) and number < 1:
            raise Damaged(
                f"config.json makes the model's {name} {number}; it must be 1 at least. Copy the checkpoint whole."
            )
    for name, most in _MOST.items():
        number = numbers.get(name)
        if isinstance(number, int) and number > most:
            shown = number if number < 10**18 else "a number of more than 18 digits"
            raise Damaged(f"{file} makes {name} {shown}; it must be {most} at most. Copy the checkpoint whole.")


def _fields(found: Any) -> list[tuple[str, Any]]:
    if not dataclasses.is_dataclass(found):
        return []
    return [(field.name, getattr(found, field.name)) for field in dataclasses.fields(found)]


def _blame(function: Callable[..., Any], arguments: tuple[Any, ...], files: tuple[str, ...]) -> str:
    """Read once more, noting every entry: the one that was read last is wrong, or holds or belongs to what is."""
    seen: list[tuple[str, Any]] = []
    watched = [
        _Watched(argument, f"{files[index]}: ", seen) if isinstance(argument, dict) and index < len(files) else argument
        for index, argument in enumerate(arguments)
    ]
    with contextlib.suppress(*_WRONG):
        function(*watched)
    if not seen:
        return f"{files[0]} is not what a checkpoint of this family has. Copy the checkpoint whole."
    where, value = seen[-1]
    shown = repr(value)
    return (
        f"{where} is {shown[:60]}{'…' * (len(shown) > 60)}: that, or an entry beside or inside it, is not what this "
        "family has. Copy the checkpoint whole."
    )


class _Watched(dict[str, Any]):
    """A JSON object that notes which of its entries are read, those of objects inside, too."""

    def __init__(self, content: dict[str, Any], path: str, seen: list[tuple[str, Any]]) -> None:
        super().__init__(content)
        self._path, self._seen = path, seen

    def _noted(self, key: str, value: Any) -> Any:
        self._seen.append((f"{self._path}{key}", value))
        return _Watched(value, f"{self._path}{key}.", self._seen) if isinstance(value, dict) else value

    def __getitem__(self, key: str) -> Any:
        return self._noted(key, super().__getitem__(key))

    def get(self, key: str, default: Any = None) -> Any:
        """As ``dict.get``, noted."""
        return self._noted(key, super().get(key, default))
