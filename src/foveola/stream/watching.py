"""A stream, watched: every frame gets an answer; what the eye says is the same gets the answer that it had."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

from foveola.artifact import Bundle
from foveola.engine.engine import Engine
from foveola.engine.features import Selected
from foveola.engine.options import EngineOptions
from foveola.engine.prepare import Preparation
from foveola.engine.seer import VisionGraph
from foveola.exchange import Invalid, Request, Sampling, Turn, Unavailable, Usage
from foveola.intake.geometries import geometry_of
from foveola.intake.geometry import Packed
from foveola.intake.image import Picture
from foveola.intake.views import View
from foveola.stream.eye import Eye, Glance, Mode
from foveola.stream.motion import STILL, Camera, Gyroscope
from foveola.stream.options import StreamOptions
from foveola.stream.scene import Answered, Floats
from foveola.stream.sources import Frame


@dataclass(frozen=True, slots=True)
class Seen:
    """A frame and what was said to it. Times are seconds; ``answer_reused``: nobody had to be asked.

    See ``Glance`` for the rest.
    """

    index: int
    time_s: float
    name: str
    text: str
    mode: Mode
    omega: float
    phi: float
    window: int
    cells: int
    reused: int
    answer_reused: bool
    error: float | None
    look_s: float
    ask_s: float


class _FramePreparation(Preparation):
    """Gets pictures and features by the id of the request, instead of from its bytes."""

    def __init__(self, *parts: Any, **named: Any) -> None:
        super().__init__(*parts, **named)
        self._glances: dict[str, Glance] = {}

    def hand_over(self, request_id: str, glance: Glance) -> None:
        """What the next request of this id is about."""
        self._glances[request_id] = glance

    def _decode(self, request: Request) -> list[Picture]:
        return [self._glances[request.id].picture]

    def _look(
        self, request: Request, pictures: list[Picture], views: Any, keep: int | None
    ) -> tuple[Packed | None, tuple[Selected, ...]]:
        glance = self._glances.pop(request.id)
        [view] = cast("tuple[View, ...]", views)
        if view.use.used != glance.view.use.used:  # the prompt leaves less room than the eye had taken
            return super()._look(request, pictures, views, keep)
        return None, (glance.features,)


class Watcher:
    """One model and any number of cameras, each with an ``Eye`` of its own. ``watch`` of one camera is one thread's."""

    def __init__(self, bundle: Bundle, options: EngineOptions | None = None) -> None:
        """Open the bundle. Raises ``Damaged`` or ``Invalid``."""
        options = options or EngineOptions()
        geometry = geometry_of(bundle.model)
        self._vision = VisionGraph(bundle, options)
        if self._vision.selects:
            raise Invalid(
                "This bundle chooses among visual tokens inside the vision graph, and a stream keeps them all; "
                "compile one without --select-after.",
                field="bundle",
            )
        assert geometry is not None  # a bundle with a vision graph has one
        self._geometry = geometry
        preparation = _FramePreparation.open(bundle)
        assert isinstance(preparation, _FramePreparation)
        self._preparation = preparation
        self._engine = Engine.open(bundle, options, preparation=preparation)

    def close(self) -> None:
        """Stop the engine."""
        self._engine.close(0.0)

    def eye(
        self, options: StreamOptions | None = None, *, camera: Camera | None = None, gyroscope: Gyroscope = STILL
    ) -> Eye:
        """An eye for one camera."""

        def encode(packed: Packed) -> Floats:
            return self._vision(packed).features

        return Eye(self._geometry, encode, options, camera=camera, gyroscope=gyroscope)

    def watch(
        self, frames: Iterable[Frame], eye: Eye, question: str, *, max_tokens: int = 32, camera: str = "camera"
    ) -> Iterator[Seen]:
        """What the model says to each frame, greedily. Raises what the engine refuses."""
        for frame in frames:
            yield self.see(frame, eye, question, max_tokens=max_tokens, camera=camera)

    def see(self, frame: Frame, eye: Eye, question: str, *, max_tokens: int = 32, camera: str = "camera") -> Seen:
        """One frame."""
        began = time.perf_counter()
        glance = eye.look(frame.picture, frame.time_s)
        looked = time.perf_counter()
        known = glance.answered is not None and glance.answered.question == question
        if known and glance.answered is not None:
            text = glance.answered.text
        else:
            text, usage = self._ask(f"{camera}-{frame.index}", glance, question, max_tokens)
            attention = usage.evidence[0].weights if usage.evidence else ()
            eye.answered(Answered(question, text, attention))
        return Seen(
            index=frame.index,
            time_s=frame.time_s,
            name=frame.name,
            text=text,
            mode=glance.mode,
            omega=glance.omega,
            phi=glance.phi,
            window=glance.window,
            cells=glance.cells,
            reused=glance.reused,
            answer_reused=known,
            error=glance.error,
            look_s=looked - began,
            ask_s=time.perf_counter() - looked,
        )

    def _ask(self, request_id: str, glance: Glance, question: str, max_tokens: int) -> tuple[str, Usage]:
        self._preparation.hand_over(request_id, glance)
        request = Request(request_id, (Turn("user", question, (b"frame",)),), Sampling(max_tokens=max_tokens))
        texts = []
        for piece in self._engine.pieces(request):
            texts.append(piece.text)
            if piece.usage is not None:
                return "".join(texts), piece.usage
        raise Unavailable("The engine stopped in the middle of an answer; look at its log.")
