from __future__ import annotations

import logging
from pathlib import Path

import pytest

from foveola.artifact import Bundle
from foveola.engine.options import EngineOptions
from foveola.engine.providers import AUTO, CPU, NAMES, PROVIDERS, check_fall_back, providers
from foveola.engine.sessions import open_sessions
from foveola.exchange import Unavailable

GPU = "CUDAExecutionProvider"


def test_the_processor_is_asked_last_and_alone_by_default() -> None:
    assert EngineOptions().provider == "cpu"
    assert providers("cpu", [CPU]) == [CPU]
    assert providers("cuda", [GPU, CPU]) == [GPU, CPU]
    assert set(AUTO) == set(PROVIDERS) == set(NAMES) - {"auto"}


def test_auto_takes_the_first_there_is_and_says_which(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert providers("auto", ["OpenVINOExecutionProvider", GPU, CPU]) == [GPU, CPU]
        assert providers("auto", [CPU]) == [CPU]
    assert caplog.messages == [
        f"provider auto: cuda, of OpenVINOExecutionProvider, {GPU}, {CPU}",
        f"provider auto: cpu, of {CPU}",
    ]


@pytest.mark.parametrize(
    ("name", "package"),
    [("cuda", "onnxruntime-gpu"), ("openvino", "onnxruntime-openvino"), ("cann", "onnxruntime-cann")],
)
def test_what_is_not_installed_is_named_never_replaced(name: str, package: str) -> None:
    with pytest.raises(Unavailable) as caught:
        providers(name, [CPU])
    assert caught.value.message == (
        f"The provider {name} is not installed here: this ONNX Runtime has {CPU}. Install {package}, or choose another "
        "with `provider`."
    )


def test_an_unknown_name() -> None:
    with pytest.raises(ValueError, match="`provider` is 'npu'; expected one of cpu, cuda"):
        providers("npu", [CPU])
    with pytest.raises(ValueError, match="`provider` is 'npu'; expected one of cpu, cuda"):
        EngineOptions(provider="npu")


def test_a_fall_back_is_told_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert check_fall_back([CPU], [CPU], "ort", "vision.onnx") is None
    assert check_fall_back([GPU, CPU], [GPU, CPU], "portable", "vision.onnx") is None
    gone = check_fall_back([GPU, CPU], [CPU], "portable", "vision.onnx")
    assert gone == f"vision.onnx: {GPU} could not be started; the processor runs the whole graph."
    partly = check_fall_back([GPU, CPU], [GPU, CPU], "ort", "decoder.onnx")
    assert partly is not None
    assert "compile with --profile portable for it" in partly
    assert caplog.messages == [gone, partly]


def test_a_bundle_is_opened_with_the_provider_that_was_asked_for() -> None:
    from foveola.serve.embedded import embedded_bundle

    bundle = Bundle.open(Path(embedded_bundle()))
    sessions = open_sessions(bundle, EngineOptions(threads=1, provider="cpu"))
    assert {tuple(session.get_providers()) for session in sessions.graphs.values()} == {(CPU,)}
    with pytest.raises(Unavailable, match="The provider cuda is not installed here"):
        open_sessions(bundle, EngineOptions(threads=1, provider="cuda"))
