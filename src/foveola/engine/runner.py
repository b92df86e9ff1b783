"""Runs the graphs of a bundle on ONNX Runtime: pictures to features, prompts and tokens to logits.

The KV cache is one buffer per layer, ``[slots, kv_heads, max_length, head_dim]`` for keys and one for values. The
decoder reads it as ``past`` and writes it as ``present``, in place: no step copies it (see ``slots.py`` for who owns
which row). What a decode step needs is bound once; a step writes four small arrays and runs two graphs.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np
import onnxruntime as ort

from foveola.artifact import Bundle
from foveola.engine.features import Chunk, Floats
from foveola.engine.options import EngineOptions
from foveola.engine.slots import Move
from foveola.exchange import Damaged
from foveola.intake.geometry import Packed

LARGE_ROWS = 1024
"""From this many patches or prompt tokens on, a run gives its scratch memory back to the system afterwards.

Attention needs scratch in the square of them, and the arena would keep it for ever: 787 MiB after one request of 4096
patches, against 224. Smaller runs keep theirs, since asking for it anew costs a few percent of the run.
"""


class Runner(Protocol):
    """What the engine needs of a model; ``OrtRunner`` is one, the tests have another. Used by one thread only."""

    @property
    def slots(self) -> int:
        """Rows of the KV buffers."""

    @property
    def max_length(self) -> int:
        """Tokens that a row holds: prompt and answer together."""

    def encode(self, packed: Packed) -> Floats:
        """The visual tokens float32 ``[N/merge², H]`` of the packed pictures."""

    def prefill(self, row: int, chunk: Chunk) -> tuple[Floats, Floats]:
        """Write ``chunk`` into KV row ``row``; logits float32 ``[vocab]`` and evidence float32 ``[start + S]`` of its
        last position. Both are the caller's until the next call."""

    def decode(self, tokens: Sequence[int], positions: Sequence[int], lengths: Sequence[int]) -> Floats:
        """One token for each of the KV rows ``0 .. n-1``, which hold ``lengths`` tokens so far; ``positions`` are
        those of the new tokens. Logits float32 ``[n, vocab]``, the caller's until the next call."""

    def move(self, move: Move, length: int) -> None:
        """Copy the first ``length`` tokens of one KV row into another."""


class OrtRunner:
    """A bundle's three graphs in ONNX Runtime on the CPU."""

    def __init__(self, bundle: Bundle, options: EngineOptions) -> None:
        """Open the graphs, side by side, and run each once, so that the first request finds everything in place."""
        graphs, text = bundle.model["graphs"], bundle.model["text"]
        with ThreadPoolExecutor(3) as pool:  # building a session is native code that lets other threads run
            opened = [pool.submit(_session, bundle, graphs[name], options) for name in ("vision", "embed", "decoder")]
            self._vision, self._embed, self._decoder = (future.result() for future in opened)
        self.slots = options.slots
        self.max_length = int(text["max_length"])
        self._hidden = int(text["hidden_size"])
        self._vocab = int(text["vocab_size"])
        shape = (self.slots, int(text["num_key_value_heads"]), self.max_length, int(text["head_dim"]))
        self._kv = {
            f"{layer}.{kind}": np.zeros(shape, np.float32)
            for layer in range(int(text["num_hidden_layers"]))
            for kind in ("key", "value")
        }
        self._decoding = [_DecodeBinding(self, rows) for rows in range(1, self.slots + 1)]
        self._prefilling = [_bind_kv(self._decoder.io_binding(), self._kv, row, row + 1) for row in range(self.slots)]
        self._embeds = np.zeros((1, self.max_length, self._hidden), np.float32)
        self._giving_back = ort.RunOptions()
        self._giving_back.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        try:
            self._warm(bundle.model["vision"])
        except Exception as error:
            raise Damaged("The graphs do not run as model.json describes them; compile the bundle anew.") from error

    def encode(self, packed: Packed) -> Floats:
        """See ``Runner``."""
        features: Floats = self._vision.run(
            ["features"],
            {
                "pixel_values": packed.pixel_values,
                "position_ids": packed.position_ids,
                "segment_ids": packed.segment_ids,
            },
            self._run_options(len(packed.pixel_values)),
        )[0]
        return features

    def prefill(self, row: int, chunk: Chunk) -> tuple[Floats, Floats]:
        """See ``Runner``."""
        size = len(chunk.ids)
        total = chunk.start + size
        self._check_room(total)
        embeds = self._embeds[:, :size]
        io = self._embed.io_binding()
        io.bind_cpu_input("input_ids", chunk.ids[None])
        io.bind_ortvalue_output("inputs_embeds", _value(embeds))
        self._embed.run_with_iobinding(io)
        if chunk.features is not None:
            embeds[0, chunk.rows] = chunk.features
        io = self._prefilling[row]
        io.bind_ortvalue_input("inputs_embeds", _value(embeds))
        io.bind_cpu_input("position_ids", np.ascontiguousarray(chunk.positions[:, None]))
        io.bind_cpu_input("seqlens_k", np.array([total - 1], np.int32))
        io.bind_cpu_input("total_sequence_length", np.array(total, np.int32))
        io.bind_cpu_input("logit_index", np.array([size - 1], np.int64))
        logits = np.empty((1, 1, self._vocab), np.float32)
        evidence = np.empty((1, total), np.float32)
        io.bind_ortvalue_output("logits", _value(logits))
        io.bind_ortvalue_output("evidence", _value(evidence))
        self._decoder.run_with_iobinding(io, self._run_options(size))
        return logits[0, 0], evidence[0]

    def decode(self, tokens: Sequence[int], positions: Sequence[int], lengths: Sequence[int]) -> Floats:
        """See ``Runner``."""
        self._check_room(max(lengths) + 1)
        return self._decoding[len(tokens) - 1].run(tokens, positions, lengths)

    def move(self, move: Move, length: int) -> None:
        """See ``Runner``."""
        for buffer in self._kv.values():
            buffer[move.target, :, :length] = buffer[move.source, :, :length]

    def _run_options(self, rows: int) -> Any:
        return self._giving_back if rows > LARGE_ROWS else None

    def _check_room(self, tokens: int) -> None:
        # The kernel writes where `seqlens_k` points and does not ask how long the row is.
        if tokens > self.max_length:
            raise IndexError(f"{tokens} tokens do not fit a KV row of {self.max_length}")

    def _warm(self, vision: dict[str, Any]) -> None:
        """One smallest run of every graph: kernels are set up and weights paged in before the first request."""
        side, merge = int(vision["patch_size"]), int(vision["merge_size"])
        patches = merge * merge
        spots = np.stack(np.divmod(np.arange(patches), merge), axis=1).astype(np.int64)
        blank = np.zeros((patches, 3 * int(vision["temporal_patch_size"]) * side * side), np.float32)
        self._vision.run(
            ["features"], {"pixel_values": blank, "position_ids": spots, "segment_ids": np.zeros(patches, np.int64)}
        )
        ids = np.zeros(2, np.int64)
        self.prefill(0, Chunk(ids, np.zeros((3, 2), np.int64), 0, ids[:0], None))
        self.decode([0], [2], [2])


class _DecodeBinding:
    """Everything that a decode step of ``rows`` requests needs, bound once; its arrays are rewritten in place."""

    def __init__(self, runner: OrtRunner, rows: int) -> None:
        self._embed, self._decoder = runner._embed, runner._decoder
        self._ids = np.zeros((rows, 1), np.int64)
        self._positions = np.zeros((3, rows, 1), np.int64)
        self._seqlens = np.zeros(rows, np.int32)
        self._total = np.zeros((), np.int32)
        self._logits = np.zeros((rows, 1, runner._vocab), np.float32)
        embeds = _value(np.zeros((rows, 1, runner._hidden), np.float32))
        self._embed_io = self._embed.io_binding()
        self._embed_io.bind_ortvalue_input("input_ids", _value(self._ids))
        self._embed_io.bind_ortvalue_output("inputs_embeds", embeds)
        io = self._io = _bind_kv(self._decoder.io_binding(), runner._kv, 0, rows)
        io.bind_ortvalue_input("inputs_embeds", embeds)
        io.bind_ortvalue_input("position_ids", _value(self._positions))
        io.bind_ortvalue_input("seqlens_k", _value(self._seqlens))
        io.bind_ortvalue_input("total_sequence_length", _value(self._total))
        io.bind_ortvalue_input("logit_index", _value(np.zeros(1, np.int64)))
        io.bind_ortvalue_output("logits", _value(self._logits))
        # `evidence` is not bound, so nothing is copied out. It is computed all the same: the option that skips what no
        # bound output needs walks the graph anew in every run, which cost more than it saved (90 against 5 µs).

    def run(self, tokens: Sequence[int], positions: Sequence[int], lengths: Sequence[int]) -> Floats:
        self._ids[:, 0] = tokens
        self._positions[:, :, 0] = positions  # text has one position on all three axes
        self._seqlens[:] = lengths  # keys that count, the new one included, minus one
        self._total[...] = max(lengths) + 1
        self._embed.run_with_iobinding(self._embed_io)
        self._decoder.run_with_iobinding(self._io)
        return self._logits[:, 0]


def _session(bundle: Bundle, file: str, options: EngineOptions) -> Any:
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = options.threads
    settings.inter_op_num_threads = 1
    settings.add_session_config_entry("session.intra_op.allow_spinning", "1" if options.spin_us else "0")
    if options.spin_us:
        settings.add_session_config_entry("session.intra_op.spin_duration_us", str(options.spin_us))
        settings.add_session_config_entry("session.force_spinning_stop", "1")  # no waiting after the last operator
    # A memory pattern is kept for every new combination of input shapes: over thousands of pictures, a leak.
    settings.enable_mem_pattern = False
    path = str(bundle.file(file))
    try:
        return ort.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
    except Exception as error:
        # The seal was right, so the file is as it was compiled; what ONNX Runtime says of it names paths.
        raise Damaged(
            f"{file} cannot be loaded by ONNX Runtime {ort.__version__}; compile the bundle anew for this version."
        ) from error


def _value(array: np.ndarray[Any, Any]) -> Any:
    """An ``OrtValue`` over the memory of ``array`` itself; it keeps the array alive."""
    return ort.OrtValue.ortvalue_from_numpy(array)


def _bind_kv(io: Any, kv: dict[str, Floats], first: int, last: int) -> Any:
    """Bind rows ``first .. last-1`` of every KV buffer as the decoder's past and present at once."""
    for name, buffer in kv.items():
        rows = _value(buffer[first:last])
        io.bind_ortvalue_input(f"past.{name}", rows)
        io.bind_ortvalue_output(f"present.{name}", rows)
    return io
