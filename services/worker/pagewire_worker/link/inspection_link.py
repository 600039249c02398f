"""The part of an attach that answers what operators ask of a worker."""

import asyncio
import json
import logging
from collections.abc import Sequence
from typing import Final

from pagewire_protos.common.v1 import stacks_pb2
from pagewire_protos.common.v1 import worker_query_pb2 as pb
from pagewire_protos.scheduler.v1 import worker_attach_pb2 as wire
from pagewire_shared.errors import InternalError, PagewireError, UnavailableError, WireError
from pagewire_shared.inspection.stacks import ProcessPlaces, own_stacks
from pagewire_shared.inspection.stacks_convert import fitted_stacks, stacks_to_message
from pagewire_shared.rpc.errors import to_detail
from pagewire_worker.inspection.worker_inspection import WorkerInspection

ROLE: Final = "worker"

_logger = logging.getLogger(__name__)


class InspectionLink:
    """Answers for one worker.

    Args:
        inspection: Of its replica; None while it sleeps.
    """

    def __init__(self, worker_id: bytes, inspection: WorkerInspection | None) -> None:
        self._name = worker_id.hex()
        self._inspection = inspection

    async def answer(self, query: wire.OperatorQuery) -> wire.AttachWorkerRequest:
        """Return the answer to a question, with an error where there is no answer."""
        try:
            found = await self._answer(query.query)
        except PagewireError as error:
            found = pb.WorkerAnswer(error=to_detail(error))
        except Exception as error:
            _logger.exception("a question of an operator met a fault")
            fault = InternalError(f"{type(error).__name__}: {error}")
            found = pb.WorkerAnswer(error=to_detail(fault))
        answer = wire.OperatorAnswer(query_id=query.query_id, answer=found)
        return wire.AttachWorkerRequest(operator_answer=answer)

    async def _answer(self, query: pb.WorkerQuery) -> pb.WorkerAnswer:
        kind = query.WhichOneof("query")
        if kind == "stacks":
            return pb.WorkerAnswer(stacks=pb.WorkerProcessStacks(processes=await self._stacks()))
        inspection = self._inspection
        if inspection is None:
            raise UnavailableError("it sleeps, or loads weights: it computes no steps")
        if kind == "start_profile":
            start = query.start_profile
            started = await inspection.profiler.start(start.num_steps, start.timeout_ms / 1000)
            return pb.WorkerAnswer(profile_started=pb.WorkerProfileStarted(profile_id=started))
        if kind == "read_profile":
            return await self._read(inspection, query.read_profile)
        if kind == "call":
            return await self._call(inspection, query.call)
        raise WireError("an operator asks something that is not known here")

    async def _read(
        self, inspection: WorkerInspection, read: pb.ReadWorkerProfile
    ) -> pb.WorkerAnswer:
        if read.is_dropped:
            await inspection.profiler.drop(read.profile_id)
            return pb.WorkerAnswer(profile_part=pb.WorkerProfilePart(profile_id=read.profile_id))
        part = await inspection.profiler.read(
            read.profile_id, read.offset, ends_profile=read.ends_profile
        )
        return pb.WorkerAnswer(
            profile_part=pb.WorkerProfilePart(
                profile_id=part.profile_id,
                is_pending=part.data is None,
                num_bytes=part.num_bytes,
                data=part.data or b"",
            )
        )

    async def _call(
        self, inspection: WorkerInspection, call: pb.CallWorkerExtension
    ) -> pb.WorkerAnswer:
        rank = call.unique_reply_rank if call.HasField("unique_reply_rank") else None
        results = await inspection.call(
            call.method,
            call.args_json,
            call.kwargs_json,
            seconds=call.timeout_ms / 1000,
            unique_reply_rank=rank,
        )
        encoded = pb.WorkerExtensionResults(results_json=map(json.dumps, results))
        return pb.WorkerAnswer(results=encoded)

    async def _stacks(self) -> Sequence[stacks_pb2.ProcessStacks]:
        processes = [own_stacks(ROLE, self._name)]
        group = None if self._inspection is None else self._inspection.group
        if group is not None:
            for found in await asyncio.to_thread(group.stacks):
                processes.append(
                    ProcessPlaces(
                        role=ROLE,
                        name=f"{self._name} rank {found.rank}",
                        pid=found.pid,
                        threads=found.threads,
                        error="" if found.threads else "it writes no stacks: it may be stopped",
                    )
                )
        return fitted_stacks(map(stacks_to_message, processes))
