"""``foveola audit verify FILE``: is this log still what was written?"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from foveola.artifact.audit import verify_audit
from foveola.exchange import Damaged


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    tasks = parser.add_subparsers(metavar="WHAT", required=True)
    verify = tasks.add_parser("verify", help="check the chain of hashes from the first line to the last")
    verify.add_argument("file", metavar="FILE", type=Path)
    verify.add_argument("--head", metavar="HASH", help="the hash that the last line must have: shows a cut-off end")
    verify.add_argument("--json", action="store_true", help="print count and head for programs")


def run(arguments: argparse.Namespace) -> int:
    """Verify and print the head. Raises ``Damaged`` naming the line where the chain breaks."""
    head = verify_audit(arguments.file)
    if arguments.head is not None and arguments.head != head.hash:
        raise Damaged(
            f"{arguments.file.name} is a whole chain with another end: its head is {head.hash}. Lines are missing at "
            "the end, or have come since."
        )
    if arguments.json:
        print(json.dumps({"count": head.count, "head": head.hash}))
    else:
        print(f"{arguments.file}: {head.count:,} entries, unbroken; head {head.hash}")
    return 0
