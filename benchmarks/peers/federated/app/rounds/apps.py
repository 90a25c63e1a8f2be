"""A Flower app: the server asks three clients for a 50×3 array, round after round, and averages."""

import time

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

CLIENTS = 3
client = ClientApp()
server = ServerApp()


@client.query()
def answer(message: Message, context: Context) -> Message:  # noqa: ARG001 - so is the contract
    (point,) = message.content["point"].to_numpy_ndarrays()
    return Message(RecordDict({"answer": ArrayRecord([point + 1.0])}), reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    while len(nodes := list(grid.get_node_ids())) < CLIENTS:
        time.sleep(0.1)
    point = np.zeros((50, 3))
    for number in range(int(context.run_config["rounds"])):
        begun = time.perf_counter()
        asked = RecordDict({"point": ArrayRecord([point])})
        sent = [Message(asked, message_type=MessageType.QUERY, dst_node_id=node) for node in nodes]
        answers = [reply.content["answer"].to_numpy_ndarrays()[0] for reply in grid.send_and_receive(sent)]
        point = np.mean(answers, axis=0)
        print(f"ROUND {number} {time.perf_counter() - begun:.3f}", flush=True)
