"""/v1/embeddings: vectors of texts, by the encoder that searches use."""

import asyncio
from base64 import b64encode
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from litestar import Request, Response
from litestar.di import NamedDependency
from litestar.params import JSONBody
from msgspec import Meta
from numpy.typing import NDArray

from api.access.auth import reading
from api.access.concurrency import asking
from api.http.disconnect import unless_disconnected
from api.http.methods import post
from api.openai.errors import BadParam, NoSuchModel, errors
from api.openai.fields import Ignored
from ragkv.ids import batched
from ragkv.models import encoder_name
from ragkv.retrieve.encoder import TextEncoder
from ragkv.service.parts import Parts

BODY_BYTES = 8 * 1024 * 1024
MAX_TEXTS = 2048
MAX_TEXT_CHARS = 32_768
MAX_CHARS = 1_000_000
"""Of all texts of a request."""
TOGETHER = 8
"""Texts that are encoded at once: a question that is searched for waits for these at most."""

Text = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_TEXT_CHARS,
        description="Send text, not tokens (LangChain: `check_embedding_ctx_length=False`).",
    ),
]
Encoding = Literal["float", "base64"]


class EmbeddingsBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request for embeddings."""

    input: Annotated[
        Text | Annotated[list[Text], Meta(min_length=1, max_length=MAX_TEXTS)],
        "Text to embed, or texts. Of each text the encoder reads the beginning, as much as fits its window.",
    ]
    model: Annotated[str, "Name of the encoder: see *Embeddings* in the guide to OpenAI's clients."]
    encoding_format: Annotated[
        Encoding | None, "`float` for a list of numbers, `base64` for the bytes of 32-bit floats, little-endian."
    ] = None
    dimensions: Annotated[int | None, "Number of dimensions. Only the encoder's own is supported."] = None
    user: Ignored = None

    @property
    def texts(self) -> list[str]:
        return [self.input] if isinstance(self.input, str) else self.input


class Embedding(msgspec.Struct, frozen=True, kw_only=True):
    """The embedding of a text: a vector of unit length."""

    index: Annotated[int, "Position of the text in `input`."]
    embedding: Annotated[list[float] | str, "The vector, or its bytes in base64."]
    object: Literal["embedding"] = "embedding"


class EmbeddingUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens that the encoder read."""

    prompt_tokens: Annotated[int, "Tokens that the encoder read."]
    total_tokens: Annotated[int, "The same number."]


class Embeddings(msgspec.Struct, frozen=True, kw_only=True):
    """Embeddings, in the order of the texts."""

    data: Annotated[list[Embedding], "Embeddings, in the order of the texts."]
    model: Annotated[str, "Name of the encoder."]
    usage: Annotated[EmbeddingUsage, "Tokens that the encoder read."]
    object: Literal["list"] = "list"


@post(
    "/v1/embeddings",
    "Create embeddings",
    errors(NOT_FOUND="No such model.", REQUEST_ENTITY_TOO_LARGE="The body is too large."),
    reading,
    asking,
    status_code=200,
    tags=["openai: embeddings"],
    request_max_body_size=BODY_BYTES,
)
async def embed(
    data: JSONBody[EmbeddingsBody], request: Request[Any, Any, Any], parts: NamedDependency[Parts]
) -> Response[Embeddings]:
    """Embed texts with the encoder that finds passages. It makes no difference between questions and documents."""
    name = encoder_name(parts.settings)
    if data.model != name:
        raise NoSuchModel(f"no such model: {data.model[:200]!r}; embeddings are made by {name!r}")
    if (characters := sum(map(len, data.texts))) > MAX_CHARS:
        raise BadParam("input", f"'input' has {characters:,} characters, the limit is {MAX_CHARS:,}: send fewer texts")
    encoder = (await parts.loaded()).question_encoder
    if data.dimensions not in {None, encoder.dim}:
        raise BadParam("dimensions", f"'dimensions': the vectors of {name} have {encoder.dim}: send that, or omit it")
    vectors, tokens = await unless_disconnected(request, _encoded(data.texts, encoder, parts))
    body = await asyncio.to_thread(_json, name, vectors, tokens, data.encoding_format or "float")
    response: Response[Any] = Response(body, media_type="application/json")
    return response


async def _encoded(texts: list[str], encoder: TextEncoder, parts: Parts) -> tuple[NDArray[np.float32], int]:
    """([texts, dim] vectors of unit length, tokens read). A few texts at a time, of like length: others' searches come
    in between."""
    vectors, tokens = np.zeros((len(texts), encoder.dim), np.float32), 0
    for numbers in batched(sorted(range(len(texts)), key=lambda number: len(texts[number])), TOGETHER):
        batch = [texts[number] for number in numbers]
        vectors[numbers] = await parts.embedding.run(encoder.encode, batch)
        tokens += await parts.embedding.run(encoder.count_tokens, batch)
    return vectors, tokens


def _json(name: str, vectors: NDArray[np.float32], tokens: int, encoding: Encoding) -> bytes:
    """`Embeddings` as JSON, which takes a quarter of a second for the largest request."""
    rows = vectors.tolist()
    if encoding == "base64":
        rows = [b64encode(vector.astype("<f4").tobytes()).decode() for vector in vectors]
    data = [Embedding(index=number, embedding=row) for number, row in enumerate(rows)]
    usage = EmbeddingUsage(prompt_tokens=tokens, total_tokens=tokens)
    return msgspec.json.encode(Embeddings(data=data, model=name, usage=usage))
