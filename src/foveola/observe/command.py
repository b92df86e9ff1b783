"""``foveola observe export DIR``: dashboard, alert rules and their tests, for Grafana, Prometheus and promtool."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from foveola.exchange import Invalid
from foveola.observe.alerts import as_yaml, rule_tests, rules
from foveola.observe.dashboards import dashboard

RULES, TESTS, DASHBOARD = "foveola-alerts.yml", "foveola-alerts-test.yml", "foveola-dashboard.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verbs = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    export = verbs.add_parser("export", help="write dashboard and alert rules into a folder")
    export.add_argument("out", metavar="DIR", type=Path, help="the folder; it is made where there is none")


def run(arguments: argparse.Namespace) -> int:
    """Write the three files; those of the same names are replaced. Raises ``Invalid`` where that is impossible."""
    out: Path = arguments.out
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / RULES).write_text(as_yaml(rules()), encoding="utf-8")
        (out / TESTS).write_text(as_yaml(rule_tests(RULES)), encoding="utf-8")
        (out / DASHBOARD).write_text(json.dumps(dashboard(), indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise Invalid(f"{out.name} cannot be written ({error.strerror}); name a folder that may be.") from None
    print(f"{DASHBOARD}: import it in Grafana. {RULES}: name it under rule_files; check: promtool test rules {TESTS}")
    return 0
