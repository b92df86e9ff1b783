"""``foveola rollout``: the custom resources, the operator, the scheduler extender, Envoy's files, a plan of slices."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from pathlib import Path
from typing import Any

from foveola.exchange import Invalid
from foveola.options import resolve


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    ways = parser.add_subparsers(dest="way", metavar="WAY", required=True)
    ways.add_parser("crds", help="print the custom resource definitions, for kubectl apply -f -")
    operate = ways.add_parser("operate", help="run the operator")
    operate.add_argument("--namespace")
    operate.add_argument("--prometheus", metavar="URL")
    operate.add_argument("--look-s", type=float, metavar="S", help="seconds between two looks at each object")
    operate.add_argument("--lease-s", type=int, metavar="S")
    operate.add_argument("--metrics-port", type=int, metavar="PORT")
    operate.add_argument("--health-port", type=int, metavar="PORT")
    extend = ways.add_parser("extend", help="run the scheduler extender")
    extend.add_argument("--host", default="0.0.0.0")
    extend.add_argument("--port", type=int, default=8888)
    envoy = ways.add_parser("envoy", help="write Envoy's files for a VisionLanguageModel (JSON)")
    envoy.add_argument("model", type=Path, metavar="FILE")
    envoy.add_argument("--endpoint", action="append", required=True, metavar="VERSION=HOST:PORT")
    envoy.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder that Envoy watches")
    envoy.add_argument("--listen", type=int, default=8000)
    pack = ways.add_parser("pack", help="plan MIG slices on GPUs")
    pack.add_argument("fractions", nargs="+", metavar="FRACTION", help="such as 1/7 3/7")
    pack.add_argument("--model", default="h100-80gb")
    pack.add_argument("--gpus", type=int, default=1)
    pack.add_argument("--json", action="store_true", help="print JSON for programs")


def run(arguments: argparse.Namespace) -> int:
    """Do it. Raises ``Refusal`` and ``BadSetting``."""
    ways = {"crds": _crds, "operate": _operate, "extend": _extend, "envoy": _envoy, "pack": _pack}
    return ways[arguments.way](arguments)


def _crds(_: argparse.Namespace) -> int:
    from foveola.rollout.crd import crds

    print(json.dumps({"apiVersion": "v1", "kind": "List", "items": crds()}, indent=1))
    return 0


def _operate(arguments: argparse.Namespace) -> int:
    from foveola.rollout.operator import OperatorOptions, operate

    names = ("namespace", "prometheus", "look_s", "lease_s", "metrics_port", "health_port")
    flags = {name: getattr(arguments, name) for name in names}
    return asyncio.run(operate(resolve(OperatorOptions, "operator", environ=os.environ, flags=flags)))


def _extend(arguments: argparse.Namespace) -> int:
    import uvicorn

    from foveola.rollout.extender import create_extender
    from foveola.serve.listen import listen

    with listen(arguments.host, arguments.port) as listening:
        uvicorn.Server(uvicorn.Config(create_extender(), log_level="warning")).run(sockets=[listening])
    return 0


def _envoy(arguments: argparse.Namespace) -> int:
    from foveola.rollout.canary import Progress, current, weights_of
    from foveola.rollout.envoy import files_of, publish
    from foveola.rollout.release import release_of

    body = _read(arguments.model)
    release = release_of(body)
    weights = weights_of(release, current(release, Progress.of(body.get("status", {}).get("canary")), 0.0))
    endpoints = dict(_endpoint(text) for text in arguments.endpoint)
    missing = [one.name for one in release.versions if one.name not in endpoints]
    if missing:
        raise Invalid(f"Where is {', '.join(missing)}? Give --endpoint {missing[0]}=HOST:PORT.")
    files = files_of(release, weights, endpoints, folder=str(arguments.out.absolute()), listen=arguments.listen)
    publish(arguments.out, files)
    print(" ".join(f"{name}:{weight}" for name, weight in weights.items()))
    return 0


def _read(path: Path) -> dict[str, Any]:
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        body["spec"]["versions"][0]["image"], body["metadata"]["name"]
    except OSError:
        raise Invalid(f"{path.name} cannot be read; name a file.") from None
    except (ValueError, KeyError, IndexError, TypeError):
        raise Invalid(f"{path.name} is no VisionLanguageModel in JSON (kubectl get vlm NAME -o json).") from None
    return dict(body)


def _endpoint(text: str) -> tuple[str, tuple[str, int]]:
    name, equals, address = text.partition("=")
    host, colon, port = address.rpartition(":")
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else 0
    if not (equals and colon and name and host and 1 <= number <= 65535):
        raise Invalid(f"--endpoint is {text!r}; expected VERSION=HOST:PORT, the port from 1 to 65535.")
    return name, (host, number)


def _pack(arguments: argparse.Namespace) -> int:
    from foveola.rollout.gpu import profile_of
    from foveola.rollout.packing import Slice, pack
    from foveola.rollout.release import Gpu

    profiles = [profile_of(Gpu("mig", arguments.model, fraction)) for fraction in arguments.fractions]
    found = pack([Slice(f"s{i}", one) for i, one in enumerate(profiles)], arguments.gpus, arguments.model)
    places = sorted(found.places, key=lambda place: (place.gpu, place.start))
    if arguments.json:
        rows = [{"gpu": one.gpu, "start": one.start, "profile": one.slice.profile.name} for one in places]
        print(json.dumps({"places": rows, "left": [one.profile.name for one in found.left]}, indent=1))
    else:
        for one in places:
            print(f"GPU {one.gpu} from memory slice {one.start}: {one.slice.profile.name}")
        for left in found.left:
            print(f"no room: {left.profile.name}")
    return 1 if found.left else 0
