"""/openapi.json: describes the API, from the routes, the models of the bodies and the schemas of
the answers. The page at /docs shows it."""

import re
from typing import Any

import orjson
from fastapi import FastAPI, Response
from fastapi.openapi.utils import get_openapi

from pagewire_frontend.access.scopes import ANY_KEY, is_open, scope_of_path
from pagewire_frontend.http.field_notes import EXAMPLES, described
from pagewire_frontend.http.openai.answer_schemas import ANSWERS, SCHEMAS
from pagewire_frontend.http.server.request_id import REQUEST_ID
from pagewire_shared.process.metrics import package_version

Json = dict[str, Any]

_ALWAYS = (400, 408, 414, 431, 500, 503)
_WITH_BODY = (404, 413, 415, 429, 504)
_REASONS = {
    400: "A field or the request itself is not valid",
    401: "No API key, or one that is not known",
    403: "The API key has no scope for this",
    404: "No such model",
    408: "The request did not come in time",
    409: "The stream cannot be made again",
    413: "The body is too large",
    414: "Path and query are too long",
    415: "The body is said to be no JSON",
    429: "Too much is asked for now",
    431: "The headers are too large",
    500: "The server is at fault",
    503: "It cannot be answered now",
    504: "The deadline passed",
}
_REQUEST_ID_HEADER = {
    "description": "The label of the exchange: the client's, or one made here",
    "schema": {"type": "string"},
}


def install_description(app: FastAPI, *, are_keys_required: bool) -> None:
    """Add the endpoint, which describes the routes that `app` has by now."""
    document = orjson.dumps(describe(app, are_keys_required=are_keys_required))

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return Response(document, media_type="application/json")


def describe(app: FastAPI, *, are_keys_required: bool) -> Json:
    """Return the OpenAPI 3.1 document of an application."""
    drawn = get_openapi(
        title="Pagewire",
        version=package_version(),
        description="LLM serving. Errors have one form on every status.",
        routes=app.routes,
    )
    schemas = {name: dict(schema) for name, schema in SCHEMAS.items()}
    for path, methods in drawn["paths"].items():
        for method, operation in methods.items():
            _complete(operation, path, method, schemas, are_keys_required)
    drawn["components"] = {"schemas": {**_with_notes(schemas), **SCHEMAS}}
    if are_keys_required:
        scheme = {"type": "http", "scheme": "bearer", "description": "An API key"}
        drawn["components"]["securitySchemes"] = {"key": scheme}
    document: Json = drawn
    return document


def _complete(
    operation: Json, path: str, method: str, schemas: Json, are_keys_required: bool
) -> None:
    operation["operationId"] = re.sub(r"\W+", "_", f"{method}{path}").strip("_")
    operation.setdefault("parameters", []).append(
        {"name": REQUEST_ID, "in": "header", "required": False, **_REQUEST_ID_HEADER}
    )
    statuses: list[int] = [*_ALWAYS]
    for content in operation.get("requestBody", {}).get("content", {}).values():
        content["schema"] = _hoisted(content["schema"], schemas)
        if path in EXAMPLES:
            content["example"] = EXAMPLES[path]
        statuses += _WITH_BODY
    if "{" in path or "model" in {one["name"] for one in operation["parameters"]}:
        statuses.append(404)
    if "{stream_id}" in path:
        statuses.append(409)
    if are_keys_required and not is_open(path, protects_metrics=False):
        operation["security"] = [{"key": []}]
        statuses += [401, 403] if scope_of_path(path) is not ANY_KEY else [401]
    success = {key: value for key, value in operation["responses"].items() if key[0] in "23"}
    answer = ANSWERS.get(f"{method} {path}") or ANSWERS.get(path)
    if answer is not None:
        success = {"200": _success(*answer)}
    errors = {str(status): _error(status) for status in sorted(set(statuses))}
    operation["responses"] = {**success, **errors}
    for response in operation["responses"].values():
        response["headers"] = {REQUEST_ID: _REQUEST_ID_HEADER}


def _success(whole: str | None, event: str | None) -> Json:
    content: Json = {}
    description = "The answer"
    if whole is not None:
        content["application/json"] = {"schema": _ref(whole)}
    if event is not None:
        when = "with stream: true as" if whole is not None else "as"
        description += f"; {when} events `data: {event}`, then `data: [DONE]`"
        content["text/event-stream"] = {"schema": _event(event), "x-event-schema": _ref(event)}
    return {"description": description, "content": content}


def _event(name: str) -> Json:
    """Return the schema of one event of a stream as OpenAPI 3.2 has it: its fields as texts."""
    data = {"type": "string", "contentMediaType": "application/json", "contentSchema": _ref(name)}
    fields = {"event": {"type": "string"}, "data": data}
    return {"type": "object", "properties": fields, "required": ["data"]}


def _error(status: int) -> Json:
    content = {"application/json": {"schema": _ref("Error")}}
    return {"description": _REASONS[status], "content": content}


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _hoisted(schema: Json, schemas: Json) -> Json:
    """Move a schema and its $defs to `schemas`, where references work; return a reference to it."""
    parts = dict(schema.get("$defs", {}))
    own = {key: value for key, value in schema.items() if key != "$defs"}
    title = str(schema["title"])
    plain = {part: part for part in parts}
    names = {
        part: part if schemas.get(part) in (None, _with_references(found, plain)) else title + part
        for part, found in parts.items()
    }
    for part, found in parts.items():
        schemas[names[part]] = _with_references(found, names)
    schemas[title] = _with_references(own, names)
    return _ref(title)


def _with_notes(schemas: Json) -> Json:
    """Return schemas of bodies with a description of each known field."""
    noted = {}
    for title, schema in schemas.items():
        fields = schema.get("properties", {})
        noted[title] = {**schema}
        if fields:
            noted[title]["properties"] = {name: described(name, fields[name]) for name in fields}
    return noted


def _with_references(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        if set(value) == {"$ref"} and value["$ref"].startswith("#/$defs/"):
            return _ref(names[value["$ref"].removeprefix("#/$defs/")])
        return {key: _with_references(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_references(item, names) for item in value]
    return value
