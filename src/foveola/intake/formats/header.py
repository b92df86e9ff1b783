"""What every format's reader returns, and the words with which it refuses."""

from __future__ import annotations

from dataclasses import dataclass

from foveola.exchange import BadImage, Unsupported


@dataclass(frozen=True, slots=True)
class Header:
    """A picture before decoding. ``width`` and ``height`` are as stored; ``orientation`` (EXIF 1..8) is still to apply.

    ``body`` is what the decoder gets. ``depth`` is the number of bits per sample of 16-bit grey; ``inverted`` means
    that its 0 is white. ``transparent`` is the one grey level (1 value) or colour (3 values) that means transparent,
    in the decoder's levels. ``frame`` is the part (left, top, right, bottom) that the file fills, where it is not all:
    the rest shows the background.
    """

    format: str
    width: int
    height: int
    body: bytes
    orientation: int = 1
    depth: int = 8
    inverted: bool = False
    transparent: tuple[int, ...] | None = None
    frame: tuple[int, int, int, int] | None = None

    @property
    def upright_size(self) -> tuple[int, int]:
        """(width, height) as a person sees the picture, orientation applied."""
        return (self.height, self.width) if self.orientation >= 5 else (self.width, self.height)


def damaged(name: str, what: str) -> BadImage:
    """The refusal of a file that breaks its format's rules."""
    return BadImage(
        f"The {name} picture is damaged: {what}. Send it again; if it stays so, save it anew.", field="image"
    )


def unsupported(name: str, what: str) -> Unsupported:
    """The refusal of a file that follows rules which are not served here."""
    return Unsupported(f"The {name} picture has {what}, which is not accepted; save it as JPEG or PNG.", field="image")
