"""The memory and the weights of workers: POST /sleep, POST /wake_up and GET /is_sleeping, in vLLM's
form, and POST /update_weights. A key needs the scope `admin`.

Queries and answers of the first three are those of vLLM (vllm/entrypoints/openai/api_server.py),
errors in the envelope of this gateway; `model` is our own.
"""

from typing import Final

from fastapi import APIRouter, Request, Response

from pagewire_frontend.access.admin_log import noted
from pagewire_frontend.http.body_fields import StrictBody
from pagewire_frontend.http.openai.bodies import Bodies
from pagewire_frontend.http.openai.schemas import body_schema
from pagewire_frontend.http.server.errors import json_response
from pagewire_frontend.http.server.query import whole_number
from pagewire_frontend.scheduler.sleep_link import SleepCalls
from pagewire_frontend.scheduler.weights_link import WeightsCalls
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.sleep.state import SleepMode, parse_mode, parse_tags
from pagewire_shared.weights.version import UpdateMode, parse_update_mode


def _parameter(name: str, schema: dict[str, object], text: str) -> dict[str, object]:
    return {
        "name": name,
        "in": "query",
        "required": False,
        "schema": schema,
        "description": text,
    }


_TEXT: Final[dict[str, object]] = {"type": "string"}
_MODEL: Final = _parameter("model", _TEXT, "A served name; all models without it")
_LEVEL: Final = _parameter("level", {"enum": [1, 2], "default": 1}, "How deep they sleep")
_MODE: Final = _parameter(
    "mode",
    {"enum": ["keep", "wait"], "default": "keep"},
    "Whether requests that run are preempted, or run to their end first",
)
_TAGS: Final = _parameter(
    "tags",
    {"type": "array", "items": {"enum": ["weights", "kv_cache"]}},
    "Parts to make anew; all without any",
)


MAX_SECONDS = 86400.0


class UpdateWeightsBody(StrictBody):
    """POST /update_weights."""

    path: str | None = None
    version: str | None = None
    mode: str | None = None
    model: str | None = None
    timeout: float | int | None = None


def make_router(calls: SleepCalls, weights: WeightsCalls, *, bodies: Bodies) -> APIRouter:
    """Return the four endpoints."""
    router = APIRouter()

    @router.post("/sleep", openapi_extra={"parameters": [_LEVEL, _MODE, _MODEL]})
    async def sleep(request: Request) -> Response:
        """Let workers give their memory back; answers once they have."""
        query = request.query_params
        with noted("Sleep", dict(query)):
            level = whole_number(query, "level", least=1, most=2)
            mode = parse_mode(query.get("mode", SleepMode.KEEP.value))
            await calls.sleep_all(level or 1, mode, query.get("model"))
        return Response()

    @router.post("/wake_up", openapi_extra={"parameters": [_TAGS, _MODEL]})
    async def wake_up(request: Request) -> Response:
        """Let workers make their memory anew; answers once they have."""
        query = request.query_params
        with noted("WakeUp", dict(query)):
            tags = parse_tags(query.getlist("tags"))
            await calls.wake_all(tags, query.get("model"))
        return Response()

    @router.get("/is_sleeping", openapi_extra={"parameters": [_MODEL]})
    async def is_sleeping(request: Request) -> Response:
        """Say whether no worker is awake."""
        return json_response(
            {"is_sleeping": await calls.is_sleeping(request.query_params.get("model"))}
        )

    @router.post("/update_weights", openapi_extra=body_schema(UpdateWeightsBody))
    async def update_weights(request: Request) -> Response:
        """Give the workers of a model other weights; answers once they serve them."""
        body = await bodies.read(request, UpdateWeightsBody)
        with noted("UpdateWeights", body.model_dump(exclude_none=True)):
            versions = await weights.update_from_folder(
                _path(body),
                version=body.version or "",
                mode=parse_update_mode(body.mode or UpdateMode.WAIT.value),
                model=body.model,
                timeout_seconds=_timeout(body),
            )
        workers = [{"worker": name, "version": version} for name, version in versions.items()]
        return json_response({"workers": workers})

    return router


def _path(body: UpdateWeightsBody) -> str:
    if body.path is None:
        raise InvalidRequestError(
            'path is required: a folder on the hosts of the workers, or "" for the model that they '
            "were started with",
            field="path",
        )
    return body.path


def _timeout(body: UpdateWeightsBody) -> float | None:
    if body.timeout is not None and not 0 < body.timeout <= MAX_SECONDS:
        raise InvalidRequestError(
            f"timeout must be more than 0 and at most {MAX_SECONDS:g} seconds", field="timeout"
        )
    return body.timeout
