"""A Checkpoint: a model's weights in the Hugging Face layout, looked at without loading them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foveola.artifact.atomic import staged_directory
from foveola.artifact.bundle import utc_now
from foveola.artifact.finding import Finding
from foveola.artifact.safetensors import TensorInfo, read_header
from foveola.artifact.seal import check_name, check_seal, name_problem, read_json, read_seal, write_seal
from foveola.exchange import Damaged

FORMAT = "foveola.checkpoint/1"
SEAL_FILE = "foveola.json"
CONFIG_FILE = "config.json"
_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".msgpack", ".h5")
# Files besides the weights that tell a reader what the model is; each is optional.
_SIDE_FILES = {
    "generation": "generation_config.json",
    "preprocessor": "preprocessor_config.json",
    "tokenizer": "tokenizer_config.json",
}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An opened checkpoint: config, tensors by name, and lineage where Foveola wrote it.

    ``model_hash`` is None for a plain directory from elsewhere, which has no seal.
    """

    path: Path
    name: str
    config: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo]
    weight_files: tuple[str, ...]
    model_hash: str | None
    lineage: tuple[Finding, ...]

    @classmethod
    def open(cls, path: Path | str, *, verify: bool = True) -> Checkpoint:
        """Open the checkpoint at ``path``: config.json and model.safetensors, whole or in shards with an index.

        A ``foveola.json`` in it is a seal over all files and is held to (with ``verify``, content too). Pickled
        weights are refused: reading one runs whatever code is in it. Raises Damaged naming the file.
        """
        root = Path(path)
        if not root.is_dir():
            raise Damaged(f"{root.name or 'The path'} is no directory; a checkpoint is one with {CONFIG_FILE} in it.")
        root = root.resolve()
        name, digest = root.name, None
        lineage: tuple[Finding, ...] = ()
        if (root / SEAL_FILE).exists():
            seal = read_seal(root, SEAL_FILE, format=FORMAT)
            check_seal(root, SEAL_FILE, seal, digests=verify)
            name, digest, lineage = seal.name, seal.model_hash, seal.lineage
        config = read_json(root, CONFIG_FILE)
        tensors = _read_tensors(root)
        files = tuple(dict.fromkeys(info.file for info in tensors.values()))
        return cls(root, name, config, tensors, files, digest, lineage)

    @property
    def parameters(self) -> int:
        """Number of elements of all tensors."""
        return sum(_elements(info.shape) for info in self.tensors.values())

    def file(self, name: str) -> Path:
        """Absolute path of the file ``name``. Raises Damaged when there is none, or it would lie outside."""
        if name_problem(name) or not (self.path / name).is_file():
            raise Damaged(f"{name} is missing from the checkpoint {self.name}.")
        return self.path / name

    def side_file(self, kind: str) -> dict[str, Any] | None:
        """The JSON object of the optional file ``kind`` (generation, preprocessor, tokenizer), or None."""
        relative = _SIDE_FILES[kind]
        return read_json(self.path, relative) if (self.path / relative).exists() else None

    def chat_template(self) -> str | None:
        """The chat template: chat_template.jinja, or the entry of tokenizer_config.json or chat_template.json."""
        jinja = self.path / "chat_template.jinja"
        if jinja.is_file():
            try:
                return jinja.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                raise Damaged(f"{jinja.name} is not UTF-8 text; it is damaged. Copy the checkpoint whole.") from None
        for relative in ("chat_template.json", "tokenizer_config.json"):
            if (self.path / relative).exists():
                template = read_json(self.path, relative).get("chat_template")
                if isinstance(template, str):
                    return template
        return None


def write_checkpoint(
    out: Path | str,
    *,
    name: str,
    files: Callable[[Path], None],
    lineage: Sequence[Finding] = (),
    replace: bool = False,
    created: str | None = None,
) -> Checkpoint:
    """Write a sealed checkpoint to ``out``, whole or not at all, and return it opened.

    ``files`` is called with an empty directory and writes the Hugging Face layout into it. Errors and guarantees
    are those of ``write_bundle``.
    """
    out = Path(out)
    check_name(name)
    with staged_directory(out, replace=replace) as staging:
        files(staging)
        write_seal(staging, SEAL_FILE, format=FORMAT, name=name, created=created or utc_now(), lineage=lineage)
        Checkpoint.open(staging, verify=False)
    return Checkpoint.open(out, verify=False)


def _read_tensors(root: Path) -> dict[str, TensorInfo]:
    if (root / _INDEX).exists():
        return _read_shards(root)
    if (root / _WEIGHTS).exists():
        return read_header(root, _WEIGHTS)
    pickles = sorted(entry.name for entry in root.iterdir() if entry.name.endswith(_PICKLES))
    if pickles:
        raise Damaged(
            f"{pickles[0]} is not read: a pickle runs the code that is in it. "
            f"Convert the weights to {_WEIGHTS} first, on a machine that may run it."
        )
    raise Damaged(f"{_WEIGHTS} is missing; there is no {_INDEX} either.")


def _read_shards(root: Path) -> dict[str, TensorInfo]:
    weight_map = read_json(root, _INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise Damaged(f"{_INDEX} holds no weight_map.")
    shards = sorted({shard for shard in weight_map.values() if isinstance(shard, str)})
    if len(shards) != len({repr(shard) for shard in weight_map.values()}):
        raise Damaged(f"{_INDEX}: weight_map gives a file name for every tensor; one is not text.")
    tensors: dict[str, TensorInfo] = {}
    for shard in shards:
        if name_problem(shard) or not shard.endswith(".safetensors"):
            shown = shard[:120] if shard.isprintable() else "a file"
            raise Damaged(f"{_INDEX} names {shown}; shards are .safetensors files inside the checkpoint, nothing else.")
        for name, info in read_header(root, shard).items():
            if weight_map.get(name) != shard:
                raise Damaged(f"{shard} holds the tensor {name[:80]!r}, which {_INDEX} does not place there.")
            tensors[name] = info
    for name, shard in weight_map.items():
        if name not in tensors:
            raise Damaged(f"{shard} lacks the tensor {name[:80]!r} that {_INDEX} places there.")
    return tensors


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
