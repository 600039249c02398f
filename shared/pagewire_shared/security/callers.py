"""Lists the roles that may call each method of the links between roles.

A method that is not in the table may not be called at all. The public services of the frontends are
not in it: their callers have API keys.
"""

from collections.abc import Mapping
from typing import Final

from pagewire_shared.security.roles import LinkRole

_FRONTEND, _SCHEDULER, _WORKER = LinkRole.FRONTEND, LinkRole.SCHEDULER, LinkRole.WORKER
_STORES: Final = "pagewire.kvstore.v1.KvStoreService"
_PEERS: Final = "pagewire.frontend.v1.PeerService"

_ADMIN: Final = "pagewire.scheduler.v1.AdminService"
ADMIN_METHODS: Final = tuple(
    f"{_ADMIN}/{name}"
    for name in (
        *("Audit", "ResetPrefixCache", "SetRoles", "Topology", "SelfTest", "Sleep", "WakeUp"),
        *("UpdateWeights", "StreamWeights"),
        *("StartProfile", "ReadProfile", "Stacks", "CollectiveRpc"),
    )
)
"""Schedulers serve them, too; operators usually ask a frontend, with an API key."""

ANY_ROLE: Final = frozenset(LinkRole)

CALLERS: Final[Mapping[str, frozenset[LinkRole]]] = {
    "pagewire.scheduler.v1.FrontendAttachService/AttachFrontend": frozenset({_FRONTEND}),
    "pagewire.scheduler.v1.WorkerAttachService/AttachWorker": frozenset({_WORKER}),
    "pagewire.scheduler.v1.StandbyService/Watch": frozenset({_FRONTEND, _WORKER}),
    **dict.fromkeys(ADMIN_METHODS, frozenset({LinkRole.OPERATOR})),
    "pagewire.worker.v1.KvTransferService/Pull": frozenset({_WORKER}),
    "pagewire.worker.v1.AdapterContentService/FetchAdapter": frozenset({_WORKER}),
    "pagewire.kvstore.v1.AdapterStoreService/StoreAdapter": frozenset({_FRONTEND}),
    f"{_STORES}/Hello": frozenset({_FRONTEND, _SCHEDULER, _WORKER}),
    f"{_STORES}/Put": frozenset({_WORKER}),
    f"{_STORES}/Get": frozenset({_WORKER}),
    f"{_STORES}/Exist": frozenset({_WORKER}),
    f"{_STORES}/Pin": frozenset({_SCHEDULER, _WORKER}),
    f"{_STORES}/Release": frozenset({_SCHEDULER, _WORKER}),
    f"{_STORES}/Delete": frozenset({_SCHEDULER, LinkRole.OPERATOR}),
    f"{_STORES}/Stats": frozenset({_SCHEDULER, LinkRole.OPERATOR}),
    f"{_STORES}/WatchBlocks": frozenset({_SCHEDULER}),
    f"{_STORES}/GetStacks": frozenset({_SCHEDULER, LinkRole.OPERATOR}),
    f"{_PEERS}/GetResponse": frozenset({_FRONTEND}),
    f"{_PEERS}/CancelResponse": frozenset({_FRONTEND}),
    f"{_PEERS}/DeleteResponse": frozenset({_FRONTEND}),
    f"{_PEERS}/ListInputItems": frozenset({_FRONTEND}),
    f"{_PEERS}/GetConversation": frozenset({_FRONTEND}),
    f"{_PEERS}/FollowEvents": frozenset({_FRONTEND}),
    f"{_PEERS}/FollowStream": frozenset({_FRONTEND}),
    f"{_PEERS}/DropStream": frozenset({_FRONTEND}),
    f"{_PEERS}/ClaimKey": frozenset({_FRONTEND}),
    f"{_PEERS}/KeepRecipe": frozenset({_FRONTEND}),
    f"{_PEERS}/NoteUsage": frozenset({_FRONTEND}),
    f"{_PEERS}/RenewRecipes": frozenset({_FRONTEND}),
    f"{_PEERS}/ExplainOwn": frozenset({_FRONTEND}),
    f"{_PEERS}/GetMetrics": frozenset({_FRONTEND}),
    f"{_PEERS}/SetAdapter": frozenset({_FRONTEND}),
    "grpc.health.v1.Health/Check": ANY_ROLE,
    "grpc.health.v1.Health/Watch": ANY_ROLE,
    "grpc.health.v1.Health/List": ANY_ROLE,
    "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": frozenset({LinkRole.OPERATOR}),
}
"""Full name of a method to the roles that may call it."""


def may_call(method: str, roles: frozenset[LinkRole]) -> bool:
    """Return whether one of the roles may call a method, `/package.Service/Method`."""
    return bool(CALLERS.get(method.removeprefix("/"), frozenset()) & roles)
