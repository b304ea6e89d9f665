"""All ways in for OpenAI's clients."""

from litestar import Router

from api.openai.chat import chat_router
from api.openai.models import models_router
from ragkv.settings import Settings


def openai_routers(settings: Settings) -> list[Router]:
    """The ways under /v1 that `OpenAI(base_url="http://host/v1")` asks."""
    return [models_router(), chat_router()]
