"""Parameters of a checkpoint one by one, as the model has them: fp32, unpacked, under the model's names."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from foveola.artifact import Checkpoint
from foveola.weights.matrix import from_matrix
from foveola.weights.quantised import packed_matrices
from foveola.weights.skeleton import stored_names
from foveola.weights.store import read_tensor


class Parameters:
    """Reads only the bytes of what is asked for; nothing is kept."""

    def __init__(self, checkpoint: Checkpoint, model: nn.Module) -> None:
        """``model`` is the checkpoint's ``skeleton``."""
        self._checkpoint = checkpoint
        self._stored = stored_names(model, checkpoint)
        self._packed = packed_matrices(checkpoint, model)
        self._shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}

    def __contains__(self, name: str) -> bool:
        return name in self._stored or name.removesuffix(".weight") in self._packed

    def __call__(self, name: str) -> Tensor:
        """The parameter ``name``, fp32. Raises ``Damaged`` where the checkpoint lacks it."""
        path = name.removesuffix(".weight")
        if path in self._packed:
            return from_matrix(self._packed[path]().dequantised(), self._shapes[name])
        return read_tensor(self._checkpoint, self._stored.get(name, name)).float()

    def under(self, root: str) -> dict[str, Tensor]:
        """All parameters of the module ``root``, by their names within it."""
        inside = [name for name in self._shapes if name.startswith(f"{root}.") and name in self]
        return {name[len(root) + 1 :]: self(name) for name in inside}


def make_resident(model: nn.Module, parameters: Parameters, *, except_under: tuple[str, ...]) -> None:
    """Give every module of the skeleton ``model`` its weights but those under the paths ``except_under``."""
    for path, module in model.named_modules():
        if any(path == root or path.startswith(f"{root}.") for root in except_under):
            continue
        for name, parameter in list(module.named_parameters(recurse=False)):
            full = f"{path}.{name}" if path else name
            if parameter.is_meta and full in parameters:
                module.register_parameter(name, nn.Parameter(parameters(full), requires_grad=False))
    tie = getattr(model, "tie_weights", None)
    if tie is not None:
        with torch.no_grad():
            tie()
