"""Hot patch: other weights for a part of the model, while it serves.

    engine.replace_submodule(module_path="visual", new_state_dict=tensors, strict=True)
    engine.rollback()

A second session is opened over the same graph, with the new weights instead of its constants; it answers a probe; then
newcomers run on it, from the engine's next step on. Who began on the old weights ends on them. Nobody waits, no answer
comes from both, and what is cached is found under the name of the weights that it came from. The weights before stay
at hand for ``rollback``; a run that fails on the new ones before any has succeeded brings them back by itself.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveola.artifact import Bundle
from foveola.engine.canary import Probe, compare, probe
from foveola.engine.initializers import read_initializers
from foveola.engine.options import EngineOptions
from foveola.engine.placing import Array, Source, constants_of, read_sources
from foveola.engine.runner import OrtRunner
from foveola.engine.sessions import Sessions, open_role, version_of
from foveola.exchange import Invalid

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Patched:
    """What a patch or a rollback did. ``tensors`` were replaced in ``graphs``; ``probe`` is what the canary saw."""

    module_path: str
    before: str
    model_hash: str
    tensors: int
    graphs: tuple[str, ...]
    seconds: float
    probe: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class _State:
    """A set of weights that has served: its runner, and the digests of what was replaced, by graph."""

    runner: OrtRunner
    digests: Mapping[str, str]
    weights: Mapping[str, Mapping[str, Array]]  # of each graph, all constants that differ from the file


class Patches:
    """The weights of one engine and their history. Thread-safe; one change at a time.

    ``switch`` hands newcomers over to another runner and returns when that has happened.
    """

    def __init__(
        self, bundle: Bundle, options: EngineOptions, runner: OrtRunner, switch: Callable[[OrtRunner], None]
    ) -> None:
        self._bundle = bundle
        self._options = options
        self._switch = switch
        self._lock = threading.Lock()
        self._states = [_State(runner, {}, {})]
        self._probe: Probe | None = None

    @property
    def model_hash(self) -> str:
        """Of the weights that newcomers get."""
        return self._states[-1].runner.version.model_hash

    def replace(self, module_path: str, new_state_dict: Mapping[str, Any], *, strict: bool = True) -> Patched:
        """Serve newcomers with ``new_state_dict`` in the sub-module ``module_path``.

        Keys are relative to the module, or whole; values are arrays, or anything that numpy makes arrays of (torch
        tensors on the CPU). With ``strict`` they must be exactly the module's parameters; without, what is not there
        stays as it is and what is not known is passed over. Blocks the calling thread. Raises ``Invalid`` for weights
        that do not fit or fail the probe, ``Damaged`` for a bundle that does not tell its weights; nothing has changed
        then. The weights that serve already, sent once more, change nothing either: ``rollback`` still leads to those
        before them.
        """
        started = time.perf_counter()
        with self._lock:
            state = self._states[-1]
            wanted = self._wanted(module_path, new_state_dict, strict=strict)
            patched = self._opened(state, wanted)
            seen = self._checked(state.runner, patched.runner)
            if patched.runner.version.model_hash != self.model_hash:
                self._switch(patched.runner)
                self._states = [state, patched]  # one step back, no more: every set of weights takes its memory
            return Patched(
                module_path,
                before=state.runner.version.model_hash,
                model_hash=self.model_hash,
                tensors=sum(len(names) for _, names, _ in wanted),
                graphs=tuple(role for role, _, _ in wanted),
                seconds=time.perf_counter() - started,
                probe=seen,
            )

    def rollback(self) -> Patched:
        """Serve newcomers with the weights before the last patch. Raises ``Invalid`` where there was none."""
        started = time.perf_counter()
        with self._lock:
            if len(self._states) == 1:
                raise Invalid(
                    "There is no patch to take back: none came since the start, or since the last rollback; one step "
                    "back is kept. Send the weights that you want instead."
                )
            before = self.model_hash
            self._switch(self._states[-2].runner)
            self._states.pop()
            return Patched("", before, self.model_hash, 0, (), time.perf_counter() - started, {})

    def gave_up(self, runner: object) -> None:
        """The engine went back by itself from ``runner`` to the weights before it."""
        if self._states[-1].runner is runner:
            self._states = self._states[:-1]

    def _wanted(
        self, module_path: str, new_state_dict: Mapping[str, Any], *, strict: bool
    ) -> list[tuple[str, dict[str, Array], tuple[Source, ...]]]:
        """Per graph that changes: its role, the new tensors by their whole names, and what they are sources of."""
        files: Mapping[str, str] = self._bundle.model["graphs"]
        graphs = self._states[0].runner.sessions.graphs
        sources = {
            role: read_sources(graphs[role].get_modelmeta().custom_metadata_map, file) for role, file in files.items()
        }
        known = {name for each in sources.values() for source in each for name in source.tensors}
        prefix = _resolved(module_path, known)
        own = {name for name in known if _below(name, prefix)}
        tails = _tails(own)
        given = {_whole_name(key, prefix, own, tails): value for key, value in new_state_dict.items()}
        for source in (one for each in sources.values() for one in each if one.tied):
            (name,), (table,) = source.tensors, source.tied
            if name in own and f"{table}.weight" in given:
                given.setdefault(name, given[f"{table}.weight"])
        missing, unknown = sorted(own - given.keys()), sorted(given.keys() - own)
        if strict and (missing or unknown):
            raise Invalid(_mismatch(module_path, missing, unknown), field="new_state_dict")
        tensors = {name: _array(name, given[name]) for name in own & given.keys()}
        if not tensors:
            raise Invalid(
                f"new_state_dict holds none of the {len(own)} parameters of {module_path or 'the model'}, such as "
                f"{sorted(own)[0]}.",
                field="new_state_dict",
            )
        changed = []
        for role, each in sources.items():
            touched = tuple(source for source in each if tensors.keys() & set(source.tensors))
            for source in touched:
                lacking = set(source.tensors) - tensors.keys()
                if lacking:
                    raise Invalid(
                        f"{sorted(lacking)[0]} is missing: it lies in one matrix with "
                        f"{', '.join(sorted(set(source.tensors) & tensors.keys()))}, and they are replaced together.",
                        field="new_state_dict",
                    )
            if touched:
                names = {name for source in touched for name in source.tensors}
                changed.append((role, {name: tensors[name] for name in names}, touched))
        return changed

    def _opened(self, state: _State, wanted: list[tuple[str, dict[str, Array], tuple[Source, ...]]]) -> _State:
        """Sessions with the new weights; graphs that do not change are shared with ``state``."""
        files: Mapping[str, str] = self._bundle.model["graphs"]
        graphs = dict(state.runner.sessions.graphs)
        weights, digests = dict(state.weights), dict(state.digests)
        for role, tensors, sources in wanted:
            present = read_initializers(self._bundle.read(files[role]), files[role])
            constants = dict(weights.get(role, {}))
            for source in sources:
                constants |= constants_of(source, tensors, present)
            weights[role] = constants
            digests[role] = _digest(self._bundle.files[files[role]].sha256, constants)
            graphs |= open_role(self._bundle, role, self._options, constants)
        version = version_of(self._bundle, digests)
        runner = OrtRunner(self._bundle, self._options, Sessions(graphs, version))
        return _State(runner, digests, weights)

    def _checked(self, old: OrtRunner, new: OrtRunner) -> Mapping[str, float]:
        """What the probe sees. Raises ``Invalid`` where the new weights do not compute."""
        if self._probe is None:
            self._probe = probe(self._bundle)
        return compare(self._probe, old, new)


def _resolved(module_path: str, known: set[str]) -> str:
    """The module's path in the model; checkpoints leave out the outermost name."""
    roots = {"", *(f"{name.partition('.')[0]}." for name in known)}
    for root in sorted(roots, key=len):
        prefix = root + module_path if module_path else ""
        if any(_below(name, prefix) for name in known):
            return prefix
    parts = sorted({".".join(name.split(".")[:2]) for name in known})
    raise Invalid(
        f"module_path is {module_path!r}; this model has no such part. It has {', '.join(parts)}, and parts of them.",
        field="module_path",
    )


def _below(name: str, prefix: str) -> bool:
    return not prefix or name.startswith(f"{prefix}.")


def _tails(own: set[str]) -> dict[str, str | None]:
    """End of a name, from a dot on -> the name that ends so, None where several do."""
    tails: dict[str, str | None] = {}
    for name in own:
        parts = name.split(".")
        for start in range(len(parts) - 1):
            tail = ".".join(parts[start:])
            tails[tail] = None if tail in tails else name
    return tails


def _whole_name(key: str, prefix: str, own: set[str], tails: Mapping[str, str | None]) -> str:
    """``key`` as the model names it.

    It may be relative to the module. Files of checkpoints leave out or rename the outermost names (``visual`` for
    ``model.visual``, ``model.layers`` for ``model.language_model.layers``): then the end of the name says which it is,
    where only one of the module's parameters ends so.
    """
    for name in (key, f"{prefix}.{key}"):
        if name in own:
            return name
    parts = key.split(".")
    for start in range(len(parts) - 1):
        found = tails.get(".".join(parts[start:]))
        if found is not None:
            return found
    return key


def _mismatch(module_path: str, missing: list[str], unknown: list[str]) -> str:
    def some(names: list[str]) -> str:
        return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")

    parts = [f"{len(missing)} parameters are missing ({some(missing)})"] if missing else []
    parts += [f"{len(unknown)} are not the module's ({some(unknown)})"] if unknown else []
    told = f"new_state_dict does not fit {module_path or 'the model'}: {'; '.join(parts)}."
    return f"{told} Correct it, or let them be (strict=False, --not-strict)."


def _array(name: str, value: Any) -> NDArray[np.float32]:
    detached = value.detach() if hasattr(value, "detach") else value
    plain = detached.float().cpu().numpy() if hasattr(detached, "float") else np.asarray(detached)
    if plain.dtype.kind not in "fiu":
        raise Invalid(f"{name} holds {plain.dtype}; expected numbers.", field="new_state_dict")
    with np.errstate(over="ignore"):
        array = np.asarray(plain, np.float32)
    if not np.isfinite(array).all():
        what = "no finite numbers" if not np.isfinite(plain).all() else "beyond what float32 holds"
        raise Invalid(f"{name} holds values that are {what}; train or convert it again.", field=name)
    return array


def _digest(before: str, constants: Mapping[str, Array]) -> str:
    digest = hashlib.sha256(before.encode())
    for name in sorted(constants):
        digest.update(f"{name} {constants[name].dtype.str} {constants[name].shape};".encode())
        digest.update(np.ascontiguousarray(constants[name]).view(np.uint8).data)
    return digest.hexdigest()
