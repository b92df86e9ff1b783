"""Load the embedded model and answer, watched: ``python -m tests.hostile.alone``. Prints what was opened and connected.

Every event of the interpreter is seen: an unpickled class, a name looked up, a connection.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

SEEN: dict[str, list[str]] = {"pickle": [], "connect": [], "lookup": [], "exec": []}
EVENTS = {
    "pickle.find_class": "pickle",
    "socket.connect": "connect",
    "socket.sendto": "connect",
    "socket.getaddrinfo": "lookup",
    "socket.gethostbyname": "lookup",
    "subprocess.Popen": "exec",
    "os.system": "exec",
    "os.exec": "exec",
}


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event in EVENTS:
        SEEN[EVENTS[event]].append(f"{event} {arguments[-1] if 'socket' in event else arguments}")


async def answered() -> str:
    import httpx

    from foveola.guard.options import GuardOptions
    from foveola.serve.app import create_app
    from foveola.serve.embedded import embedded_bundle
    from foveola.serve.load import load
    from foveola.serve.options import ServeOptions
    from foveola.serve.service import Service
    from tests.hostile.asking import ASK, picture

    service = Service(lambda: load(embedded_bundle(), guard=GuardOptions()), ServeOptions())
    app = create_app(service)
    service.start()
    assert service._loading is not None
    await service._loading
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://alone") as client:
        files = {"prompt": (None, b'{"text": "What is this?", "max_tokens": 2}'), "image": ("a", picture())}
        reply = await client.post(ASK, files=files)
    await service.stop()
    return str(reply.json()["finish_reason"])


if __name__ == "__main__":
    sys.addaudithook(watch)
    finished = asyncio.run(answered())
    print(json.dumps({"finish": finished, **SEEN}))
