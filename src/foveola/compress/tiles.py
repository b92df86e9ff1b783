"""In which granularity chips multiply matrices: tile tables, and what of the hardware a model's shapes make use of.

A product ``y[M, N] = x[M, K] · W[K, N]`` is cut into tiles of ``rows × inner × outer``; what does not fill its last
tile is computed all the same, on zeros. The utilisation of a product is therefore

    u = Π_d n_d / (t_d · ⌈n_d / t_d⌉)          and of a model    U = Σ MAC / Σ (MAC / u).

Tiles are data: a new chip is a new line. Every figure that is made of them is *modelled*.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foveola.exchange import Invalid


@dataclass(frozen=True, slots=True)
class Tile:
    """Elements of one tile along M (rows of x), K (summed over) and N (outputs)."""

    rows: int
    inner: int
    outer: int


@dataclass(frozen=True, slots=True)
class Chip:
    """One chip: its tile per precision, and the block of a weight that it can leave out where all of it is zero.

    ``skip`` is (K, N) in elements, or None where a zero block is multiplied like any other. ``pattern`` is (kept, of)
    along K for chips that skip inside a row (NVIDIA's 2:4). ``source`` says where the numbers are from.
    """

    name: str
    tiles: Mapping[str, Tile]
    skip: tuple[int, int] | None
    pattern: tuple[int, int] | None
    source: str

    def tile(self, precision: str) -> Tile:
        """The tile for ``precision``. Raises ``Invalid`` naming those that the chip has."""
        if precision not in self.tiles:
            raise Invalid(
                f"precision is {precision!r}; {self.name} multiplies in {', '.join(self.tiles)}. Choose one of these.",
                field="precision",
            )
        return self.tiles[precision]

    def channels(self, precision: str) -> int:
        """Channels between two layers should come in multiples of this: they are N of the one and K of the next."""
        tile = self.tile(precision)
        return math.lcm(tile.inner, tile.outer)


_CUBE = "cube unit of 16 × 32 B × 16: the fractal is 16 rows by 32 bytes (vendor's documents on the NZ layout)"
_CHIPS = (
    Chip(
        "ascend-910b",
        {"fp16": Tile(16, 16, 16), "int8": Tile(16, 32, 16), "int4": Tile(16, 64, 16)},
        skip=(16, 16),
        pattern=None,
        source=_CUBE,
    ),
    Chip(
        "cambricon-mlu",
        {"fp32": Tile(1, 16, 16), "fp16": Tile(1, 32, 32), "int8": Tile(1, 64, 64)},
        skip=None,
        pattern=None,
        source="weights and channels on 64-byte lines; an assumption to be held against the chip at hand",
    ),
    Chip(
        "edge-tpu",
        {"int8": Tile(1, 64, 64)},
        skip=None,
        pattern=None,
        source="64 × 64 systolic array, as its performance suggests; the vendor publishes no figure",
    ),
    Chip(
        "nvidia-2:4",
        {"fp16": Tile(16, 32, 8), "int8": Tile(16, 64, 8)},
        skip=None,
        pattern=(2, 4),
        source="mma.sp shapes m16n8k32 (16 bits) and m16n8k64 (8 bits) of the PTX manual",
    ),
    Chip(
        "cpu-avx2",
        {"fp32": Tile(1, 1, 16), "int8": Tile(1, 32, 16), "int4": Tile(1, 32, 16)},
        skip=None,
        pattern=None,
        source="ONNX Runtime's kernels: panels of 16 columns; blocks of 32 weights share a scale",
    ),
    Chip(
        "cpu-avx512",
        {"fp32": Tile(1, 1, 32), "int8": Tile(1, 64, 16), "int4": Tile(1, 64, 16)},
        skip=None,
        pattern=None,
        source="vectors of 64 bytes; panels of two vectors",
    ),
)
CHIPS: Mapping[str, Chip] = {chip.name: chip for chip in _CHIPS}
"""The table, by name."""


def chip_of(name: str) -> Chip:
    """The chip of that name. Raises ``Invalid`` with those that are known."""
    if name not in CHIPS:
        known = ", ".join(CHIPS)
        raise Invalid(f"the chip is {name!r}; known are {known}. Choose one, or add its tiles.", field="chip")
    return CHIPS[name]


@dataclass(frozen=True, slots=True)
class Product:
    """One product of a model: ``name``, M rows, K, N, and how often it is done."""

    name: str
    rows: int
    inner: int
    outer: int
    times: int = 1

    @property
    def macs(self) -> int:
        """Multiplications with addition, all times together."""
        return self.rows * self.inner * self.outer * self.times


def filled(size: int, tile: int) -> float:
    """The share of the last dimension's tiles that holds something: ``n / (t ⌈n/t⌉)``; 1 for an empty one."""
    return size / (tile * -(-size // tile)) if size else 1.0


def utilisation(product: Product, tile: Tile) -> float:
    """The share (0..1) of the multiplications that the chip does which belong to the product."""
    return filled(product.rows, tile.rows) * filled(product.inner, tile.inner) * filled(product.outer, tile.outer)


def channel_utilisation(product: Product, tile: Tile) -> float:
    """As ``utilisation``, of the weight's two dimensions only: what pruning decides."""
    return filled(product.inner, tile.inner) * filled(product.outer, tile.outer)


@dataclass(frozen=True, slots=True)
class Utilisation:
    """``layers``: per product its utilisation; ``whole`` and ``channels`` over all, weighted by the work done."""

    layers: Mapping[str, float]
    whole: float
    channels: float


def model_utilisation(products: Iterable[Product], tile: Tile) -> Utilisation:
    """``U = Σ MAC / Σ MAC/u``, per layer and whole. An empty model wastes nothing."""
    layers: dict[str, float] = {}
    macs = padded = padded_channels = 0.0
    for product in products:
        layers[product.name] = utilisation(product, tile)
        if not product.macs:
            continue
        macs += product.macs
        padded += product.macs / layers[product.name]
        padded_channels += product.macs / channel_utilisation(product, tile)
    return Utilisation(layers, macs / padded if macs else 1.0, macs / padded_channels if macs else 1.0)


def block_mask(weight_NK: NDArray[np.floating], block: tuple[int, int]) -> NDArray[np.bool_]:
    """Which blocks (K, N) of a weight hold anything: bool [⌈N/n⌉, ⌈K/k⌉]; the last ones may be smaller."""
    rows, inner = weight_NK.shape
    high, wide = block[1], block[0]
    padded = np.zeros((-(-rows // high) * high, -(-inner // wide) * wide), bool)
    padded[:rows, :inner] = weight_NK != 0
    return np.asarray(padded.reshape(padded.shape[0] // high, high, -1, wide).any(axis=(1, 3)), np.bool_)


def skip_share(weight_NK: NDArray[np.floating], block: tuple[int, int]) -> float:
    """The share of a weight's blocks that a chip which skips such blocks leaves out."""
    mask = block_mask(weight_NK, block)
    return float(1 - mask.mean()) if mask.size else 0.0


def skip_efficiency(weight_NK: NDArray[np.floating], block: tuple[int, int], native: tuple[int, int] = (4, 4)) -> float:
    """Of what is zero in ``native`` blocks, the share that also falls into whole blocks that are skipped.

    Scattered 4×4 blocks hardly ever fill a 16×16 tile: of a share s of them, independent, only s**16 tiles are empty.
    """
    zero = skip_share(weight_NK, native)
    return skip_share(weight_NK, block) / zero if zero else 1.0


def follows_pattern(weight_NK: NDArray[np.floating], pattern: tuple[int, int]) -> bool:
    """Whether every ``of`` neighbours along K hold at most ``kept`` weights that are not zero."""
    kept, of = pattern
    if weight_NK.shape[1] % of:
        return False
    groups = weight_NK.reshape(weight_NK.shape[0], -1, of)
    return bool(((groups != 0).sum(axis=-1) <= kept).all())


def keep_pattern(importance_NK: NDArray[np.floating], pattern: tuple[int, int]) -> NDArray[np.bool_]:
    """The mask that keeps the ``kept`` most important of every ``of`` neighbours along K. Raises ``Invalid``."""
    kept, of = pattern
    rows, inner = importance_NK.shape
    if inner % of:
        raise Invalid(f"a row of {inner} weights has no groups of {of}; pad it to a multiple of {of}.", field="pattern")
    groups = importance_NK.reshape(rows, -1, of)
    order = np.argsort(-groups, axis=-1, kind="stable")
    mask = np.zeros(groups.shape, bool)
    np.put_along_axis(mask, order[..., :kept], True, axis=-1)
    return mask.reshape(rows, inner)
