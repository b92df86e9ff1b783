"""How large each picture may be, so that a request fits the vision graph and the context."""

from __future__ import annotations

from collections.abc import Sequence

from foveola.exchange import ImageUse, OverBudget
from foveola.intake.sizes import VisionConfig, smart_resize


def fit_pictures(
    sizes: Sequence[tuple[int, int]], vision: VisionConfig, *, room_tokens: int | None = None
) -> tuple[ImageUse, ...]:
    """The size that each picture of a request gets. ``sizes`` are the originals, (width, height) in pixels.

    Where all together would exceed ``vision.max_patches``, or ``room_tokens`` visual tokens (what the text leaves of
    the context), one common bound on the area is lowered until they fit: small pictures keep their size, large ones
    shrink. It never goes below ``vision.min_pixels``.

    Raises OverBudget when even then they do not fit, BadImage for a picture too long.
    """
    if not sizes:
        return ()
    most = vision.max_patches // vision.merge_size**2
    if room_tokens is not None:
        most = min(most, room_tokens)
    uses = _at_bound(sizes, vision, vision.max_pixels)
    if sum(use.tokens for use in uses) <= most:
        return uses
    smallest = _at_bound(sizes, vision, vision.min_pixels)
    least = sum(use.tokens for use in smallest)
    if least > most:
        plural = "picture needs" if len(sizes) == 1 else "pictures need"
        raise OverBudget(
            f"{len(sizes)} {plural} at least {least} visual tokens, and there is room for {max(most, 0)}. "
            "Send fewer or less elongated pictures, shorten the text, or lower max_tokens.",
            field="image",
        )
    # The count grows with the bound in steps; bisect in units of one visual token's area. `low` always fits.
    low, high = vision.min_pixels, vision.max_pixels
    best = smallest
    while high - low > vision.factor**2:
        middle = (low + high) // 2
        uses = _at_bound(sizes, vision, middle)
        if sum(use.tokens for use in uses) <= most:
            low, best = middle, uses
        else:
            high = middle
    return best


def check_context(prompt_tokens: int, max_tokens: int, max_length: int) -> None:
    """Raise OverBudget unless a prompt and the longest answer asked for fit into the context together."""
    if prompt_tokens + max_tokens > max_length:
        raise OverBudget(
            f"The prompt has {prompt_tokens} tokens and max_tokens is {max_tokens}; together they exceed the "
            f"{max_length} tokens of this model's context. Shorten the text, send smaller or fewer pictures, "
            "or lower max_tokens.",
            field="prompt",
        )


def _at_bound(sizes: Sequence[tuple[int, int]], vision: VisionConfig, max_pixels: int) -> tuple[ImageUse, ...]:
    uses = []
    for width, height in sizes:
        used_height, used_width = smart_resize(height, width, vision.factor, vision.min_pixels, max_pixels)
        tokens = (used_height // vision.factor) * (used_width // vision.factor)
        uses.append(ImageUse(original=(width, height), used=(used_width, used_height), tokens=tokens))
    return tuple(uses)
