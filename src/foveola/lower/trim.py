"""Trim the head of a bundle to the tokens of a domain, and prove on the domain's own questions that nothing changes.

The first half of the questions says which tokens are kept: those of its answers, and of the words of all questions. On
the answers to the second half it is looked up how sure the trimmed head would have been where the full one says a token
that was not kept; the engine asks the full head wherever the trimmed one is no surer than that (``engine.trimmed``).
Then the trimmed bundle answers all questions: every answer has to be what the full one's was, or nothing is written.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from foveola.artifact import Bundle, Finding, write_bundle
from foveola.artifact.bundle import MODEL_FILE
from foveola.exchange import Invalid, Unsupported
from foveola.lower.aligned import save_aligned

Numbers = NDArray[np.int64]
Floats = NDArray[np.float32]
HEAD, HEAD_FILE, KEPT_FILE = "head", "head.onnx", "kept_tokens.npy"
MARGIN = 0.01
"""How much surer than at the surest mistake that was seen the trimmed head has to be."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A question's answer: its ``tokens`` and, where a choice of tokens was named, how ``sure`` a head of those alone
    would have been at each: the probability of its likeliest, float ``[n]``."""

    tokens: tuple[int, ...]
    sure: Floats


Ask = Callable[[Bundle, "Numbers | None"], Sequence[Answered]]
"""Answers the domain's questions greedily with a bundle, watched by a head of the named tokens, if any."""


def kept_tokens(answers: Sequence[Answered], words: Sequence[int], ends: Sequence[int], vocabulary: int) -> Numbers:
    """The tokens of ``answers`` and ``words``, and those that end an answer, ascending."""
    every = {*words, *ends, *(token for answer in answers for token in answer.tokens)}
    return np.array(sorted(token for token in every if 0 <= token < vocabulary), np.int64)


def least_probability(answers: Sequence[Answered], kept: Numbers) -> float:
    """How sure a trimmed head has to be so that no token of ``answers`` changes: a little more than it was where the
    full head said a token that is not ``kept``. 0 where there is no such place; above 1 it is never sure enough."""
    inside = set(kept.tolist())
    missed = [
        float(sure)
        for answer in answers
        for token, sure in zip(answer.tokens, answer.sure, strict=True)
        if token not in inside
    ]
    return max(missed) + MARGIN if missed else 0.0


def split(model: ir.Model, kept: Numbers) -> tuple[ir.Model, ir.Model]:
    """A decoder as one whose ``logits`` are those of the ``kept`` tokens, with the state before its head as another
    output ``hidden``; and the full head, hidden f32 [B, R, H] -> logits f32 [B, R, V].

    Raises ``Unsupported`` where the head is no product by one matrix.
    """
    decoder, head = model.clone(), model.clone()
    _narrow(decoder, kept)
    _alone(head)
    return decoder, head


def _product(graph: ir.Graph) -> ir.Node:
    """The node that multiplies the last state by the head's matrix."""
    node = next(output for output in graph.outputs if output.name == "logits").producer()
    if node is not None and node.op_type == "Add":  # a bias
        node = next((made for one in node.inputs if one is not None and (made := one.producer()) is not None), None)
    if node is None or node.op_type not in ("MatMul", "MatMulNBits"):
        kind = "nothing" if node is None else node.op_type
        raise Unsupported(f"The head of this bundle ends in {kind}; only a product by one matrix can be trimmed.")
    return node


def _above(start: Sequence[ir.Value | None]) -> tuple[list[ir.Node], dict[str, ir.Value]]:
    """All nodes that ``start`` is made by, and the constants that they read."""
    nodes: list[ir.Node] = []
    constants: dict[str, ir.Value] = {}
    left = [value for value in start if value is not None]
    while left:
        value = left.pop()
        producer = value.producer()
        if producer is None:
            constants[str(value.name)] = value
        elif producer not in nodes:
            nodes.append(producer)
            left += [one for one in producer.inputs if one is not None]
    return nodes, constants


def _head(graph: ir.Graph) -> tuple[ir.Value, list[ir.Node], dict[str, ir.Value]]:
    """The state before the head, the head's own nodes, and its constants."""
    product = _product(graph)
    hidden = product.inputs[0]
    assert hidden is not None
    last = next(output for output in graph.outputs if output.name == "logits").producer()
    assert last is not None
    beside = [one for node in {product, last} for one in node.inputs if one not in (hidden, *product.outputs)]
    nodes, constants = _above(beside)
    return hidden, [*nodes, product, *([last] if last is not product else [])], constants


def _narrow(model: ir.Model, kept: Numbers) -> None:
    """Cut the constants of the head to the rows of ``kept``."""
    graph = model.graph
    logits = next(output for output in graph.outputs if output.name == "logits")
    hidden, nodes, constants = _head(graph)
    vocabulary = 0
    for value, axis in _outer(nodes, constants):
        assert value.const_value is not None
        whole = value.const_value.numpy()
        vocabulary = whole.shape[axis]
        _set(value, np.take(whole, kept, axis=axis))
    for value in constants.values():  # the shape of a matrix that is unpacked at load
        content = None if value.const_value is None else value.const_value.numpy()
        if content is not None and content.dtype == np.int64 and content.ndim == 1 and content.size > 1:
            _set(value, np.where(content == vocabulary, len(kept), content))
    for node in nodes:
        if "N" in node.attributes:
            node.attributes["N"] = ir.AttrInt64("N", len(kept))
        for output in node.outputs:
            if output.name != "logits":
                output.shape = None
    assert logits.shape is not None
    logits.shape = ir.Shape([*logits.shape[:-1], len(kept)])
    hidden.name = "hidden"
    graph.outputs.append(hidden)


def _outer(nodes: Sequence[ir.Node], constants: Mapping[str, ir.Value]) -> list[tuple[ir.Value, int]]:
    """The constants with a row per token, and the axis of it: the first where few bits are multiplied as they are, the
    last where they are unpacked before."""
    axis = 0 if any(node.op_type == "MatMulNBits" for node in nodes) else -1
    rows = {
        name: int(tensor.shape.numpy()[axis])
        for name, value in constants.items()
        if (tensor := value.const_value) is not None and tensor.size > 1 and tensor.dtype != ir.DataType.INT64
    }
    vocabulary = max(rows.values(), default=0)
    return [(constants[name], axis) for name, length in rows.items() if length == vocabulary]


def _set(value: ir.Value, content: NDArray[Any]) -> None:
    tensor = ir.tensor(np.ascontiguousarray(content), name=value.name)
    value.const_value = tensor
    value.shape = ir.Shape(content.shape)


def _alone(model: ir.Model) -> None:
    """Keep the head only; its input is ``hidden``."""
    graph = model.graph
    logits = next(output for output in graph.outputs if output.name == "logits")
    hidden, nodes, constants = _head(graph)
    given = ir.Value(name="hidden", type=ir.TensorType(ir.DataType.FLOAT), shape=hidden.shape)
    for node in nodes:
        for place, one in enumerate(node.inputs):
            if one is hidden:
                node.replace_input_with(place, given)
    graph.outputs[:] = [logits]
    graph.remove([node for node in graph if node not in nodes], safe=False)
    graph.inputs[:] = [given]
    for name in [name for name in graph.initializers if name not in constants]:
        del graph.initializers[name]
    model.metadata_props.clear()  # a patch of the head's weights is refused by the decoder, whose rows are fewer


def write_trimmed(bundle: Bundle, out: Path, kept: Numbers, least: float, finding: Finding, *, replace: bool) -> Bundle:
    """A copy of ``bundle`` at ``out`` with two heads, sealed."""
    file = bundle.model["graphs"]["decoder"]
    decoder, head = split(ir.load(bundle.file(file)), kept)
    model = dict(bundle.model)
    model["graphs"] = {**bundle.model["graphs"], HEAD: HEAD_FILE}
    model["trim"] = {"least_probability": round(least, 6)}

    def write(folder: Path) -> None:
        for name in bundle.files:
            if name not in (MODEL_FILE, file, f"{file}.data"):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(bundle.file(name), folder / name)
        (folder / MODEL_FILE).write_text(json.dumps(model, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        np.save(folder / KEPT_FILE, kept)
        save_aligned(decoder, folder / file)
        save_aligned(head, folder / HEAD_FILE)

    return write_bundle(out, name=bundle.name, files=write, lineage=(*bundle.lineage, finding), replace=replace)


def trim(
    bundle: Bundle, out: Path, ask: Ask, words: Sequence[int], ends: Sequence[int], *, replace: bool = False
) -> tuple[Bundle, dict[str, Any]]:
    """Trim ``bundle`` to what ``ask`` has it say, and write it to ``out`` with the proof in its lineage.

    ``ask`` answers the domain's questions, greedily, with the bundle that it is given. Raises ``Invalid`` where there
    are fewer than two questions, where nothing would be saved, or where an answer changes.
    """
    if HEAD in bundle.model["graphs"]:
        raise Invalid(
            "This bundle's vocabulary is trimmed already; trim the one that it was made from.", field="bundle"
        )
    if bundle.vault is not None:
        raise Invalid("A sealed bundle cannot be trimmed; trim it first, and seal what comes out.", field="bundle")
    started = time.perf_counter()
    vocabulary = int(bundle.model["text"]["vocab_size"])
    answers = ask(bundle, None)
    if len(answers) < 2:
        raise Invalid(f"There are {len(answers)} questions; half of them are held out, so at least 2 are needed.")
    kept = kept_tokens(answers[::2], words, ends, vocabulary)
    held_out = ask(bundle, kept)[1::2]
    least = least_probability(held_out, kept)
    unsure = float(np.mean(np.concatenate([answer.sure for answer in held_out]) < least))
    if least >= 1 or len(kept) * 2 > vocabulary:
        raise Invalid(
            f"Nothing would be saved: {len(kept)} of {vocabulary} tokens are kept, and the full head would be asked "
            f"for {unsure:.0%} of the held-out tokens. Give more questions of a narrower domain."
        )
    told = {
        "kept": len(kept),
        "vocabulary": vocabulary,
        "least_probability": round(least, 6),
        "asked_full_head": round(unsure, 4),
        "questions": len(answers),
        "held_out": len(held_out),
    }
    finding = Finding(
        step="lower.trim",
        changed=f"head of {len(kept)} tokens before the full one of {vocabulary}; all {len(answers)} answers unchanged",
        after=told,
        seconds=time.perf_counter() - started,
    )
    with tempfile.TemporaryDirectory() as folder:
        trial = write_trimmed(bundle, Path(folder) / "trial", kept, least, finding, replace=False)
        changed = sum(a.tokens != b.tokens for a, b in zip(answers, ask(trial, None), strict=True))
    if changed:
        raise Invalid(f"{changed} of {len(answers)} answers changed; nothing was written. Give more questions.")
    return write_trimmed(bundle, out, kept, least, finding, replace=replace), told
