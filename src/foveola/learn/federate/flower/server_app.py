"""The ServerApp: makes or resumes a federation, runs its rounds, writes the prompt."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from foveola.artifact.finding import Finding
from foveola.artifact.prompt import write_prompt
from foveola.exchange import Invalid
from foveola.learn.federate.flower.strategy import PromptStrategy
from foveola.learn.federate.options import FederationOptions
from foveola.learn.federate.rounds import Federation

app = ServerApp()
FIGURES_FILE = "figures.json"


def main(grid: Grid, context: Context) -> None:
    """``run_config`` has the settings of ``foveola federate server``."""
    config = context.run_config
    folder = Path(str(config["folder"]))
    agreed = FederationOptions.over(
        int(config["rounds"]), width=int(config["width"]), keep=float(config["keep"]), rule=str(config["rule"]),
        quorum=int(config["quorum"]),
    )  # fmt: skip
    federation = opened(folder, agreed)
    strategy = PromptStrategy(federation, min_nodes=int(config["min-nodes"]), patience_s=float(config["patience-s"]))
    rounds = int(config["rounds"]) - federation.round
    if rounds > 0:
        strategy.start(grid, ArrayRecord([federation.prompt]), rounds, timeout=float(config["round-s"]))
    figures = {
        "rounds": federation.round, "up_bytes": strategy.up_bytes, "down_bytes": strategy.down_bytes,
        "rejected": dict(strategy.rejected),
    }  # fmt: skip
    lineage = [Finding("federate", "trained over Flower", after={"rounds": federation.round})]
    write_prompt(folder / "prompt", federation.prompt, name="prompt", lineage=lineage, replace=True)
    (folder / FIGURES_FILE).write_text(json.dumps(figures) + "\n", encoding="utf-8")
    print(json.dumps(figures), file=sys.stderr)


app.main()(main)


def opened(folder: Path, agreed: FederationOptions) -> Federation:
    """A new federation in ``folder``, or the one that lies there. Raises ``Invalid`` where that agreed on other
    things."""
    if not (folder / "state").exists():
        folder.mkdir(parents=True, exist_ok=True)
        return Federation.create(agreed, folder)
    federation = Federation.resume(folder)
    if federation.options != replace(agreed, horizon=federation.options.horizon, rate=federation.options.rate):
        raise Invalid(f"{folder.name} holds a federation with other settings; name another folder, or use its own.")
    return federation
