"""Routers of all endpoints for OpenAI's clients."""

from litestar import Router

from api.openai.chat import chat_router
from api.openai.files import files_router
from api.openai.models import models_router
from api.openai.responses import responses_router
from api.openai.vector_stores import vector_stores_router
from ragkv.settings import Settings


def openai_routers(settings: Settings) -> list[Router]:
    """The endpoints under /v1 that `OpenAI(base_url="http://host/v1")` calls."""
    return [models_router(), chat_router(), responses_router(), files_router(settings), vector_stores_router()]
