"""The blocks of a model as a chain of functions, on one example: what `certificate` needs to follow an error."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from foveola.compress.certificate import Contribution, Link, layer_bound, mean_gain, spectral_gain
from foveola.compress.example import Example
from foveola.exchange import Unsupported
from foveola.family import Family


@dataclass
class Recorded:
    """One call of a block: what went in and came out, the other arguments, and its linear layers' inputs."""

    path: str
    module: nn.Module
    x: Tensor
    y: Tensor
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    inputs: dict[str, Tensor] = field(default_factory=dict)
    rows: Tensor | None = None
    """Of a merger: which tokens of ``y`` its features become; the others are the text's, which no error reaches."""

    def function(self) -> Callable[[Tensor], Tensor]:
        """The block as a function of its hidden states alone."""
        rows, flat = self.rows, self.y.flatten(0, -2)
        if rows is not None:
            return lambda x: flat.index_copy(0, rows, self.module(x)).view(self.y.shape)
        return lambda x: _first(self.module(x, *self.arguments, **self.keywords))

    def from_layer(self, layer: str) -> Callable[[Tensor], Tensor]:
        """The block's output as a function of what is added to the output of its layer ``layer``."""
        inner = self.module.get_submodule(layer)

        def function(added: Tensor) -> Tensor:
            handle = inner.register_forward_hook(lambda module, inputs, output: output + added)
            try:
                return self.function()(self.x)
            finally:
                handle.remove()

        return function


def _first(output: Any) -> Tensor:
    """Decoder layers of some versions give a tuple."""
    found: Tensor = output[0] if isinstance(output, tuple) else output
    return found


def block_paths(model: nn.Module, family: Family) -> list[str]:
    """Tower's blocks, merger and decoder's layers, in the order in which an input passes them.

    Raises ``Unsupported`` for a family whose way from the tower to the decoder is not one merger inside the tower.
    """
    decoder = _children(model, f"{family.parts.decoder}.{family.decoder.layers}")
    if not family.parts.vision:
        return decoder
    if family.parts.projector or family.tower.deepstack:
        raise Unsupported(
            f"errors are followed through towers with one merger, and {family.model_type} is built differently."
        )
    tower = _children(model, f"{family.parts.vision}.{family.tower.blocks}")
    return [*tower, _merger(family), *decoder]


def _children(model: nn.Module, root: str) -> list[str]:
    return [f"{root}.{index}" for index in range(len(list(model.get_submodule(root).children())))]


def _merger(family: Family) -> str:
    return f"{family.parts.vision}.{family.tower.merger_norm.rpartition('.')[0]}"


@torch.no_grad()
def record(model: nn.Module, family: Family, example: Example) -> list[Recorded]:
    """Run ``example`` and keep every block's call. Blocks that it does not reach (no picture) are left out."""
    paths = block_paths(model, family)
    found: dict[str, Recorded] = {}
    with ExitStack() as stack:
        for path in paths:
            module = model.get_submodule(path)
            stack.callback(module.register_forward_hook(_keeping(path, found), with_kwargs=True).remove)
            for name, inner in module.named_modules():
                if isinstance(inner, nn.Linear):
                    stack.callback(inner.register_forward_pre_hook(_reading(path, name, found)).remove)
        model(**example.inputs, use_cache=False)
    reached = [found[path] for path in paths if path in found]
    for merger, following in itertools.pairwise(reached):
        if family.parts.vision and merger.path == _merger(family):
            merger.y = following.x
            merger.rows = example.is_vision.flatten().nonzero().flatten()
    return reached


def _keeping(path: str, found: dict[str, Recorded]) -> Callable[..., None]:
    def hook(module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> None:
        others = dict(keywords)
        x = arguments[0] if arguments else others.pop("hidden_states")
        inputs = found[path].inputs if path in found else {}
        found[path] = Recorded(path, module, x.detach(), _first(output).detach(), arguments[1:], others, inputs)

    return hook


def _reading(path: str, name: str, found: dict[str, Recorded]) -> Callable[..., None]:
    def hook(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        x = inputs[0].detach()
        if path not in found:
            found[path] = Recorded(path, module, x.new_empty(0), x.new_empty(0), (), {})
        found[path].inputs[name] = x

    return hook


def links(
    recorded: Sequence[Recorded],
    rounded: Mapping[str, Tensor],
    *,
    iterations: int = 8,
    told: Callable[[str, int], None] = lambda path, done: None,
) -> Iterator[Link]:
    """A `Link` per block, for weights that become ``rounded`` (path of the layer -> [N, K])."""
    for done, block in enumerate(recorded, 1):
        with sdpa_kernel(SDPBackend.MATH):  # fused attention has no forward derivative
            contributions = [
                _contribution(block, name, rounded[f"{block.path}.{name}"], iterations)
                for name in block.inputs
                if f"{block.path}.{name}" in rounded
            ]
            function = block.function()
            gain = spectral_gain(function, block.x, iterations=iterations)
            average = mean_gain(function, block.x)
        yield Link(block.path, gain, average, tuple(contributions))
        told(block.path, done)


def _contribution(block: Recorded, name: str, rounded_NK: Tensor, iterations: int) -> Contribution:
    """What rounding one layer does to the block's output: its own error times the way from there."""
    layer = block.module.get_submodule(name)
    assert isinstance(layer, nn.Linear)
    x = block.inputs[name]
    flat = x.reshape(-1, x.shape[-1])
    output = x @ layer.weight.T
    error = x @ (layer.weight - rounded_NK).T
    function = block.from_layer(name)
    at = torch.zeros(*x.shape[:-1], layer.out_features)
    whole = float(block.y.norm())
    # absolute gains: what is added is 0, and has no relative size
    steepest = spectral_gain(function, at, iterations=iterations, scale=1.0)
    average = mean_gain(function, at, scale=1.0)
    bound = layer_bound(layer.weight, rounded_NK, flat.T @ flat)
    return Contribution(name, bound * float(output.norm()) * steepest / whole, float(error.norm()) * average / whole)


@torch.no_grad()
def measured(recorded: Sequence[Recorded], again: Sequence[Recorded]) -> dict[str, float]:
    """Block -> relative error of its output in ``again`` (the rounded model) against ``recorded``."""
    return {
        one.path: float((one.y - other.y).norm() / one.y.norm().clamp(min=1e-30))
        for one, other in zip(recorded, again, strict=True)
    }
