"""``python -m foveola`` is the command ``foveola``."""

from foveola.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
