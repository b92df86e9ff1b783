"""Flower's SuperLink and SuperNode, patient with the processes that they start.

Flower starts a process for every task and wants to hear from it within 30 s. Whoever is later finds its token gone
("Runtime task-token authentication failed"), the update of this round never comes, and nobody tries again. To start one
takes 3 s of a processor; on a machine whose processors others hold it was 50. That time has no setting, so it is
replaced where tasks are given out. How soon a node that is gone is noticed stays as it is.

    python -m foveola.learn.federate.flower.patient flower-superlink --host …
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

START_S = 180
CONSTANT = "HEARTBEAT_DEFAULT_INTERVAL"
"""Of Flower, in seconds: what a task has to begin; afterwards twice as long between two signs of life."""
STATES = ("flwr.supercore.corestate.in_memory_corestate", "flwr.supercore.corestate.sql_corestate")
PROGRAMS = {
    "flower-superlink": ("flwr.superlink.cli", "flower_superlink"),
    "flower-supernode": ("flwr.supernode.cli", "flower_supernode"),
}


def make_patient(states: Sequence[str] = STATES) -> None:
    """Replace the constant. Raises ``AttributeError`` where a state has none: another version of Flower."""
    for name in states:
        state = import_module(name)
        getattr(state, CONSTANT)
        setattr(state, CONSTANT, START_S)


def main() -> None:
    """Run the program that the first argument names, with the others."""
    module, function = PROGRAMS[sys.argv[1]]
    make_patient()
    sys.argv = sys.argv[1:]
    sys.exit(getattr(import_module(module), function)())


if __name__ == "__main__":
    main()
