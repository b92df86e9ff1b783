"""Write the chart's CRDs anew: ``python -m tests.rollout.write_crds``."""

from __future__ import annotations

from pathlib import Path

import yaml

from foveola.rollout.crd import crds

CHART = Path(__file__).resolve().parents[2] / "deploy" / "chart" / "foveola"
HEAD = "# Written by: python -m tests.rollout.write_crds\n"


def texts() -> dict[Path, str]:
    """The text of each file."""
    return {
        CHART / "crds" / f"{one['spec']['names']['plural']}.yaml": HEAD
        + yaml.safe_dump(one, sort_keys=False, width=120, allow_unicode=True)
        for one in crds()
    }


if __name__ == "__main__":
    for path, text in texts().items():
        path.write_text(text, encoding="utf-8")
