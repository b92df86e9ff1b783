"""Runs the graphs of a bundle on ONNX Runtime: pictures to features, prompts and tokens to logits.

The KV cache is one buffer per layer, ``[slots + 1, kv_heads, max_length, head_dim]`` for keys and one for values. The
decoder reads it as ``past`` and writes it as ``present``, in place: no step copies it (see ``slots.py`` for who owns
which row). What a decode step needs is bound once; a step writes four small arrays and runs two graphs.

Where the vision graph may merge tokens, the decoder takes a ``key_bias`` ``[slots + 1, max_length]`` as well: what is
added to the attention to each token of a row. It is 0 from the end of a row's prompt on, and moves with the row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import onnxruntime as ort

from foveola.artifact import Bundle
from foveola.engine.features import Chunk, Floats, Numbers, Selected
from foveola.engine.options import EngineOptions
from foveola.engine.redzones import RedZones
from foveola.engine.sessions import DECODER, PREFILL, Sessions, Version, open_sessions
from foveola.engine.slots import Move
from foveola.engine.trimmed import HEAD, TrimmedHead
from foveola.exchange import Damaged
from foveola.intake.geometries import geometry_of
from foveola.intake.geometry import Packed
from foveola.intake.image import Picture

KEEP, KEY_BIAS = "keep", "key_bias"
"""Inputs of the graphs of a bundle with a place of selection: of vision, and of the decoder."""
LARGE_ROWS = 1024
"""From this many patches or prompt tokens on, a run gives its scratch memory back to the system afterwards.

Attention needs scratch in the square of them, and the arena would keep it for ever: 787 MiB after one request of 4096
patches, against 224. Smaller runs keep theirs, since asking for it anew costs a few percent of the run.
"""


class Runner(Protocol):
    """What the engine needs of a model; ``OrtRunner`` is one, the tests have another. Used by one thread only."""

    @property
    def version(self) -> Version:
        """Which weights it runs."""

    @property
    def slots(self) -> int:
        """Rows of the KV buffers that requests may have; one more is spare."""

    @property
    def max_length(self) -> int:
        """Tokens that a row holds: prompt and answer together."""

    @property
    def token_bytes(self) -> int:
        """Bytes of keys and values of one token."""

    def encode(self, packed: Packed) -> Selected:
        """The visual tokens of the packed pictures, features float32 ``[N, E]`` as wide as the rows of an embedding;
        all of them, unless ``packed`` says how many to keep."""

    def prefill(self, row: int, chunk: Chunk) -> tuple[Floats, Floats]:
        """Write ``chunk`` into KV row ``row``; logits float32 ``[vocab]`` and evidence float32 ``[start + S]`` of its
        last position, zeros where the graph has none. Both are the caller's until the next call."""

    def verify(self, row: int, tokens: Sequence[int], position: int, length: int) -> Floats:
        """Write ``tokens``, the first of which stands at ``position``, into KV row ``row`` behind the ``length`` that
        are there. Logits float32 ``[len(tokens), vocab]`` of all of them, the caller's until the next call."""

    def decode(self, tokens: Sequence[int], positions: Sequence[int], lengths: Sequence[int]) -> Floats:
        """One token for each of the KV rows ``0 .. n-1``, which hold ``lengths`` tokens so far; ``positions`` are
        those of the new tokens. Logits float32 ``[n, vocab]``, the caller's until the next call."""

    def complete(self, logits: Floats, exact: Sequence[bool]) -> Floats:
        """The ``logits`` of the run before, as they may be drawn from: where the vocabulary is trimmed, those of all
        tokens in the rows that have to be ``exact``, and in those that are not sure (``trimmed.py``)."""

    def move(self, move: Move, length: int) -> None:
        """Copy the first ``length`` tokens of one KV row into another."""

    def read(self, row: int, length: int) -> tuple[Floats, ...]:
        """A copy of the first ``length`` tokens of a KV row: per buffer float32 ``[kv_heads, length, head_dim]``."""

    def write(self, row: int, kv: tuple[Floats, ...], length: int) -> None:
        """Put the first ``length`` tokens of what ``read`` gave into a KV row."""


class OrtRunner:
    """A bundle's graphs in ONNX Runtime on the CPU."""

    def __init__(self, bundle: Bundle, options: EngineOptions, sessions: Sessions | None = None) -> None:
        """Open the graphs, where ``sessions`` are not given, and run each once, so that the first request finds
        everything in place. Raises ``Damaged``."""
        sessions = sessions or open_sessions(bundle, options)
        text = bundle.model["text"]
        self.sessions = sessions
        self.version = sessions.version
        # None where text alone is read, or features come from elsewhere.
        self._vision: Any = sessions.graphs.get("vision")
        self._embed, self._decoder = sessions.graphs["embed"], sessions.graphs[DECODER]
        self._prefill = sessions.graphs.get(PREFILL, self._decoder)  # the same weights, laid out for many rows
        self._axes = int(text.get("position_axes", 3))
        self.slots = options.slots
        self.max_length = int(text["max_length"])
        self._state = int(text["hidden_size"])
        self._hidden = int(text.get("embedding_size", text["hidden_size"]))
        self._vocab = int(text["vocab_size"])
        size = int(text["head_dim"])
        # As many key/value heads as the graph has: the layers of a pruned model differ from one another.
        heads = {one.name: int(one.shape[1]) for one in self._decoder.get_inputs() if one.name.startswith("past.")}
        self.token_bytes = sum(heads.values()) * size * 4
        # Zeros that nobody has written to take no memory, so that rows cost what is in them.
        self.zones = zones = RedZones(options.red_zone_bytes, options.red_zone_every)
        self._kv = {
            name.removeprefix("past."): zones.lasting(name, (self.slots + 1, count, self.max_length, size))
            for name, count in heads.items()
        }
        self._shows = any(one.name == "evidence" for one in self._decoder.get_outputs())  # not where all is text
        weighs = any(one.name == KEY_BIAS for one in self._decoder.get_inputs())
        self._key_bias = zones.lasting(KEY_BIAS, (self.slots + 1, self.max_length)) if weighs else None
        self._selects = self._vision is not None and any(one.name == KEEP for one in self._vision.get_inputs())
        self._trim = TrimmedHead(bundle, sessions.graphs[HEAD]) if HEAD in sessions.graphs else None
        self._made = self._vocab if self._trim is None else len(self._trim.kept)  # logits that the decoder makes
        self._last_hidden: Floats = np.zeros((0, 0), np.float32)
        self._decoding: dict[int, _DecodeBinding] = {}
        self._rows: dict[tuple[int, bool], Any] = {}  # by row, and whether it is for prompts
        self._embeds = zones.lasting("inputs_embeds", (1, self.max_length, self._hidden))
        self._giving_back = ort.RunOptions()
        self._giving_back.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        try:
            self._warm(bundle.model)
        except Exception as error:
            raise Damaged("The graphs do not run as model.json describes them; compile the bundle anew.") from error

    def encode(self, packed: Packed) -> Selected:
        """See ``Runner``."""
        feeds, options = packed.feeds(), self._run_options(packed.patches)
        if not self._selects:
            (features,) = self._vision.run(["features"], feeds, options)
            return Selected(features, np.arange(len(features)))
        everything = np.full(len(packed.segment_ids), len(packed.segment_ids), np.int64)
        outputs = self._vision.run(["features", "kept", "counts"], {KEEP: everything} | feeds, options)
        return Selected(*outputs)

    def prefill(self, row: int, chunk: Chunk) -> tuple[Floats, Floats]:
        """See ``Runner``."""
        evidence = self.zones.passing("evidence", (1, chunk.start + len(chunk.ids)))
        logits = self._run(row, chunk, np.array([len(chunk.ids) - 1], np.int64), evidence, prompt=True)
        return logits[0], evidence[0]

    def verify(self, row: int, tokens: Sequence[int], position: int, length: int) -> Floats:
        """See ``Runner``."""
        size = len(tokens)
        places = np.arange(size)
        positions = np.broadcast_to(position + places, (self._axes, size))
        chunk = Chunk(np.array(tokens, np.int64), positions, length, places[:0], None)
        return self._run(row, chunk, places, self.zones.passing("evidence", (1, length + size)), prompt=False)

    def decode(self, tokens: Sequence[int], positions: Sequence[int], lengths: Sequence[int]) -> Floats:
        """See ``Runner``."""
        self._check_room(max(lengths) + 1)
        rows = len(tokens)
        if rows not in self._decoding:
            self._decoding[rows] = _DecodeBinding(self, rows)
        logits = self._decoding[rows].run(tokens, positions, lengths)
        if self._trim is None:
            return logits
        self._last_hidden = self._decoding[rows].hidden[:, 0]
        return self._trim.widened(logits)

    def complete(self, logits: Floats, exact: Sequence[bool]) -> Floats:
        """See ``Runner``."""
        if self._trim is not None:
            self._trim.complete(logits, self._last_hidden, exact)
        return logits

    def move(self, move: Move, length: int) -> None:
        """See ``Runner``."""
        for buffer in self._kv.values():
            buffer[move.target, :, :length] = buffer[move.source, :, :length]
        if self._key_bias is not None:
            self._key_bias[move.target] = self._key_bias[move.source]

    def read(self, row: int, length: int) -> tuple[Floats, ...]:
        """See ``Runner``."""
        return tuple(buffer[row, :, :length].copy() for buffer in self._rows_of_tokens())

    def write(self, row: int, kv: tuple[Floats, ...], length: int) -> None:
        """See ``Runner``."""
        for buffer, kept in zip(self._rows_of_tokens(), kv, strict=True):
            buffer[row, :, :length] = kept[:, :length]

    def _rows_of_tokens(self) -> list[Floats]:
        """Everything that is kept per token, as ``[slots + 1, heads, max_length, size]``."""
        bias = [] if self._key_bias is None else [self._key_bias[:, None, :, None]]
        return [*self._kv.values(), *bias]

    def _run(self, row: int, chunk: Chunk, wanted: Numbers, evidence: Floats, *, prompt: bool) -> Floats:
        """Logits float32 ``[len(wanted), vocab]`` at the places ``wanted`` of the chunk; ``evidence`` is filled."""
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
        # Which session reads it follows from what it is, not from how long: so a prompt in chunks, or behind a prefix
        # that was taken over, comes out as in one piece, and guesses are checked by the session that draws tokens.
        decoder = self._prefill if prompt else self._decoder
        if (row, prompt) not in self._rows:
            self._rows[row, prompt] = self._bind_rows(decoder, row, row + 1)
        io = self._rows[row, prompt]
        if self._key_bias is not None:
            self._key_bias[row, chunk.start :] = 0
            if chunk.bias is not None:
                self._key_bias[row, chunk.start : total] = chunk.bias
        io.bind_ortvalue_input("inputs_embeds", _value(embeds))
        io.bind_cpu_input("position_ids", np.ascontiguousarray(chunk.positions[:, None]))
        io.bind_cpu_input("seqlens_k", np.array([total - 1], np.int32))
        io.bind_cpu_input("total_sequence_length", np.array(total, np.int32))
        io.bind_cpu_input("logit_index", wanted)
        logits = self.zones.passing("logits", (1, len(wanted), self._made))
        io.bind_ortvalue_output("logits", _value(logits))
        if self._trim is not None:
            hidden = self.zones.passing("hidden", (1, len(wanted), self._state))
            io.bind_ortvalue_output("hidden", _value(hidden))
            self._last_hidden = hidden[0]
        if self._shows:
            io.bind_ortvalue_output("evidence", _value(evidence))
        decoder.run_with_iobinding(io, self._run_options(size))
        self.zones.check()
        rows: Floats = logits[0]
        return rows if self._trim is None else self._trim.widened(rows)

    def _bind_rows(self, decoder: Any, first: int, last: int) -> Any:
        """A session of the decoder over rows ``first .. last-1``: every KV buffer as past and present at once."""
        io = decoder.io_binding()
        for name, buffer in self._kv.items():
            rows = _value(buffer[first:last])
            io.bind_ortvalue_input(f"past.{name}", rows)
            io.bind_ortvalue_output(f"present.{name}", rows)
        if self._key_bias is not None:
            io.bind_ortvalue_input(KEY_BIAS, _value(self._key_bias[first:last]))
        return io

    def _run_options(self, rows: int) -> Any:
        return self._giving_back if rows > LARGE_ROWS else None

    def _check_room(self, tokens: int) -> None:
        # The kernel writes where `seqlens_k` points and does not ask how long the row is.
        if tokens > self.max_length:
            raise IndexError(f"{tokens} tokens do not fit a KV row of {self.max_length}")

    def _warm(self, model: Mapping[str, Any]) -> None:
        """One small run of every graph: kernels are set up and weights paged in before the first request."""
        geometry = geometry_of(model)
        if geometry is not None and self._vision is not None:
            blank = Picture(np.zeros((8, 8, 3), np.uint8), (8, 8), "PNG")
            self.encode(geometry.pack([blank], geometry.fit([blank.original])))
        ids = np.zeros(2, np.int64)
        self.prefill(0, Chunk(ids, np.zeros((self._axes, 2), np.int64), 0, ids[:0], None))
        self.decode([0], [2], [2])


class _DecodeBinding:
    """Everything that a decode step of ``rows`` requests needs, bound once; its arrays are rewritten in place."""

    def __init__(self, runner: OrtRunner, rows: int) -> None:
        self._embed, self._decoder = runner._embed, runner._decoder
        self._ids = np.zeros((rows, 1), np.int64)
        self._positions = np.zeros((runner._axes, rows, 1), np.int64)
        self._seqlens = np.zeros(rows, np.int32)
        self._total = np.zeros((), np.int32)
        self._wanted = np.zeros(1, np.int64)
        self._zones = runner.zones
        self._logits = self._zones.lasting(f"logits of {rows}", (rows, 1, runner._made))
        self.hidden = self._zones.lasting(f"hidden of {rows}", (rows, 1, runner._state))
        embeds = _value(self._zones.lasting(f"inputs_embeds of {rows}", (rows, 1, runner._hidden)))
        self._embed_io = self._embed.io_binding()
        self._embed_io.bind_ortvalue_input("input_ids", _value(self._ids))
        self._embed_io.bind_ortvalue_output("inputs_embeds", embeds)
        io = self._io = runner._bind_rows(self._decoder, 0, rows)
        io.bind_ortvalue_input("inputs_embeds", embeds)
        io.bind_ortvalue_input("position_ids", _value(self._positions))
        io.bind_ortvalue_input("seqlens_k", _value(self._seqlens))
        io.bind_ortvalue_input("total_sequence_length", _value(self._total))
        io.bind_ortvalue_input("logit_index", _value(self._wanted))
        io.bind_ortvalue_output("logits", _value(self._logits))
        if runner._trim is not None:
            io.bind_ortvalue_output("hidden", _value(self.hidden))
        # `evidence` is not bound, so nothing is copied out. It is computed all the same: the option that skips what no
        # bound output needs walks the graph anew in every run, which cost more than it saved (90 against 5 µs).

    def run(self, tokens: Sequence[int], positions: Sequence[int], lengths: Sequence[int]) -> Floats:
        self._ids[:, 0] = tokens
        self._positions[:, :, 0] = positions  # text has the same position on all axes
        self._seqlens[:] = lengths  # keys that count, the new one included, minus one
        self._total[...] = max(lengths) + 1
        self._embed.run_with_iobinding(self._embed_io)
        self._decoder.run_with_iobinding(self._io)
        self._zones.check()
        return self._logits[:, 0]


def _value(array: np.ndarray[Any, Any]) -> Any:
    """An ``OrtValue`` over the memory of ``array`` itself.

    A binding keeps the array alive in ONNX Runtime 1.32; in 1.24, which onnxruntime-openvino is, it does not: whoever
    binds has to.
    """
    return ort.OrtValue.ortvalue_from_numpy(array)
