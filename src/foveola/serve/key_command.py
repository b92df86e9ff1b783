"""``foveola key NAME``: make an API key; the key is shown once, the entry goes into the file of keys."""

from __future__ import annotations

import argparse
import json

from foveola.exchange import Invalid
from foveola.serve.keys import NAME, ROLES, new_key


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("name", metavar="NAME", help="what logs and metrics will call whoever has the key")
    parser.add_argument("--role", action="append", choices=ROLES, help="what it opens; may be repeated (default: ask)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(arguments: argparse.Namespace) -> int:
    """Print the key and its entry; returns 0. Raises ``Invalid`` for a name that no file of keys may hold."""
    if not NAME.fullmatch(arguments.name):
        raise Invalid(f"{arguments.name!r} is no good name; expected 1 to 64 letters, digits, `.`, `_` or `-`.")
    roles = arguments.role or ["ask"]
    key, digest = new_key()
    if arguments.json:
        print(json.dumps({"key": key, "name": arguments.name, "sha256": digest, "roles": roles}))
        return 0
    print(f"The key, shown only now:\n\n    {key}\n\nIts entry for the file of keys:\n")
    print(f'[[key]]\nname = "{arguments.name}"\nsha256 = "{digest}"\nroles = {json.dumps(roles)}')
    return 0
