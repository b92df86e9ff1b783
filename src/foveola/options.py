"""Settings, resolved once: the file ``foveola.toml``, then the environment ``FOVEOLA_*``, then flags; later wins.

A room describes its settings as a frozen dataclass whose fields have defaults; ``resolve`` fills one. A value of
the wrong type, a value that the dataclass refuses (``ValueError`` from ``__post_init__``) and a name that does
not exist are errors that say where they came from: nothing malformed is ever replaced by a default in silence.
"""

from __future__ import annotations

import dataclasses
import tomllib
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar

FILE = "foveola.toml"
SECTIONS = ("serve", "engine", "dual", "guard", "drift", "traces", "bridge", "stream", "seal", "operator")
"""The tables that there are, over all rooms: whatever reads the file knows the others' names."""

T = TypeVar("T")


class BadSetting(Exception):
    """A setting that cannot be used; the message names its source, what came and what was expected."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Given:
    value: object
    source: str  # as a person would look for it: "FOVEOLA_SERVE_PORT in the environment"


def resolve(
    kind: type[T],
    section: str,
    *,
    file: Path | None = None,
    environ: Mapping[str, str],
    flags: Mapping[str, object] | None = None,
) -> T:
    """Build ``kind`` from the table ``[section]`` of ``file``, ``FOVEOLA_<SECTION>_<FIELD>`` and ``flags``.

    ``file`` None means ``foveola.toml`` of the working directory if there is one; a file that is named must exist.
    Flags that are None were not given. Raises ``BadSetting``.
    """
    types = _types(kind)
    given: dict[str, _Given] = {}
    for key, value in _table(file, section).items():
        given[key] = _Given(value, f"`{key}` in [{section}] of {(file or Path(FILE)).name}")
    prefix = f"FOVEOLA_{section.upper()}_"
    for variable, text in environ.items():
        if variable.startswith(prefix):
            given[variable[len(prefix) :].lower()] = _Given(text, f"{variable} in the environment")
    for key, value in (flags or {}).items():
        if value is not None:
            given[key] = _Given(value, f"--{key.replace('_', '-')}")

    values: dict[str, object] = {}
    for key, one in given.items():
        if key not in types:
            raise BadSetting(f"{one.source} is not a setting; there are: {', '.join(types)}.")
        values[key] = _converted(one, types[key])
    try:
        return kind(**values)
    except ValueError as error:
        culprit = next((given[key].source for key in given if f"`{key}`" in str(error)), None)
        raise BadSetting(f"{culprit}: {error}" if culprit else str(error)) from None


def _types(kind: type) -> dict[str, Any]:
    if not dataclasses.is_dataclass(kind):
        raise TypeError(f"{kind.__name__} is not a dataclass")
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind) if field.init}


def _table(file: Path | None, section: str) -> dict[str, object]:
    path = file or Path(FILE)
    if file is None and not path.is_file():
        return {}
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadSetting(f"The settings file {path.name} does not exist; name one that does.") from None
    except OSError as error:
        raise BadSetting(
            f"The settings file {path.name} cannot be read ({error.strerror}); name a file that can be."
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadSetting(f"The settings file {path.name} is not TOML: {error}.") from None
    _check_tables(document, path.name, (*SECTIONS, section))
    table = document.get(section, {})
    if not isinstance(table, dict):
        raise BadSetting(f"`{section}` in {path.name} must be a table: write [{section}] above its settings.")
    return table


def _check_tables(document: Mapping[str, object], file: str, known: Sequence[str]) -> None:
    """Nothing stands in the file that nobody would read. Raises ``BadSetting``."""
    for name, value in document.items():
        if name in known:
            continue
        listed = ", ".join(f"[{one}]" for one in dict.fromkeys(known))
        if isinstance(value, dict):
            raise BadSetting(f"[{name}] in {file} is not a table of settings; there are: {listed}.")
        raise BadSetting(f"`{name}` in {file} stands outside of a table; write it below one of {listed}.")


def _converted(given: _Given, wanted: Any) -> object:
    """The value as ``wanted`` (bool, int, float, str, Path, or one of them | None); text is parsed, nothing else is."""
    options = typing.get_args(wanted) if isinstance(wanted, UnionType) else (wanted,)
    kind = next(option for option in options if option is not NoneType)
    value = given.value
    if value is None and NoneType in options:
        return None
    if isinstance(value, str):
        return _parsed(value, kind, given.source)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is kind or (kind is Path and isinstance(value, Path)):
        return value
    raise BadSetting(f"{given.source} is {value!r}; expected {_words(kind)}.")


def _parsed(text: str, kind: Any, source: str) -> object:
    if kind is bool:
        words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
        if text.strip().lower() not in words:
            raise BadSetting(f"{source} is {text!r}; expected true or false.")
        return words[text.strip().lower()]
    if kind is Path and not text:
        raise BadSetting(f"{source} is empty; expected {_words(kind)}.")
    try:
        return kind(text)
    except ValueError:
        raise BadSetting(f"{source} is {text!r}; expected {_words(kind)}.") from None


def _words(kind: Any) -> str:
    return {bool: "true or false", int: "a whole number", float: "a number", str: "text", Path: "a path"}[kind]
