"""What a Flower client must do to take part: say who it is, by a name that outlasts runs and restarts."""

from __future__ import annotations

from collections.abc import Callable

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

ACTION = "expunge"
"""The server asks by a message of type ``query.expunge``."""
RECORD, NAME = "expunge", "client"
"""The key of the name in the answer."""


def name_from_node(context: Context) -> str:
    """Return the ``client-id`` of the node's configuration; in simulations, where there is none, its partition's.

    (``flower-supernode --node-config 'client-id="hospital-3"'``)
    """
    config = context.node_config
    if "client-id" in config:
        return str(config["client-id"])
    if "partition-id" in config:
        return f"client-{config['partition-id']}"
    raise ValueError("this node has no name; start it with --node-config 'client-id=\"...\"', or give name=.")


def identified(app: ClientApp, name: Callable[[Context], str] = name_from_node) -> ClientApp:
    """Let a ClientApp answer when the server asks who it is, and return it.

    The name must never change: a client is deleted by its name. Node ids are not enough, since they change.
    """

    @app.query(ACTION)
    def answer(message: Message, context: Context) -> Message:
        said = ConfigRecord({NAME: name(context)})
        return Message(RecordDict({RECORD: said}), reply_to=message)

    return app
