"""The tables of what routes and methods ask of an API key hold all of them."""

import pytest

from pagewire_frontend.access.scopes import (
    ANY_KEY,
    METHODS,
    require_listed,
    require_scope,
    scope_of_method,
    scope_of_path,
)
from pagewire_frontend.grpc_api.service import SERVICE_NAMES
from pagewire_protos.frontend.v1 import adapters_pb2, batch_pb2, explain_pb2, inference_pb2
from pagewire_protos.scheduler.v1 import admin_pb2
from pagewire_shared.errors import ForbiddenError
from pagewire_shared.identity.key_rights import ALL_SCOPES, KeyScope

FILES = (inference_pb2, batch_pb2, adapters_pb2, explain_pb2, admin_pb2)


def test_every_public_method_is_listed_and_no_other():
    services = [one for file in FILES for one in file.DESCRIPTOR.services_by_name.values()]
    assert {one.full_name for one in services} == set(SERVICE_NAMES)
    found = {f"/{one.full_name}/{method.name}" for one in services for method in one.methods}
    assert found == set(METHODS)


def test_a_method_that_is_not_listed_needs_an_administrator():
    assert scope_of_method("/pagewire.frontend.v1.New/Call") is KeyScope.ADMIN


@pytest.mark.parametrize("route", ["/new", "/new/{id}", "/v1/models{id}"])
def test_a_route_that_is_not_listed_ends_the_start(route):
    require_listed(["/health", "/page/{name}", "/v1/streams/{id}", "/sleep"])
    with pytest.raises(AssertionError, match="says nothing of API keys"):
        require_listed([route])


def test_paths_with_ids():
    assert scope_of_path("/v1/responses/resp_1/cancel") is KeyScope.GENERATE
    assert scope_of_path("/v1/models/org/name") is ANY_KEY


def test_a_scope_is_required_by_name():
    require_scope((), ANY_KEY)
    require_scope(ALL_SCOPES, KeyScope.METRICS)
    with pytest.raises(ForbiddenError, match="no scope 'metrics'"):
        require_scope({KeyScope.ADMIN}, KeyScope.METRICS)
