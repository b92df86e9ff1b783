"""``foveola serve``: settings from the file, the environment and the flags, then the process."""

from __future__ import annotations

import argparse
import os
import signal
import threading
from pathlib import Path

from foveola.bridge.options import BridgeOptions
from foveola.drift.options import DriftOptions
from foveola.guard.options import GuardOptions
from foveola.observe.trace_options import TraceOptions
from foveola.options import BadSetting, resolve
from foveola.serve.bridge import open_desk
from foveola.serve.dual_options import SecondOptions
from foveola.serve.embedded import embedded_bundle
from foveola.serve.keys import NO_KEYS, read_keys
from foveola.serve.listen import listen
from foveola.serve.log import configure
from foveola.serve.options import ROLES, ServeOptions
from foveola.serve.service import Served


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags; one that is not given leaves the setting to the environment, the file, the default."""
    defaults = ServeOptions()
    parser.add_argument("--bundle", metavar="DIR", type=Path, help="the bundle to serve (default: the embedded model)")
    parser.add_argument("--host", help=f"address to listen on (default: {defaults.host})")
    parser.add_argument("--port", help=f"port to listen on, 0 for any free one (default: {defaults.port})")
    parser.add_argument(
        "--role", choices=ROLES, help="all (default), vision: sees for others, language: has others see"
    )
    parser.add_argument("--vision-url", metavar="URL", help="the vision service, for --role language")
    parser.add_argument("--config", metavar="FILE", type=Path, help="settings file (default: foveola.toml, if any)")


def _end(*_: object) -> None:
    """Nothing has been let in yet: the end is a clean one."""
    raise SystemExit(0)


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT. Raises ``BadSetting``, ``CannotListen``, ``Unavailable`` (no such bundle)."""
    flags = {name: getattr(arguments, name) for name in ("bundle", "host", "port", "role", "vision_url")}
    options = resolve(ServeOptions, "serve", file=arguments.config, environ=os.environ, flags=flags)
    guard = resolve(GuardOptions, "guard", file=arguments.config, environ=os.environ)
    second = resolve(SecondOptions, "dual", file=arguments.config, environ=os.environ)
    drift = resolve(DriftOptions, "drift", file=arguments.config, environ=os.environ)
    traces = resolve(TraceOptions, "traces", file=arguments.config, environ=os.environ)
    bundle = options.bundle or embedded_bundle()
    if not bundle.is_dir():
        raise BadSetting(f"The bundle {bundle} is no directory; name one that `foveola compile` wrote.")

    ring = NO_KEYS if options.keys_file is None else read_keys(options.keys_file)
    bridge = resolve(BridgeOptions, "bridge", file=arguments.config, environ=os.environ)
    configure()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _end)  # until the server has its own handler, which finishes what runs
    desk = open_desk(bridge, ring)
    with listen(options.host, options.port) as listening:
        from foveola.engine.options import EngineOptions
        from foveola.serve.load import load
        from foveola.serve.run import serve

        engine = resolve(EngineOptions, "engine", file=arguments.config, environ=os.environ)

        def loaded() -> Served:
            return load(
                bundle,
                region=options.region,
                guard=guard,
                options=options,
                engine_options=engine,
                second=second,
                drift=drift,
                traces=traces,
            )

        return serve(options, loaded, listening, ring, desk)
