"""Answers operators about roles, topology and self-test of the cell, for the admin service and for
frontends that pass questions on."""

from collections.abc import Sequence
from typing import Final

from pagewire_protos.common.v1.worker_query_pb2 import WorkerAnswer
from pagewire_protos.scheduler.v1 import admin_pb2
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as pb
from pagewire_scheduler.convert.topology import cell_self_test, cell_topology, worker_topology
from pagewire_scheduler.convert.worker import roles_from_message
from pagewire_scheduler.core.data.topology import WorkerEntry
from pagewire_scheduler.core.data.worker_info import Role
from pagewire_scheduler.links.loop import StepLoop
from pagewire_scheduler.links.weights_desk import WeightsUpdate
from pagewire_scheduler.operators.self_test import DEFAULT_TIMEOUT_SECONDS, SelfTest
from pagewire_scheduler.operators.stacks_service import CellStacks
from pagewire_scheduler.operators.store_client import tiers_of
from pagewire_scheduler.operators.worker_questions_service import WorkerQuestions
from pagewire_shared.errors import (
    InvalidRequestError,
    ModelNotFoundError,
    PagewireError,
    PeerRefusedError,
    UnavailableError,
    WireError,
)
from pagewire_shared.identity.ids import find_worker
from pagewire_shared.rpc.errors import to_detail
from pagewire_shared.sleep.convert import mode_from_message, tags_from_message
from pagewire_shared.sleep.state import SleepOrder, check_level
from pagewire_shared.weights.convert import update_mode_from_message
from pagewire_shared.weights.version import check_label, check_path

DEFAULT_SLEEP_SECONDS: Final = 60.0
DEFAULT_WAKE_SECONDS: Final = 300.0
DEFAULT_UPDATE_SECONDS: Final = 300.0


class CellOperator:
    """Operates one cell.

    Args:
        kvstores: Addresses of its KV stores.

    Attributes:
        questions: Asks one worker.
        stacks: Asks every process where its code is.
    """

    def __init__(self, loop: StepLoop, kvstores: Sequence[str] = ()) -> None:
        self._loop = loop
        self._test = SelfTest(loop)
        self.questions = WorkerQuestions(loop)
        self.stacks = CellStacks(loop, self.questions, kvstores)

    def set_roles(self, request: admin_pb2.SetRolesRequest) -> admin_pb2.SetRolesResponse:
        """Change the roles of a worker. Raises InvalidRequestError naming worker or roles."""
        roles = _roles(request)
        name = find_worker(request.worker, [worker.hex() for worker in self._loop.workers])
        worker_id = bytes.fromhex(name)
        self._loop.set_roles(worker_id, roles)
        return admin_pb2.SetRolesResponse(worker=worker_topology(self._entry(worker_id)))

    async def topology(self) -> admin_pb2.TopologyResponse:
        """Return the workers, the pairs of workers that exchange blocks, and what was found in
        caches."""
        topology = self._loop.topology()
        tiers = await tiers_of([store.address for store in topology.stores if store.is_up])
        cell = cell_topology(topology, self._loop.generation.number, tiers)
        return admin_pb2.TopologyResponse(cells=[cell])

    async def self_test(self, request: admin_pb2.SelfTestRequest) -> admin_pb2.SelfTestResponse:
        """Probe every pair of workers."""
        seconds = DEFAULT_TIMEOUT_SECONDS
        if request.HasField("timeout_ms"):
            seconds = request.timeout_ms / 1000
        cell = cell_self_test(await self._test.run(seconds), self._loop.generation.number)
        return admin_pb2.SelfTestResponse(cells=[cell])

    async def sleep(self, request: admin_pb2.SleepRequest) -> admin_pb2.SleepResponse:
        """Let workers sleep. Raises InvalidRequestError naming the field, or UnavailableError."""
        order = SleepOrder(
            level=check_level(request.level if request.HasField("level") else 1),
            mode=mode_from_message(request.mode),
        )
        chosen = self._chosen(request)
        seconds = _seconds(request, DEFAULT_SLEEP_SECONDS)
        await self._loop.sleep_desk.sleep(chosen, order, seconds)
        return admin_pb2.SleepResponse(workers=self._shown(chosen))

    async def wake_up(self, request: admin_pb2.WakeUpRequest) -> admin_pb2.WakeUpResponse:
        """Wake workers. Raises InvalidRequestError naming the field, or UnavailableError."""
        tags = tags_from_message(request.tags)
        chosen = self._chosen(request)
        seconds = _seconds(request, DEFAULT_WAKE_SECONDS)
        await self._loop.sleep_desk.wake(chosen, tags, seconds)
        return admin_pb2.WakeUpResponse(workers=self._shown(chosen))

    async def update_weights(
        self, request: admin_pb2.UpdateWeightsRequest
    ) -> admin_pb2.UpdateWeightsResponse:
        """Give all workers of a model other weights. Raises what WeightsDesk.update raises."""
        update = WeightsUpdate(
            model=self._model_of(request),
            path=check_path(request.path),
            label=check_label(request.version),
            mode=update_mode_from_message(request.mode),
            seconds=_seconds(request, DEFAULT_UPDATE_SECONDS),
        )
        await self._loop.weights_desk.update(update)
        workers = self._loop.core.queues.workers(update.model)
        return admin_pb2.UpdateWeightsResponse(
            workers=self._shown([one.info.worker_id for one in workers])
        )

    def _model_of(self, request: admin_pb2.UpdateWeightsRequest) -> str:
        if request.HasField("model"):
            return request.model
        models = {worker.info.model.name for worker in self._loop.core.workers.values()}
        if len(models) == 1:
            return models.pop()
        if not models:
            raise UnavailableError("no worker is attached")
        raise InvalidRequestError("model must be named: there are several", field="model")

    def _chosen(self, request: admin_pb2.SleepRequest | admin_pb2.WakeUpRequest) -> list[bytes]:
        """Return the workers that a request means."""
        workers = self._loop.core.workers
        if request.HasField("worker"):
            name = find_worker(request.worker, [worker.hex() for worker in workers])
            return [bytes.fromhex(name)]
        model = request.model if request.HasField("model") else None
        found = [
            worker_id
            for worker_id, worker in workers.items()
            if model in (None, worker.info.model.name)
        ]
        if not found and model is not None:
            raise ModelNotFoundError(f"no worker serves {model!r}")
        return found

    def _shown(self, worker_ids: list[bytes]) -> list[admin_pb2.WorkerTopology]:
        entries = self._loop.topology().workers
        return [worker_topology(one) for one in entries if one.worker_id in worker_ids]

    async def answer(self, query: pb.AdminQuery) -> pb.AdminAnswer:
        """Answer a frontend's question, with an error where there is no answer."""
        answer = pb.AdminAnswer(query_id=query.query_id)
        kind = query.WhichOneof("query")
        try:
            if kind == "set_roles":
                answer.set_roles.CopyFrom(self.set_roles(query.set_roles))
            elif kind == "topology":
                answer.topology.CopyFrom(await self.topology())
            elif kind == "self_test":
                answer.self_test.CopyFrom(await self.self_test(query.self_test))
            elif kind == "sleep":
                answer.sleep.CopyFrom(await self.sleep(query.sleep))
            elif kind == "wake_up":
                answer.wake_up.CopyFrom(await self.wake_up(query.wake_up))
            elif kind == "update_weights":
                answer.update_weights.CopyFrom(await self.update_weights(query.update_weights))
            elif kind == "stacks":
                answer.stacks.CopyFrom(await self.stacks.collect(query.stacks))
            elif kind == "ask_worker":
                answer.worker_answer.CopyFrom(await self._ask_worker(query.ask_worker))
            else:
                raise WireError("an admin query asks something that is not known here")
        except PagewireError as error:
            answer.error.CopyFrom(to_detail(error))
        return answer

    async def _ask_worker(self, question: pb.WorkerQuestion) -> WorkerAnswer:
        (worker,) = await self.questions.choose(question.worker, None)
        return await worker.ask(question.query, question.timeout_ms / 1000)

    def _entry(self, worker_id: bytes) -> WorkerEntry:
        entries = self._loop.topology().workers
        return next(entry for entry in entries if entry.worker_id == worker_id)


def _seconds(
    request: admin_pb2.SleepRequest | admin_pb2.WakeUpRequest | admin_pb2.UpdateWeightsRequest,
    default: float,
) -> float:
    return request.timeout_ms / 1000 if request.HasField("timeout_ms") else default


def _roles(request: admin_pb2.SetRolesRequest) -> frozenset[Role]:
    # In a hello no role means all roles; a change of roles names them.
    if not request.roles:
        raise InvalidRequestError("roles must name at least one role", field="roles")
    try:
        return roles_from_message(request.roles)
    except PeerRefusedError as error:
        raise InvalidRequestError(error.message, field="roles") from error
