"""The ClientApp: trains on what lies at this site, and keeps what it could not say yet in a file of its own.

Flower may start a new process for every message; so the node is read from its file and written back.
"""

from __future__ import annotations

from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from foveola.exchange import Refusal
from foveola.learn.federate.flower import RECORD
from foveola.learn.federate.options import Rejected
from foveola.learn.federate.site import open_site

app = ClientApp()


def train(message: Message, context: Context) -> Message:
    """Take over what was missed, train, send the change; an empty update says that a snapshot is needed."""
    config, told = context.node_config, message.content[RECORD]
    site = open_site(
        Path(str(config["folder"])), Path(str(config["features"])), number=message.metadata.dst_node_id,
        keep=float(config["keep"]), steps=int(config["steps"]),
    )  # fmt: skip
    try:
        update = site.answer(list(told["messages"]), counted=int(told["counted"]))
    except Rejected:
        update = b""
    except Refusal as refusal:
        raise RuntimeError(refusal.message) from None
    return Message(RecordDict({RECORD: ConfigRecord({"update": update})}), reply_to=message)


app.train()(train)
