"""A scheduler with a worker of infinite speed, for benchmarks of the frontend: every request gets
one token per step, all of a step in one message. Real gRPC, no model.

    python benchmarks/parts/fake_cell.py --model NAME=FOLDER --listen unix:/tmp/x.sock --step-ms 10
"""

import argparse
import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio
import numpy as np
import uvloop
from tokenizers import Tokenizer

from pagewire_protos.common.v1 import sampling_pb2
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as wire
from pagewire_protos.scheduler.v1 import frontend_attach_pb2_grpc
from pagewire_shared import PROTOCOL_MAX
from pagewire_shared.identity.ids import tokenizer_fingerprint
from pagewire_shared.kv.arrays import pack_u32
from pagewire_shared.rpc.options import server_options

CONTEXT = 1 << 20
TEXT = "Once upon a time there was a little fox who lived near the river. "


class Cell(frontend_attach_pb2_grpc.FrontendAttachServiceServicer):
    """Answers every request with the same text, over and over."""

    def __init__(self, name: str, folder: Path, step_seconds: float) -> None:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._ids = np.array(tokenizer.encode(TEXT, add_special_tokens=False).ids, dtype="<u4")
        self._step_seconds = step_seconds
        self._served = wire.ServedModels(
            models=[
                wire.ServedModel(
                    name=name,
                    tokenizer_fingerprint=tokenizer_fingerprint(folder),
                    max_model_len=CONTEXT,
                    num_workers=1,
                )
            ]
        )

    async def AttachFrontend(
        self,
        request_iterator: AsyncIterator[wire.AttachFrontendRequest],
        context: grpc.aio.ServicerContext,  # type: ignore[type-arg]
    ) -> AsyncIterator[wire.AttachFrontendResponse]:
        """Serve one frontend."""
        await anext(aiter(request_iterator))
        welcome = wire.Welcome(
            protocol=PROTOCOL_MAX, generation=1, served_models=self._served, resumed_handles=b""
        )
        yield wire.AttachFrontendResponse(welcome=welcome)
        # handle -> epoch, next position, tokens wanted
        running: dict[int, list[int]] = {}

        async def read() -> None:
            async for message in request_iterator:
                submits = list(message.submits.submits)
                if message.HasField("submit"):
                    submits.append(message.submit)
                for submit in submits:
                    running[submit.handle] = [submit.epoch, 0, submit.sampling.max_tokens]
                if message.HasField("abort"):
                    running.pop(message.abort.handle, None)

        reader = asyncio.create_task(read())
        loop = asyncio.get_running_loop()
        due = loop.time()
        try:
            while True:
                due = max(due + self._step_seconds, loop.time())
                await asyncio.sleep(max(0.0, due - loop.time()))
                if running:
                    for response in self._step(running):
                        yield response
                elif not self._step_seconds:
                    await asyncio.sleep(0.001)
        finally:
            reader.cancel()

    def _step(self, running: dict[int, list[int]]) -> list[wire.AttachFrontendResponse]:
        handles = list(running)
        states = np.array(list(running.values()), dtype="<u4")
        num = len(handles)
        batch = wire.TokenBatch(
            handles=pack_u32(handles),
            choices=bytes(4 * num),
            epochs=states[:, 0].tobytes(),
            first_positions=states[:, 1].tobytes(),
            counts=np.ones(num, dtype="<u4").tobytes(),
            token_ids=self._ids[states[:, 1] % len(self._ids)].tobytes(),
            num_cached_tokens=bytes(4 * num),
        )
        responses = [wire.AttachFrontendResponse(tokens=batch)]
        ended = []
        for handle, state in list(running.items()):
            state[1] += 1
            if state[1] >= state[2]:
                del running[handle]
                ended.append(
                    wire.FinishedChoice(
                        handle=handle,
                        epoch=state[0],
                        num_tokens=state[1],
                        reason=sampling_pb2.FINISH_REASON_LENGTH,
                    )
                )
        if ended:
            finished = wire.FinishedChoices(choices=ended)
            responses.append(wire.AttachFrontendResponse(finished=finished))
        return responses


async def serve(cell: Cell, address: str) -> None:
    server = grpc.aio.server(options=server_options())
    frontend_attach_pb2_grpc.add_FrontendAttachServiceServicer_to_server(cell, server)
    server.add_insecure_port(address)
    await server.start()
    await server.wait_for_termination()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="NAME=FOLDER")
    parser.add_argument("--listen", required=True)
    parser.add_argument("--step-ms", type=float, default=10.0, help="0 for as fast as possible")
    arguments = parser.parse_args()
    name, _, folder = arguments.model.partition("=")
    cell = Cell(name, Path(folder), arguments.step_ms / 1000)
    uvloop.run(serve(cell, arguments.listen))


if __name__ == "__main__":
    main()
