"""The writer's page: the one in use, with a chart of its training, and those that can be used."""

from litestar import Response, get
from litestar.di import NamedDependency

from api.admin.charts import AxisLabel, AxisScale, Chart, ChartLine, Dot
from api.admin.shell import AdminRequest, page
from ragkv.prefill.writer import SUFFICIENT_KL, Card
from ragkv.service.parts import Parts
from ragkv.service.writers import Writers, writers

LABELS_ACROSS = 4


@get("/writer", sync_to_thread=True)
def writer_page(request: AdminRequest, parts: NamedDependency[Parts]) -> Response[str]:
    """Render the writer in use and those that may be used; for other tenants than the default, that it is not
    theirs."""
    is_owner = request.user.tenant_id == parts.default_collection.tenant_id
    choice = writers(request.user.tenant_id, parts) if is_owner else None
    return page(
        request,
        "writer.html",
        choice=choice,
        curves=_curves(choice) if choice else {},
        sufficient_kl=SUFFICIENT_KL,
    )


def curve_of(card: Card) -> Chart:
    """KL on validation contexts over contexts trained on, of a card with two points or more."""
    last = card.curve[-1][0]
    scale = AxisScale(max(kl for _, kl in card.curve))
    dots = tuple(Dot(samples / last * 100, scale.y(kl)) for samples, kl in card.curve)
    labelled = card.curve[:: max(1, len(card.curve) // LABELS_ACROSS)]
    return Chart(
        across=tuple(AxisLabel(samples / last * 100, str(samples)) for samples, _ in labelled[1:]),
        up=scale.places(lambda kl: f"{kl:g}"),
        lines=(ChartLine("stitched", dots),),
    )


def _curves(choice: Writers) -> dict[str, Chart]:
    """Charts of those that were trained, by name; that of the writer in use has none."""
    cards = {writer.name: writer.card for writer in choice.available} | ({"": choice.in_use} if choice.in_use else {})
    return {name: curve_of(card) for name, card in cards.items() if len(card.curve) > 1}
