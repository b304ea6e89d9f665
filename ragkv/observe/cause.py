"""The request that caused a piece of work, stored with the work, so that its log lines and spans belong to that
request."""

from ragkv.observe import logs, traces

CAUSE_HEADER = "ragkv_request_id"


def cause() -> dict[str, str]:
    """The request and the trace that what happens now belongs to, as headers; none outside of any."""
    request_id = logs.request_id()
    return traces.headers() | ({CAUSE_HEADER: request_id} if request_id else {})
