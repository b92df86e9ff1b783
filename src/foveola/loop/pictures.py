"""From records to what is learnt from: pictures are de-identified, once, before anything else sees them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from foveola.exchange import BadImage, Invalid, Refusal
from foveola.guard.privacy import Deidentifier
from foveola.intake import Limits, decode
from foveola.learn.distil.records import Record
from foveola.learn.distil.tail import Example


class Pictures:
    """Decodes, de-identifies and scales pictures to ``size`` (height, width).

    What came out of de-identification is kept in ``folder`` under the digest of what went in, so that a run that goes
    on need not search again. ``deidentifier`` None: the pictures are known to show no person.
    """

    def __init__(self, deidentifier: Deidentifier | None, folder: Path, size: tuple[int, int]) -> None:
        self._deidentifier, self._folder, self._size = deidentifier, folder, size
        self.erased = 0

    def examples(
        self,
        records: Sequence[Record],
        classes: Sequence[str],
        *,
        old: bool = False,
        told: Callable[[], None] = lambda: None,
    ) -> list[Example]:
        """One example per record. Raises ``Invalid`` for a class that is not among ``classes``, ``BadImage``."""
        return [self._example(one, classes, old, told) for one in records]

    def _example(self, record: Record, classes: Sequence[str], old: bool, told: Callable[[], None]) -> Example:
        names = [record.label] if record.label is not None else []
        names += [box[0] for box in record.boxes or ()]
        for name in names:
            if name not in classes:
                raise Invalid(
                    f"{record.image.name} is of the class {name!r}; expected one of {', '.join(classes)}.",
                    field="classes",
                )
        rgb = decode(self._private(record.image), Limits()).rgb
        small = Image.fromarray(rgb).resize(self._size[::-1], Image.Resampling.BICUBIC)
        told()
        boxes = None
        if record.boxes is not None:
            rows = [[classes.index(name), *corners] for name, *corners in record.boxes]
            boxes = np.array(rows, np.float32).reshape(-1, 5)
        label = -1 if record.label is None else classes.index(record.label)
        return Example(np.asarray(small, np.uint8), label, boxes, boxes is not None, old)

    def _private(self, path: Path) -> bytes:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise BadImage(f"{path.name} cannot be read ({error.strerror}); name a picture's file.") from None
        if self._deidentifier is None:
            return data
        kept = self._folder / hashlib.sha256(data).hexdigest()
        if kept.is_file():
            return kept.read_bytes()
        try:
            done = self._deidentifier.picture(data, name=path.name)
        except Refusal as refusal:
            raise BadImage(f"{path.name}: {refusal.message}") from None
        self.erased += len(done.regions)
        self._folder.mkdir(parents=True, exist_ok=True)
        staged = kept.with_suffix(".partial")
        staged.write_bytes(done.data)
        os.replace(staged, kept)
        return done.data
