"""Answers operators about roles, topology and self-test of the cell, for the admin service and for
frontends that pass questions on."""

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
    PagewireError,
    PeerRefusedError,
    WireError,
)
from pagewire_shared.identity.ids import find_worker
from pagewire_shared.rpc.errors import to_detail


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
            else:
                raise WireError("an admin query asks something that is not known here")
        except PagewireError as error:
            answer.error.CopyFrom(to_detail(error))
        return answer

    def _entry(self, worker_id: bytes) -> WorkerEntry:
        entries = self._loop.topology().workers
        return next(entry for entry in entries if entry.worker_id == worker_id)


def _roles(request: admin_pb2.SetRolesRequest) -> frozenset[Role]:
    # In a hello no role means all roles; a change of roles names them.
    if not request.roles:
        raise InvalidRequestError("roles must name at least one role", field="roles")
    try:
        return roles_from_message(request.roles)
    except PeerRefusedError as error:
        raise InvalidRequestError(error.message, field="roles") from error
