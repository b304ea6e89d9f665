import pytest

from api.v1.ask import AskBody
from ragkv.service.base.caller import Caller
from ragkv.service.base.tenants import CollectionRef
from ragkv.stitch.policies import ALIASES, BLOCK_SIZES, POLICIES, policy_name
from ragkv.stitch.select import block_size_of


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_says_what_it_recomputes_and_has_a_block_size_that_may_be_asked_for(policy: str):
    assert POLICIES[policy].chooses
    assert block_size_of(policy) in BLOCK_SIZES


def test_no_alias_is_the_name_of_a_policy():
    assert not set(ALIASES) & set(POLICIES)


@pytest.mark.parametrize(("given", "expected"), [*ALIASES.items(), ("head", "head"), (None, None)])
def test_a_question_has_its_policy_by_name_whatever_it_was_asked_with(given, expected):
    body = AskBody(question="Who?", policy=given)

    caller = Caller("t", "k", frozenset(["read"]))

    assert policy_name(given) == body.to_question(caller, CollectionRef("t", "c", b""), None).policy == expected
