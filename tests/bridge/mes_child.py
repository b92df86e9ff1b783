"""A MES consumer that kills itself: ``python -m tests.bridge.mes_child LEDGER BOOTSTRAP [POINT NTH]``."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from foveola.bridge.kafka import KafkaOptions
from foveola.bridge.mes import Ledger, MesConsumer


def main() -> None:
    ledger, bootstrap, *rest = sys.argv[1:]
    point, nth = (rest[0], int(rest[1])) if rest else ("", 0)
    passed = 0

    def probe(name: str) -> None:
        nonlocal passed
        if name == point:
            passed += 1
            if passed == nth:
                os.kill(os.getpid(), signal.SIGKILL)

    consumer = MesConsumer(Ledger(Path(ledger)), KafkaOptions(bootstrap), probe=probe)
    while True:
        consumer.step()


if __name__ == "__main__":
    main()
