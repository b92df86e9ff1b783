"""Write the figures of bench/results/ into the marked regions of README.md and docs/, or check that they are there.

python bench/figures.py            fills every region
python bench/figures.py --check    changes nothing; exit code 1 where a region has drifted
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from foveola.bench.marked import drifted, load_results, rendered
from foveola.exchange import Refusal

ROOT = Path(__file__).resolve().parent.parent


def documents(root: Path) -> list[Path]:
    found = [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md"))]
    return [path for path in found if path.is_file()]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing, tell what has drifted")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    arguments = parser.parse_args(argv)
    stale = 0
    try:
        results = load_results(arguments.root / "bench" / "results")
        for path in documents(arguments.root):
            text = path.read_text(encoding="utf-8")
            name = path.relative_to(arguments.root)
            if arguments.check:
                for region in drifted(text, results):
                    stale += 1
                    print(f"{name}: the figures {region!r} are not those of bench/results; run python bench/figures.py")
            elif (new := rendered(text, results)) != text:
                path.write_text(new, encoding="utf-8")
                print(f"{name}: written")
    except Refusal as refusal:
        print(f"figures.py: {refusal.message}", file=sys.stderr)
        return 2
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
