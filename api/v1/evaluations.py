"""/v1/evaluations: runs that compare the service with full prefill, or its search with known answers."""

from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from litestar import Request, Router
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, JSONBody
from msgspec import Meta

from api.access.auth import administering
from api.access.concurrency import uploading_large
from api.http.errors import json_problems, problems
from api.http.methods import delete, get, post
from api.http.observe import note_made
from api.v1.lists import Limit, read_moment
from ragkv.service.base.caller import Caller
from ragkv.service.base.database import Database
from ragkv.service.base.tenants import DEFAULT_COLLECTION
from ragkv.service.evaluations.outcome import (
    EvaluationReport,
    EvaluationRun,
    EvaluationRunPage,
    GivenQuestion,
    RunKind,
    Source,
)
from ragkv.service.evaluations.runs import (
    MAX_QUESTIONS,
    RunRequest,
    cancel_run,
    delete_run,
    list_runs,
    report_of_run,
    start_run,
)

GIVEN_BYTES = 8 * 1024 * 1024


class NewEvaluation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new run of an evaluation."""

    collection: Annotated[str, "Collection id or name."] = DEFAULT_COLLECTION
    kind: RunKind = "fidelity"
    source: Annotated[
        Source,
        "Questions to measure. `rated`: those whose answer was corrected or rated up. `logged`: all logged "
        "questions. `given`: those in `questions`.",
    ] = "rated"
    limit: Annotated[int, "Maximum number of questions; the newest are measured.", Meta(ge=1, le=MAX_QUESTIONS)] = 100
    since: Annotated[
        str | None, "Measure only questions asked at this time or later: ISO 8601, UTC unless a time zone is given."
    ] = None
    before: Annotated[
        str | None, "Measure only questions asked before this time: ISO 8601, UTC unless a time zone is given."
    ] = None
    questions: Annotated[
        tuple[GivenQuestion, ...],
        "Questions for `given`, as in the lines of `ragkv eval fidelity --data`; refused with another `source`.",
        Meta(max_length=MAX_QUESTIONS),
    ] = ()


@post(
    "/",
    "Create an evaluation",
    json_problems(
        NOT_FOUND="No such collection.",
        CONFLICT="The tenant has the maximum number of evaluations, or of evaluations that have not ended.",
        UNPROCESSABLE_ENTITY="No question to measure, `questions` with a `source` other than `given`, or an invalid time.",
    ),
    uploading_large,
    status_code=HTTPStatus.ACCEPTED,
    request_max_body_size=GIVEN_BYTES,
)
def start(
    data: JSONBody[NewEvaluation],
    request: Request[Any, Any, Any],
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
) -> EvaluationRun:
    """Queue an evaluation on questions of a collection, with the settings in use. Users' questions come before its own.

    `fidelity` compares stitched answers with full prefill of the same prompts; `retrieval` searches for the passages
    that support known answers.
    """
    times = read_moment("since", data.since), read_moment("before", data.before)
    run_request = RunRequest(data.kind, data.source, data.limit, *times, questions=data.questions[: data.limit])
    run = start_run(caller.tenant_id, data.collection, run_request, database)
    note_made(request, run.id)
    return run


@get("/", "List evaluations", problems(NOT_FOUND="No such collection.", UNPROCESSABLE_ENTITY="Invalid cursor."))
def show(
    caller: NamedDependency[Caller],
    database: NamedDependency[Database],
    collection: FromQuery[str | None] = None,
    limit: FromQuery[Limit] = 50,
    cursor: FromQuery[str | None] = None,
) -> EvaluationRunPage:
    """List the tenant's evaluations, newest first, with their settings and figures."""
    return list_runs(caller.tenant_id, collection, limit, cursor, database)


@get("/{run_id:str}", "Get an evaluation", problems(NOT_FOUND="No such evaluation."))
def get_one(
    run_id: FromPath[str], caller: NamedDependency[Caller], database: NamedDependency[Database]
) -> EvaluationReport:
    """Get an evaluation with its questions, worst first. Texts of questions that are no longer stored are null."""
    return report_of_run(caller.tenant_id, run_id, database)


@post(
    "/{run_id:str}/cancel", "Cancel an evaluation", problems(NOT_FOUND="No such evaluation."), status_code=HTTPStatus.OK
)
def cancel(
    run_id: FromPath[str], caller: NamedDependency[Caller], database: NamedDependency[Database]
) -> EvaluationRun:
    """Cancel an evaluation. It keeps the figures of what it has measured. One that has ended is unchanged."""
    return cancel_run(caller.tenant_id, run_id, database)


@delete("/{run_id:str}", "Delete an evaluation", problems(NOT_FOUND="No such evaluation."))
def remove(run_id: FromPath[str], caller: NamedDependency[Caller], database: NamedDependency[Database]) -> None:
    """Delete an evaluation with its figures. One that has not ended is cancelled."""
    delete_run(caller.tenant_id, run_id, database)


evaluations_router = Router(
    "/v1/evaluations", route_handlers=[start, show, get_one, cancel, remove], guards=[administering], tags=["questions"]
)
