"""Answers operators about roles, topology and self-test of the cell, for the admin service and for
frontends that pass questions on."""

from typing import Final

from pagewire_protos.scheduler.v1 import admin_pb2
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as pb
from pagewire_scheduler.convert.topology import cell_self_test, cell_topology, worker_topology
from pagewire_scheduler.convert.worker import roles_from_message
from pagewire_scheduler.core.data.topology import WorkerEntry
from pagewire_scheduler.core.data.worker_info import Role
from pagewire_scheduler.links.loop import StepLoop
from pagewire_scheduler.operators.self_test import DEFAULT_TIMEOUT_SECONDS, SelfTest
from pagewire_shared.errors import (
    InvalidRequestError,
    ModelNotFoundError,
    PagewireError,
    PeerRefusedError,
    WireError,
)
from pagewire_shared.identity.ids import find_worker
from pagewire_shared.rpc.errors import to_detail
from pagewire_shared.sleep.convert import mode_from_message, tags_from_message
from pagewire_shared.sleep.state import SleepOrder, check_level

DEFAULT_SLEEP_SECONDS: Final = 60.0
DEFAULT_WAKE_SECONDS: Final = 300.0


class CellOperator:
    """Operates one cell."""

    def __init__(self, loop: StepLoop) -> None:
        self._loop = loop
        self._test = SelfTest(loop)

    def set_roles(self, request: admin_pb2.SetRolesRequest) -> admin_pb2.SetRolesResponse:
        """Change the roles of a worker. Raises InvalidRequestError naming worker or roles."""
        roles = _roles(request)
        name = find_worker(request.worker, [worker.hex() for worker in self._loop.workers])
        worker_id = bytes.fromhex(name)
        self._loop.set_roles(worker_id, roles)
        return admin_pb2.SetRolesResponse(worker=worker_topology(self._entry(worker_id)))

    def topology(self) -> admin_pb2.TopologyResponse:
        """Return the workers, and the pairs of workers that exchange blocks."""
        cell = cell_topology(self._loop.topology(), self._loop.generation.number)
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
                answer.topology.CopyFrom(self.topology())
            elif kind == "self_test":
                answer.self_test.CopyFrom(await self.self_test(query.self_test))
            elif kind == "sleep":
                answer.sleep.CopyFrom(await self.sleep(query.sleep))
            elif kind == "wake_up":
                answer.wake_up.CopyFrom(await self.wake_up(query.wake_up))
            else:
                raise WireError("an admin query asks something that is not known here")
        except PagewireError as error:
            answer.error.CopyFrom(to_detail(error))
        return answer

    def _entry(self, worker_id: bytes) -> WorkerEntry:
        entries = self._loop.topology().workers
        return next(entry for entry in entries if entry.worker_id == worker_id)


def _seconds(request: admin_pb2.SleepRequest | admin_pb2.WakeUpRequest, default: float) -> float:
    return request.timeout_ms / 1000 if request.HasField("timeout_ms") else default


def _roles(request: admin_pb2.SetRolesRequest) -> frozenset[Role]:
    # In a hello no role means all roles; a change of roles names them.
    if not request.roles:
        raise InvalidRequestError("roles must name at least one role", field="roles")
    try:
        return roles_from_message(request.roles)
    except PeerRefusedError as error:
        raise InvalidRequestError(error.message, field="roles") from error
