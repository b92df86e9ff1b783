"""Visual prompts: learnt rows that stand before the first picture of a request, chosen by name, from a shelf on disk.

A prompt is data and no part of the graphs: its rows enter the decoder as visual features do, at places of their own.
The rows count on like text (one position each), and the picture behind them is moved by as many. What is kept from
request to request knows tokens with features by the features themselves (``prefixes.py``), so that nothing that was
computed under one prompt is ever found under another, and what stands before the prompt is shared by all.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from foveola.artifact import Bundle
from foveola.artifact.prompt import SEAL_FILE, Prompt
from foveola.engine.features import Chunk, Floats
from foveola.exchange import Damaged, Invalid, PromptUse, Unavailable

log = logging.getLogger(__name__)

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
MOST = 256
"""Prompts that are kept open; the one that was not used for longest goes first, and is read again when it is asked
for."""
_Stamp = tuple[int, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class VisualPrompt:
    """A prompt as a request takes it: ``rows`` float32 ``[P, E]``, finite, whose first stands at token ``at``.

    ``use`` is what the reply tells of it.
    """

    rows: Floats
    use: PromptUse
    at: int = 0


class PromptShelf:
    """The prompts of a folder, one directory each, found by the directory's name. Thread-safe.

    Every look asks the disk whether the directory was replaced, so that a new prompt serves the next request. A
    replacement that is damaged, or not whole yet, does not take the place of what is there.
    """

    def __init__(self, folder: Path, *, width: int, base: str) -> None:
        """``width`` are the numbers per row that the decoder reads, ``base`` the model_hash of its bundle. Raises
        ``Damaged`` where there is no such folder."""
        if not folder.is_dir():
            raise Damaged(f"{folder.name} is no directory; name one that holds prompts, or leave `prompts_dir` out.")
        self._folder, self._width, self._base = folder, width, base
        self._lock = threading.Lock()
        self._open: OrderedDict[str, tuple[_Stamp, VisualPrompt]] = OrderedDict()
        self._refused: dict[str, tuple[_Stamp, str]] = {}

    @classmethod
    def of(cls, folder: Path, bundle: Bundle) -> PromptShelf:
        """The shelf for a bundle. Raises ``Damaged``."""
        text = bundle.model["text"]
        return cls(folder, width=int(text.get("embedding_size", text["hidden_size"])), base=bundle.model_hash)

    def names(self) -> list[str]:
        """Of everything that looks like a prompt, in order."""
        found = (one.name for one in self._folder.iterdir() if (one / SEAL_FILE).is_file())
        return sorted(name for name in found if NAME.fullmatch(name))

    def get(self, name: str) -> VisualPrompt:
        """The prompt ``name`` as it lies there now. Raises ``Invalid`` where there is none or it is not for this model,
        ``Unavailable`` where it is damaged."""
        stamp = self._stamp(name) if NAME.fullmatch(name) else None
        if stamp is None:
            raise Invalid(
                "There is no visual prompt of that name here; leave the field out, or put one into the folder.",
                field="visual_prompt",
            )
        with self._lock:
            held = self._open.get(name)
            refused = self._refused.get(name)
            if refused is not None and refused[0] == stamp:
                return self._instead(name, held, refused[1])
            if held is None or held[0] != stamp:
                try:
                    held = (stamp, self._read(name))
                except (Damaged, Invalid) as error:
                    log.warning("visual prompt %s: %s", name, error.message)
                    self._refused[name] = (stamp, error.message)
                    return self._instead(name, held, error.message)
                self._refused.pop(name, None)
                self._open[name] = held
                while len(self._open) > MOST:
                    self._open.popitem(last=False)
            self._open.move_to_end(name)
            return held[1]

    def _instead(self, name: str, held: tuple[_Stamp, VisualPrompt] | None, why: str) -> VisualPrompt:
        if held is not None:
            return held[1]
        raise Unavailable(f"The visual prompt {name} cannot be used here ({why}) Ask whoever runs the server.")

    def _stamp(self, name: str) -> _Stamp | None:
        try:
            seal = (self._folder / name / SEAL_FILE).stat()
        except OSError:
            return None
        return seal.st_mtime_ns, seal.st_ino, seal.st_size

    def _read(self, name: str) -> VisualPrompt:
        prompt = Prompt.open(self._folder / name)
        if prompt.width != self._width:
            raise Invalid(f"Its rows have {prompt.width} numbers, and this model reads {self._width}.")
        if prompt.base is not None and prompt.base != self._base:
            raise Invalid(f"It was trained for the bundle {prompt.base[:12]}, and {self._base[:12]} is served.")
        return VisualPrompt(prompt.values, PromptUse(name, prompt.model_hash, len(prompt.values)))


def laid_in(chunk: Chunk, prompt: VisualPrompt | None) -> Chunk:
    """The whole prompt with the visual prompt's rows at the places that ``intake.prompt_rows`` kept for them."""
    if prompt is None or chunk.features is None:
        return chunk
    places = prompt.at + np.arange(len(prompt.rows))  # tokens that were left out of the pictures stood behind
    return replace(
        chunk, rows=np.concatenate([places, chunk.rows]), features=np.concatenate([prompt.rows, chunk.features])
    )


def taken_out(chunk: Chunk, prompt: VisualPrompt | None) -> Chunk:
    """The whole prompt with only the pictures' rows as visual: what evidence is drawn from."""
    if prompt is None or chunk.features is None:
        return chunk
    count = len(prompt.rows)
    return replace(chunk, rows=chunk.rows[count:], features=chunk.features[count:])
