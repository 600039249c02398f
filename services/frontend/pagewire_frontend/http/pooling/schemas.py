"""Bodies of /score, /rerank, /pooling and /classify, in the forms of vLLM, Cohere and Jina."""

from typing import Annotated, Literal

from pydantic import Field

from pagewire_frontend.http.body_fields import FIRST_ERROR, Ids, ListsOfIds, StrictBody, Texts
from pagewire_frontend.http.openai.schemas import ChatMessageBody


class PooledBody(StrictBody):
    """Fields of all four bodies."""

    model: str | None = None
    truncate_prompt_tokens: int | None = None
    use_activation: bool | None = None
    cache_salt: str | None = None
    priority: int | None = None
    # The name that vLLM had for use_activation.
    activation: bool | None = None

    @property
    def is_activated(self) -> bool | None:
        """Whether class scores become probabilities; None as the model's files say."""
        return self.activation if self.use_activation is None else self.use_activation


class ScoreBody(PooledBody):
    """POST /score and /v1/score: one query or as many as documents, under any of three names."""

    text_1: str | Texts | None = None
    text_2: str | Texts | None = None
    queries: str | Texts | None = None
    documents: str | Texts | None = None
    data_1: str | Texts | None = None
    data_2: str | Texts | None = None


class DocumentBody(StrictBody):
    """A document as an object."""

    text: str


Documents = Annotated[list[str | DocumentBody], FIRST_ERROR]


class RerankBody(PooledBody):
    """POST /rerank, /v1/rerank and /v2/rerank."""

    query: str
    documents: Documents
    top_n: int | None = None
    return_documents: bool | None = None
    max_tokens_per_doc: int | None = None


class ClassifyBody(PooledBody):
    """POST /classify."""

    input: str | Texts | Ids | ListsOfIds | None = None
    messages: Annotated[list[ChatMessageBody], Field(min_length=1), FIRST_ERROR] | None = None
    add_special_tokens: bool | None = None


class PoolingBody(ClassifyBody):
    """POST /pooling."""

    task: Literal["embed", "token_embed", "classify"] | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    normalize: bool | None = None
