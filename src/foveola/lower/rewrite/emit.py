"""The command line of a chip's own compiler, for the graph without our functions: it fuses by itself."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from foveola.lower.rewrite.chips.base import Chip

VENDOR_MODEL = "vendor.onnx"


def command_of(chip: Chip, shapes: Mapping[str, Sequence[int | str]]) -> str:
    """A shell script that compiles ``vendor.onnx`` beside it. Open sizes become -1, which ATC reads as dynamic."""
    sizes = {
        name: ",".join(str(one) if isinstance(one, int) else "-1" for one in shape) for name, shape in shapes.items()
    }
    return "\n".join(("#!/bin/sh", "set -eu", 'cd "$(dirname "$0")"', *_LINES[chip.name](sizes), ""))


def _atc(sizes: Mapping[str, str]) -> list[str]:
    shape = ";".join(f"{name}:{size}" for name, size in sizes.items())
    words = ["atc", f"--model={VENDOR_MODEL}", "--framework=5", "--output=model", "--soc_version=Ascend910B1"]
    words += [f"--input_shape={shape}", "--precision_mode=allow_fp32_to_fp16", "--log=error"]
    return [shlex.join(words)]


def _magicmind(sizes: Mapping[str, str]) -> list[str]:
    words = [
        "onnx_build",
        "--onnx",
        VENDOR_MODEL,
        "--magicmind_model",
        "model.mm",
        "--precision",
        "qint8_mixed_float16",
    ]
    for size in sizes.values():
        words += ["--input_dims", size]
    return [
        "# onnx_build is built from the samples of the MagicMind SDK.",
        shlex.join([*words, "--build_config", "mlu270.json"]),
    ]


def _edgetpu(sizes: Mapping[str, str]) -> list[str]:
    return [
        "# edgetpu_compiler reads int8 TensorFlow Lite; onnx2tf makes it. Calibrate with pictures of your own.",
        shlex.join(["onnx2tf", "-i", VENDOR_MODEL, "-o", "tflite", "-oiqt"]),
        shlex.join(["edgetpu_compiler", "-s", "-o", ".", "tflite/vendor_full_integer_quant.tflite"]),
    ]


_LINES = {"ascend910b": _atc, "mlu270": _magicmind, "edgetpu": _edgetpu}
