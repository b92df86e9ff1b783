"""Starts Flower's own programs: a SuperLink with our ServerApp at the server, a SuperNode with our ClientApp at a site.

Flower pins much, so it usually lives in an environment of its own; its programs find this package by its folder. They
talk over TLS only. Nothing is fetched or told to anybody: installing of dependencies, telemetry and looking for updates
are off.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import foveola
from foveola.exchange import Unavailable

PROGRAMS = "FOVEOLA_FLOWER"
"""The folder with Flower's programs, in the environment; else they are beside the interpreter, or on PATH."""
APP = Path(__file__).parent / "flower" / "app"
CONNECTION = "here"
STOP_S, START_S, POLL_S = 20.0, 300.0, 0.5
Settings = Mapping[str, str | int | float]


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files. ``authority`` is who signed ``certificate``; ``key`` belongs to that."""

    authority: Path
    certificate: Path | None = None
    key: Path | None = None

    def check(self) -> None:
        """Raises ``Unavailable`` where one is missing."""
        for file in (self.authority, self.certificate, self.key):
            if file is not None and not file.is_file():
                raise Unavailable(f"{file.name} is no file; name a PEM file. There is no federation without TLS.")


def program(name: str) -> str:
    """Where Flower's program ``name`` is. Raises ``Unavailable`` telling how it is installed."""
    own = os.environ.get(PROGRAMS)
    for folder in (own, str(Path(sys.executable).parent), None):
        found = shutil.which(name, path=folder)
        if found is not None:
            return found
        if folder is not None and folder == own:
            break
    raise Unavailable(
        f"Flower's {name} is not here. Install it apart (python -m venv flower; flower/bin/pip install "
        f"'foveola[federation]') and set {PROGRAMS}=flower/bin."
    )


def environment(home: Path) -> dict[str, str]:
    """The variables of every program; ``home`` is Flower's own folder."""
    paths = [str(Path(foveola.__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
    told = {
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }
    return {**os.environ, **told, "PATH": os.pathsep.join([str(Path(program("flwr")).parent), os.environ["PATH"]])}


def run_config(settings: Settings) -> str:
    """``settings`` as Flower takes them on a command line: TOML values, apart by blanks."""
    return " ".join(f"{name}={json.dumps(value)}" for name, value in settings.items())


def node_command(server: str, certificates: Certificates, settings: Settings, port: int) -> list[str]:
    """The command line of a SuperNode; ``port`` is its own, on loopback, for the process that trains."""
    return [
        *_patient("flower-supernode"), "--superlink", server, "--root-certificates", str(certificates.authority),
        "--host", "127.0.0.1", "--port", str(port), *_tls(certificates), "--node-config", run_config(settings),
    ]  # fmt: skip


def link_command(host: str, port: int, certificates: Certificates) -> list[str]:
    """The command line of a SuperLink."""
    command = [*_patient("flower-superlink"), "--host", host, "--port", str(port)]
    return [*command, *_tls(certificates), "--disable-runtime-dependency-installation"]


def _patient(name: str) -> list[str]:
    """The program ``name``, by the interpreter beside it, so that it waits longer for what it starts (``patient``)."""
    found = program(name)
    interpreter = Path(found).resolve().parent / "python"
    if not interpreter.is_file():
        return [found]
    return [str(interpreter), "-m", "foveola.learn.federate.flower.patient", name]


def _tls(certificates: Certificates) -> list[str]:
    if certificates.certificate is None or certificates.key is None:
        return []
    return [
        "--ssl-certfile", str(certificates.certificate), "--ssl-keyfile", str(certificates.key),
        "--ssl-ca-certfile", str(certificates.authority),
    ]  # fmt: skip


def serve(folder: Path, host: str, port: int, certificates: Certificates, settings: Settings) -> int:
    """Run a SuperLink, and the ServerApp on it, until its rounds are over. The exit code of the latter.

    Raises ``Unavailable`` where the SuperLink does not come up.
    """
    certificates.check()
    home = folder / "flower"
    home.mkdir(parents=True, exist_ok=True)
    variables = environment(home)
    address = f"127.0.0.1:{port}" if host in ("0.0.0.0", "::") else f"{host}:{port}"
    (home / "config.toml").write_text(
        f"[superlink]\ndefault = {json.dumps(CONNECTION)}\n[superlink.{CONNECTION}]\naddress = {json.dumps(address)}\n"
        f"root-certificates = {json.dumps(str(certificates.authority.resolve()))}\n",
        encoding="utf-8",
    )
    told = {"folder": str(folder.resolve()), **settings}
    link = subprocess.Popen(link_command(host, port, certificates), env=variables)
    try:
        _wait(link, address)
        run = [program("flwr"), "run", str(APP), CONNECTION, "--run-config", run_config(told), "--stream"]
        return subprocess.run(run, env=variables, check=False).returncode
    finally:
        stop(link)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a program that was started here, and what it started."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait(link: subprocess.Popen[bytes], address: str) -> None:
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and link.poll() is None:
        try:
            with socket.create_connection((host, int(port)), timeout=1.0):
                return
        except OSError:
            time.sleep(POLL_S)
    raise Unavailable(f"Flower's SuperLink did not begin to listen on {address}; see what it wrote above.")


def become(command: Sequence[str], home: Path) -> int:
    """Replace this process by a program, so that signals reach it. Does not return."""
    home.mkdir(parents=True, exist_ok=True)
    os.execve(command[0], list(command), environment(home))
    return 0
