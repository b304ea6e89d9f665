"""The writer's page: the one in use, with a chart of its training, and those that can be used."""

from litestar import Response, get
from litestar.di import NamedDependency

from api.admin.charts import Chart, Dot, Line, Place, Scale
from api.admin.collection_choice import collections_of
from api.admin.shell import AdminRequest, page
from ragkv.catalog.writers import Writers, writers
from ragkv.parts import Parts
from ragkv.writer import SUFFICIENT_KL, Card

LABELS_ACROSS = 4


@get("/writer", sync_to_thread=True)
def writer_page(request: AdminRequest, parts: NamedDependency[Parts]) -> Response[str]:
    """Render the writer in use and those that may be used; for other tenants than the default, that it is not
    theirs."""
    is_owner = request.user.tenant_id == parts.default_collection.tenant_id
    seen = writers(request.user.tenant_id, parts) if is_owner else None
    cards = _cards(seen) if seen else {}
    curves = {key: curve_of(card) for key, card in cards.items() if len(card.curve) > 1}
    return page(
        request,
        "writer.html",
        seen=seen,
        curves=curves,
        collections=collections_of(request.user.tenant_id, parts.database) if seen else (),
        fingerprint=parts.model_fingerprint,
        sufficient_kl=SUFFICIENT_KL,
        polled=seen is not None and any(one.evaluation and one.evaluation.is_under_way for one in seen.available),
    )


def curve_of(card: Card) -> Chart:
    """KL on validation contexts over contexts trained on, of a card with two points or more."""
    last = card.curve[-1][0]
    scale = Scale(max(kl for _, kl in card.curve))
    dots = tuple(Dot(samples / last * 100, scale.y(kl)) for samples, kl in card.curve)
    labelled = card.curve[:: max(1, len(card.curve) // LABELS_ACROSS)]
    return Chart(
        across=tuple(Place(samples / last * 100, str(samples)) for samples, _ in labelled[1:]),
        up=scale.places(lambda kl: f"{kl:g}"),
        lines=(Line("stitched", dots),),
    )


def _cards(seen: Writers) -> dict[str, Card]:
    """Cards by the name that the page gives them; the one in use has none."""
    cards = {one.name: one.card for one in seen.available}
    return {"": seen.in_use, **cards} if seen.in_use else cards
