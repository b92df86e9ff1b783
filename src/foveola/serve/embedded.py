"""Where the embedded model lies. The edge knows the folder, not the workshop that made it."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from foveola.exchange import Unavailable


def embedded_bundle() -> Path:
    """The directory of the bundle that ships inside the package.

    Raises ``Unavailable`` when this installation has none.
    """
    folder = Path(str(files("foveola"))) / "tiny" / "bundle"
    if not (folder / "manifest.json").is_file():
        raise Unavailable("This installation ships no embedded model; name a bundle directory with --bundle DIR.")
    return folder
