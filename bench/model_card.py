"""Write the embedded model's card: the text of src/foveola/tiny/model_card.in.md with the figures of bench/results/.

    python bench/model_card.py --out model_card.md
    python bench/model_card.py --out model_card.md --check     changes nothing; exit code 1 where it has drifted

The card travels with the checkpoint (`foveola tiny export --card model_card.md`) into the bundle. It quotes a digest
over the graphs and the tokenizer, not the bundle's hash, which a card that quoted it would change.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from foveola.bench.evidence import read
from foveola.bench.marked import rendered
from foveola.exchange import Refusal

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--text", type=Path, default=ROOT / "src/foveola/tiny/model_card.in.md", help="text with regions"
    )
    parser.add_argument("--result", type=Path, default=ROOT / "bench/results/tiny_accuracy.json", help="the figures")
    parser.add_argument("--out", type=Path, default=Path("model_card.md"), help="the card")
    parser.add_argument("--check", action="store_true", help="change nothing, tell whether it has drifted")
    arguments = parser.parse_args(argv)
    try:
        card = rendered(arguments.text.read_text(encoding="utf-8"), {"tiny_accuracy": read(arguments.result)})
    except Refusal as refusal:
        print(f"model_card.py: {refusal.message}", file=sys.stderr)
        return 2
    if arguments.check:
        same = arguments.out.is_file() and arguments.out.read_text(encoding="utf-8") == card
        if not same:
            print(f"{arguments.out.name} is not what the figures say; run python bench/model_card.py")
        return 0 if same else 1
    arguments.out.write_text(card, encoding="utf-8")
    print(f"{arguments.out.name}: written")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
