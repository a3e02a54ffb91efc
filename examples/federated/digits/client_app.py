"""What a client does: train the model it is sent on its own images."""

from __future__ import annotations

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits import task
from expunge.federated import identified

app = identified(ClientApp())  # client-0 to client-19 in simulations; node ids change with every run


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the model that came with the message, and send it back."""
    images = task.images_of(int(context.node_config["partition-id"]), int(context.run_config["clients"]))
    model = message.content.array_records["arrays"].to_numpy_ndarrays()
    trained = task.train(model, images, int(context.run_config["steps"]), float(context.run_config["rate"]))
    reply = RecordDict(
        {"arrays": ArrayRecord(trained), "metrics": MetricRecord({"num-examples": len(images[0])})},
    )
    return Message(reply, reply_to=message)
