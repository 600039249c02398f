"""docs/api.md says what the code does: every error with its status, type and code, every path."""

import re
from pathlib import Path

import grpc
from fastapi import FastAPI

from pagewire_frontend.access.api_keys import ApiKeys
from pagewire_frontend.access.scopes import METRICS_PATH, OPEN_FOLDER, OPEN_PATHS
from pagewire_frontend.adapters.allowed_paths import AllowedPaths
from pagewire_frontend.adapters.calls import AdapterCalls
from pagewire_frontend.adapters.registry import AdapterRegistry
from pagewire_frontend.group.recipes import GroupRecipes
from pagewire_frontend.http.app import Access, make_app
from pagewire_frontend.http.body.json_body import MAX_COMMAS
from pagewire_frontend.http.description import describe
from pagewire_frontend.http.field_notes import EXAMPLES, NOTES
from pagewire_frontend.http.kept_streams.keyed_streams import KeyedStreams
from pagewire_frontend.http.kept_streams.keys import LocalKeys
from pagewire_frontend.http.kept_streams.local_streams import JournalLimits, LocalStreams
from pagewire_frontend.http.kept_streams.recipes import RecipeStore
from pagewire_frontend.http.openai.answer_schemas import ANSWERS
from pagewire_frontend.http.openai.bodies import Bodies
from pagewire_frontend.http.openai.information import GrpcPort
from pagewire_frontend.http.openai.streams import Streams
from pagewire_frontend.http.responses.local import LocalResponses
from pagewire_frontend.http.responses.store import StoreLimits
from pagewire_frontend.http.server.errors import (
    CODE_BY_STATUS,
    BodyTooLargeError,
    ClientGoneError,
    MediaTypeError,
    error_body,
    status_of,
)
from pagewire_shared.errors import ERROR_CLASSES, InvalidRequestError
from support.traffic.bad_bodies import MODELS, VALID

ROOT = Path(__file__).parents[4]
TEXT = (ROOT / "docs" / "api.md").read_text()
# How the code writes the code of an error.
CODE = re.compile(r'\bcode(?:: str)? ?= ?"([a-z_]+)"')
# One is printed, the others stand in the body of a response that failed.
NOT_OVER_HTTP = {"startup_error", "server_error", "invalid_prompt"}


def table(heading):
    section = TEXT.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines[2:]]


ROWS = {row[2]: row for row in table("Errors")}


def test_every_code_of_the_code_has_a_row_and_every_row_a_code():
    folders = [ROOT / "services/frontend", ROOT / "shared"]
    sources = [path.read_text() for folder in folders for path in folder.rglob("*.py")]
    used = {code for source in sources for code in CODE.findall(source)} - NOT_OVER_HTTP
    assert used | set(CODE_BY_STATUS.values()) == set(ROWS)
    assert len(table("Errors")) == len(ROWS)


def test_rows_of_error_classes_say_their_status_type_and_grpc_status():
    for cls in (*ERROR_CLASSES, BodyTooLargeError, MediaTypeError, ClientGoneError):
        error = cls("message")
        shown = error_body(error)["error"]
        status, kind, _, param, _, over_grpc = ROWS[error.code]
        assert (int(status), kind) == (status_of(error), shown["type"])
        assert shown["param"] is None or shown["param"] == param
        assert over_grpc in (error.status_name, "-")
        assert over_grpc == "-" or hasattr(grpc.StatusCode, over_grpc)


def test_rows_of_refusals_say_their_status_and_type():
    for status, code in CODE_BY_STATUS.items():
        kinds = {
            400: "invalid_request_error",
            500: "server_error",
            503: "service_unavailable_error",
        }
        assert ROWS[code][:2] == [str(status), kinds.get(status, "invalid_request_error")]
    for code in ("invalid_json", "invalid_type", "unsupported_parameter", "cors_refused"):
        error = InvalidRequestError("message", code=code)
        assert ROWS[code][:2] == ["400", error_body(error)["error"]["type"]]
    assert str(MAX_COMMAS) in ROWS["body_too_complex"][4]


class Nothing:
    """As much of an engine as the routes are made with."""

    models = ()


async def nothing() -> str:
    return ""


def described_app(*, are_keys_required):
    """Return the description of an application without parts behind it."""
    kept = LocalStreams("00000000", JournalLimits(retention_seconds=1.0, max_bytes=1))
    limits = StoreLimits(max_responses=1, max_bytes=1, max_seconds=1.0)
    responses = LocalResponses(Nothing(), "00000000", limits, kept)
    inner = make_app(
        Nothing(),
        responses,
        bodies=Bodies(1),
        access=Access(keys=ApiKeys()),
        exposition=nothing,
        directory=responses,
        streams=Streams(
            kept,
            KeyedStreams(kept, kept, LocalKeys()),
            GroupRecipes({}, kept, RecipeStore(1, 1.0), name="a", num_replicas=1),
        ),
        kept_streams=kept,
        grpc_port=GrpcPort(),
        adapters=AdapterCalls(
            AdapterRegistry(None, models=(), taken_names=()), AllowedPaths((), ())
        ),
        pool=Nothing(),
    )
    while not isinstance(inner, FastAPI):
        inner = inner._app
    return describe(inner, are_keys_required=are_keys_required)


def test_every_path_has_a_row_and_every_row_a_path():
    document = described_app(are_keys_required=True)
    described = {
        (method.upper(), path): "security" in operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    files = f"{OPEN_FOLDER}{{name}}"
    described |= {("GET", path): False for path in ("/openapi.json", "/docs", "/", files)}
    assert described == {(row[0], row[1]): row[3] == "yes" for row in table("Endpoints")}
    is_open = {path for (_, path), is_guarded in described.items() if not is_guarded}
    assert is_open == OPEN_PATHS | {METRICS_PATH, files}


def test_every_path_has_a_schema_of_its_answer_and_a_valid_body():
    paths = described_app(are_keys_required=True)["paths"]
    assert {place.split()[-1] for place in ANSWERS} == set(paths) - {"/metrics"}
    with_body = {
        path for path, methods in paths.items() if "requestBody" in methods.get("post", ())
    }
    assert with_body == set(MODELS) == set(VALID)


def test_notes_and_examples_are_of_fields_and_paths_that_exist():
    document = described_app(are_keys_required=False)
    schemas = document["components"]["schemas"]
    fields = {name for schema in schemas.values() for name in schema.get("properties", ())}
    assert set(NOTES) <= fields
    for path, example in EXAMPLES.items():
        assert MODELS[path].model_validate(example)
        content = document["paths"][path]["post"]["requestBody"]["content"]
        assert content["application/json"]["example"] == example
    temperature = schemas["ChatBody"]["properties"]["temperature"]
    assert temperature["description"].endswith("From 0 to 2")


def test_every_reference_of_the_description_leads_somewhere():
    document = described_app(are_keys_required=False)
    text = repr(document)
    names = set(re.findall(r"#/components/schemas/(\w+)", text))
    assert names <= set(document["components"]["schemas"])
    assert "$defs" not in text
    assert "422" not in text
    assert "security" not in text
    for methods in document["paths"].values():
        for operation in methods.values():
            for status, response in operation["responses"].items():
                statuses = {row[0] for row in ROWS.values()} | {"200"}
                assert status in statuses
                assert "x-request-id" in response["headers"]
