"""The error tree, and how HTTP shows it."""

from collections.abc import Iterator

import pytest
from litestar.exceptions import NotAuthorizedException

from api.http.disconnect import ClientClosed
from api.http.errors import INTERNAL, STATUS, problem_of
from ragkv import errors
from ragkv.errors import Corrupt, RagKVError, Unavailable


def tree(kind: type[RagKVError]) -> Iterator[type[RagKVError]]:
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield child
            yield from tree(child)


def test_every_error_has_a_status_or_never_leaves_the_service():
    assert set(tree(RagKVError)) == set(STATUS) | INTERNAL
    assert not set(STATUS) & INTERNAL


def test_the_docstring_draws_the_tree_with_the_statuses_that_http_shows():
    drawn = {name: status for name, status, *_ in map(str.split, (errors.__doc__ or "").splitlines()[3:]) if status}

    assert drawn == {kind.__name__: str(int(STATUS[kind])) for kind in STATUS} | {
        kind.__name__: "-" for kind in INTERNAL
    }


@pytest.mark.parametrize("kind", list(STATUS), ids=lambda kind: kind.__name__)
def test_a_problem_tells_what_the_error_says(kind: type[RagKVError]):
    problem = problem_of(kind("do this"))

    assert (problem.status, problem.detail) == (STATUS[kind], "do this")


def test_unexpected_errors_tell_nothing_to_clients():
    for error in (RuntimeError("/etc/secret"), Corrupt("/srv/kv/ab")):
        problem = problem_of(error)
        assert problem.status == 500
        assert "/" not in problem.detail


def test_errors_of_http_keep_their_status():
    assert problem_of(NotAuthorizedException("no key")).status == 401


def test_unavailable_is_not_the_clients_fault():
    assert STATUS[Unavailable] == 503


def test_a_client_that_left_is_a_problem_like_any_other():
    """499 is nobody's standard, and no reason for an unexpected error."""
    problem = problem_of(ClientClosed())

    assert (problem.status, problem.title) == (499, "Client Closed Request")
