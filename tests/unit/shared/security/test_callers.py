"""Every method of the links between roles is in the table of callers, and nothing else is."""

import pytest
from google.protobuf.descriptor import ServiceDescriptor

from pagewire_protos.frontend.v1 import adapters_pb2, batch_pb2, explain_pb2, inference_pb2
from pagewire_shared.security.callers import CALLERS, may_call
from pagewire_shared.security.roles import LinkRole, identity_of, instance_uri
from support.security.services import INTERNAL
from support.source_tree import ROOT

PUBLIC = (inference_pb2, batch_pb2, explain_pb2, adapters_pb2)
"""Files whose services have API keys."""

BY_LIBRARIES = ("grpc.health.", "grpc.reflection.")


def services(files: tuple) -> list[ServiceDescriptor]:
    return [one for file in files for one in file.DESCRIPTOR.services_by_name.values()]


def methods(files: tuple) -> set[str]:
    return {f"{one.full_name}/{method.name}" for one in services(files) for method in one.methods}


def test_every_file_with_services_is_known_here() -> None:
    declared = {
        path.stem
        for path in (ROOT / "protos" / "pagewire").rglob("*.proto")
        if "\nservice " in path.read_text()
    }
    listed = {file.__name__.rpartition(".")[2] for file in (*PUBLIC, *INTERNAL)}
    assert {name.removesuffix("_pb2") for name in listed} == declared


def test_the_table_has_all_internal_methods() -> None:
    own = {name for name in CALLERS if not name.startswith(BY_LIBRARIES)}
    assert own == methods(INTERNAL)


def test_what_is_not_in_the_table_is_refused() -> None:
    everyone = frozenset(LinkRole)
    assert not any(may_call(f"/{name}", everyone) for name in methods(PUBLIC))
    assert not may_call("/pagewire.worker.v1.KvTransferService/Push", everyone)
    assert may_call("/pagewire.worker.v1.KvTransferService/Pull", everyone)


@pytest.mark.parametrize("method", CALLERS)
def test_a_caller_without_a_role_is_refused(method: str) -> None:
    assert not may_call(f"/{method}", frozenset())


def test_roles_come_of_whole_names() -> None:
    uri = instance_uri("default", LinkRole.WORKER, "w-1").encode()
    found = identity_of([b"worker.pagewire", b"link.pagewire", uri])
    assert (found.roles, str(found)) == (
        frozenset({LinkRole.WORKER}),
        "worker (spiffe://default/worker/w-1)",
    )
    for name in (b"worker.pagewire.example", b"xworker.pagewire", b"WORKER.pagewire", b"\xff"):
        assert not identity_of([name, uri]).roles
