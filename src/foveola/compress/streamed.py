"""A model whose blocks have no weights of their own: each reads them when its turn comes and lets them go.

What transformers computes stays as it is; only the elements of the lists of layers are wrapped. A backward pass
recomputes each block from its input (Chen et al. 2016, arXiv 1604.06174), so that it holds one block, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

Read = Callable[[str], dict[str, Tensor]]
"""Path of a block -> its parameters by their names within it."""


@dataclass
class Control:
    """How the wrapped blocks behave. ``dry`` ones give back what came; ``calls`` holds, where it is kept, what each
    block was called with; from ``stop_at`` on nothing runs (``Stopped`` is raised when that block is reached)."""

    read: Read
    dry: tuple[str, ...] = ()
    stop_at: str | None = None
    calls: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] | None = None
    blocks: dict[str, nn.Module] = field(default_factory=dict)


class Stopped(Exception):
    """The block ``stop_at`` was reached; its call is in ``calls``."""


class Streamed(nn.Module):
    """Stands where the block ``path`` stood, and is asked for its attributes, too."""

    def __init__(self, path: str, block: nn.Module, control: Control) -> None:
        super().__init__()
        self.path, self.control = path, control
        self.__dict__["inner"] = block  # no sub-module: its parameters are on the meta device and stay there

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["inner"], name)

    def forward(self, *arguments: Any, **others: Any) -> Any:
        """As the block itself."""
        control = self.control
        if control.calls is not None:
            control.calls[self.path] = (arguments, others)
        if control.stop_at == self.path:
            raise Stopped
        hidden, *rest = arguments
        if self.path.startswith(control.dry):
            return hidden
        inner: nn.Module = self.__dict__["inner"]

        def run(x: Tensor) -> Any:
            return functional_call(inner, control.read(self.path), (x, *rest), others)

        if torch.is_grad_enabled():
            return checkpoint(run, hidden, use_reentrant=False)
        return run(hidden)


def stream_blocks(model: nn.Module, blocks: Sequence[str], read: Read) -> Control:
    """Wrap the modules ``blocks`` of the skeleton ``model``, in place; what is returned steers them."""
    control = Control(read)
    for path in blocks:
        control.blocks[path] = model.get_submodule(path)
        model.set_submodule(path, Streamed(path, control.blocks[path], control))
    return control


Call = tuple[tuple[Any, ...], dict[str, Any]]


def calls_of(model: nn.Module, control: Control, inputs: Mapping[str, Any], *, dry: tuple[str, ...], stop_at: str | None
) -> dict[str, Call]:  # fmt: skip
    """With what every block is called for ``inputs``: blocks under ``dry`` cost nothing, their results are not real."""
    control.dry, control.stop_at, control.calls = dry, stop_at, {}
    try:
        with torch.no_grad():
            model(**inputs, use_cache=False, logits_to_keep=1)
    except Stopped:
        pass
    finally:
        calls, control.dry, control.stop_at, control.calls = control.calls, (), None, None
    return calls or {}


@torch.no_grad()
def run_block(block: nn.Module, weights: Mapping[str, Tensor], call: Call, hidden: Tensor) -> Tensor:
    """The block with ``weights`` on ``hidden``, everything else as in ``call``."""
    made = functional_call(block, dict(weights), (hidden, *call[0][1:]), call[1])
    return made[0] if isinstance(made, tuple) else cast(Tensor, made)
