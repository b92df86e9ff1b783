"""Which of ONNX Runtime's execution providers runs the graphs: named, never guessed, and any fall-back is logged.

The processor always comes last, since it knows every operator: what a provider does not know runs there, node by node.
Graphs of the profile ``ort`` hold operators that only the processor, and in part CUDA, knows; other providers want the
profile ``portable`` (``foveola compile --profile portable``).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from foveola.exchange import Unavailable

log = logging.getLogger(__name__)

CPU = "CPUExecutionProvider"
PROVIDERS = {
    "cpu": CPU,
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
    "cann": "CANNExecutionProvider",
}
_PACKAGE = {
    "cuda": "onnxruntime-gpu",
    "tensorrt": "onnxruntime-gpu, and TensorRT itself",
    "openvino": "onnxruntime-openvino",
    "coreml": "onnxruntime on macOS",
    "cann": "onnxruntime-cann",
}
AUTO = ("tensorrt", "cuda", "cann", "coreml", "openvino", "cpu")
"""The order in which ``auto`` looks."""
NAMES = (*PROVIDERS, "auto")


def providers(name: str, installed: Sequence[str] | None = None) -> list[str]:
    """ONNX Runtime's names for what was asked for, the processor last.

    ``auto`` takes the first of ``AUTO`` that is installed, and says so in the log. Raises ``Unavailable`` naming the
    package for one that is not installed, ``ValueError`` for a name that is none of ``NAMES``.
    """
    if name not in NAMES:
        raise ValueError(f"`provider` is {name!r}; expected one of {', '.join(NAMES)}.")
    if installed is None:
        import onnxruntime as ort  # options are checked without it

        installed = ort.get_available_providers()
    there = list(installed)
    if name == "auto":
        name = next(one for one in AUTO if PROVIDERS[one] in there or one == "cpu")
        log.info("provider auto: %s, of %s", name, ", ".join(there))
    chosen = PROVIDERS[name]
    if chosen not in there:
        raise Unavailable(
            f"The provider {name} is not installed here: this ONNX Runtime has {', '.join(there)}. Install "
            f"{_PACKAGE.get(name, 'onnxruntime')}, or choose another with `provider`."
        )
    return [chosen] if chosen == CPU else [chosen, CPU]


def check_fall_back(asked: Sequence[str], used: Sequence[str], profile: str, file: str) -> str | None:
    """What to tell the operator, if anything: a provider that gave up, or operators that it can't know. Also logged."""
    said = None
    if asked[0] not in used:
        said = f"{file}: {asked[0]} could not be started; the processor runs the whole graph."
    elif asked[0] != CPU and profile == "ort":
        said = (
            f"{file} has operators of ONNX Runtime's own, which {asked[0]} leaves to the processor, all or some; "
            "compile with --profile portable for it."
        )
    if said is not None:
        log.warning(said)
    return said
