"""Converts the questions of operators to messages."""

from pagewire_protos.scheduler.v1 import admin_pb2
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as pb
from pagewire_shared.inspection.stacks import own_stacks
from pagewire_shared.inspection.stacks_convert import stacks_to_message

Operation = (
    admin_pb2.SetRolesRequest
    | admin_pb2.TopologyRequest
    | admin_pb2.SelfTestRequest
    | admin_pb2.SleepRequest
    | admin_pb2.WakeUpRequest
    | admin_pb2.UpdateWeightsRequest
    | admin_pb2.StacksRequest
    | pb.WorkerQuestion
)
"""What an operator asks of a cell."""


def admin_query_message(query_id: int, query: Operation) -> pb.AttachFrontendRequest:
    """Return an operator's question."""
    message = pb.AdminQuery(query_id=query_id)
    if isinstance(query, admin_pb2.SetRolesRequest):
        message.set_roles.CopyFrom(query)
    elif isinstance(query, admin_pb2.TopologyRequest):
        message.topology.CopyFrom(query)
    elif isinstance(query, admin_pb2.SleepRequest):
        message.sleep.CopyFrom(query)
    elif isinstance(query, admin_pb2.WakeUpRequest):
        message.wake_up.CopyFrom(query)
    elif isinstance(query, admin_pb2.UpdateWeightsRequest):
        message.update_weights.CopyFrom(query)
    elif isinstance(query, admin_pb2.StacksRequest):
        message.stacks.CopyFrom(query)
    elif isinstance(query, pb.WorkerQuestion):
        message.ask_worker.CopyFrom(query)
    else:
        message.self_test.CopyFrom(query)
    return pb.AttachFrontendRequest(admin_query=message)


def stacks_reply_message(query_id: int, name: str) -> pb.AttachFrontendRequest:
    """Return where the code of this process is, a frontend of that name."""
    stacks = stacks_to_message(own_stacks("frontend", name))
    return pb.AttachFrontendRequest(stacks_reply=pb.StacksReply(query_id=query_id, stacks=stacks))
