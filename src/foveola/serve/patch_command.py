"""``foveola patch``: send new weights for a part of the model to a server that runs, or take the last ones back."""

from __future__ import annotations

import argparse
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from foveola.exchange import Invalid
from foveola.serve.client import add_server_arguments, ask_server, key_in

CHUNK = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("weights", nargs="?", metavar="FILE", type=Path, help="a .safetensors file with the new weights")
    what.add_argument("--rollback", action="store_true", help="back to the weights before the last patch")
    what.add_argument("--versions", action="store_true", help="show which weights serve, and what was changed")
    parser.add_argument("--module-path", metavar="PATH", default="", help="the part of the model, such as visual")
    parser.add_argument("--not-strict", action="store_true", help="let parameters be missing or unknown")
    add_server_arguments(parser, "an admin's")
    parser.add_argument("--json", action="store_true", help="print the server's reply as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Ask the server and print what it did; returns 0. Raises ``Refused``, ``Unavailable`` or ``Invalid``."""
    console = Console(stderr=True)
    key = key_in(arguments.key_file)
    if arguments.versions:
        reply = ask_server(arguments.url, "GET", "/v1/admin/versions", key)
    elif arguments.rollback:
        reply = ask_server(arguments.url, "POST", "/v1/admin/rollback", key)
    else:
        fields = {"module_path": arguments.module_path, "strict": "false" if arguments.not_strict else "true"}
        reply = send(arguments.url, key, fields, arguments.weights, console)
    if arguments.json:
        print(json.dumps(reply, ensure_ascii=False, indent=1))
    else:
        print("\n".join(_told(reply)))
    return 0


def _told(reply: dict[str, Any]) -> Iterator[str]:
    if "changes" in reply:
        yield f"{reply['model']} serves {reply['model_hash'][:12]} (its files are {reply['bundle_hash'][:12]})."
        for change in reply["changes"]:
            part = f" of {change['module_path']}" if change["module_path"] else ""
            yield f"  {change['kind']}{part}: {change['before'][:12]} -> {change['model_hash'][:12]} ({change['who']})"
        return
    if reply["tensors"] and reply["before"] == reply["model_hash"]:
        yield f"Nothing has changed: these are the weights that serve already ({reply['model_hash'][:12]})."
        return
    what = (
        f"{reply['tensors']} tensors of {reply['module_path'] or 'the model'} replaced"
        if reply["tensors"]
        else "Taken back"
    )
    yield f"{what}: {reply['before'][:12]} -> {reply['model_hash'][:12]} in {reply['seconds']:.2f} s."


def send(url: str, key: str, fields: dict[str, str], weights: Path, console: Console) -> dict[str, Any]:
    """The form, its file read as it is sent."""
    boundary = uuid.uuid4().hex
    head = b"".join(
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    )
    head += (
        f'--{boundary}\r\nContent-Disposition: form-data; name="weights"; filename="weights.safetensors"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n"
    ).encode()
    tail = f"\r\n--{boundary}--\r\n".encode()
    try:
        size = weights.stat().st_size
        stream = weights.open("rb")
    except OSError as error:
        raise Invalid(
            f"{weights.name or weights} cannot be read ({error.strerror}); name a .safetensors file."
        ) from None
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with stream, Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("sending", total=size)

        def body() -> Iterator[bytes]:
            yield head
            while chunk := stream.read(CHUNK):
                bar.advance(task, len(chunk))
                yield chunk
            bar.update(task, description="the server works")
            yield tail

        headers = {
            "content-type": f"multipart/form-data; boundary={boundary}",
            "content-length": str(len(head) + size + len(tail)),
        }
        return ask_server(url, "POST", "/v1/admin/patch", key, body(), headers)
