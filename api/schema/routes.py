"""Documented endpoints: a method of a path, and its handler."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Union, get_args, get_origin

from litestar import Litestar, Response
from litestar.enums import RequestEncodingType
from litestar.handlers import HTTPRouteHandler
from litestar.params import BodyKwarg
from litestar.routes import HTTPRoute

from api.access.auth import PUBLIC, Requires

UNIONS = (Union, type(int | str))


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path. `method` in lower case."""

    method: str
    path: str
    handler: HTTPRouteHandler

    @property
    def status(self) -> str:
        """Status code of a successful response."""
        return str(int(self.handler.status_code))

    @property
    def scope(self) -> str | None:
        """The scope that the API key needs; None for a public endpoint."""
        if self.handler.opt.get(PUBLIC):
            return None
        return next(guard.scope for guard in self.handler.resolve_guards() if isinstance(guard, Requires))

    @property
    def body(self) -> Any:
        """The type of the body; None without one."""
        field = self.handler.parsed_fn_signature.parameters.get("data")
        return None if field is None else field.annotation

    @property
    def is_form(self) -> bool:
        """Whether the body is a form with files."""
        field = self.handler.parsed_fn_signature.parameters.get("data")
        definition = None if field is None else field.kwarg_definition
        return isinstance(definition, BodyKwarg) and definition.media_type == RequestEncodingType.MULTI_PART

    @property
    def answers(self) -> list[Any]:
        """Types of a successful response: those encoded as JSON, `File` or `ServerSentEvent`; empty for no content."""
        returned = self.handler.parsed_fn_signature.return_type.annotation
        kinds = get_args(returned) if get_origin(returned) in UNIONS else (returned,)
        contents = (get_args(kind)[0] if get_origin(kind) is Response else kind for kind in kinds)
        return [kind for kind in contents if kind is not type(None)]


def routes_of(app: Litestar) -> Iterator[Route]:
    """The documented endpoints, in the order of the app's routes."""
    for route in app.routes:
        if isinstance(route, HTTPRoute):
            for method, (handler, _) in route.route_handler_map.items():
                if handler.resolve_include_in_schema():
                    yield Route(str(method).lower(), route.path_format, handler)
