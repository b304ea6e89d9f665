"""The layers that choose: read from a setting, held against the model, and what their attention is."""

import pytest
import torch

from ragkv.errors import Rejected
from ragkv.settings import Settings
from ragkv.stitch.policies import DEFAULT_CHOICE, Choice
from ragkv.stitch.select import attention_weights


@pytest.mark.parametrize(
    ("text", "layers"),
    [("upper", ()), ("9-12", (9, 10, 11, 12)), ("12, 9,10", (9, 10, 12)), ("0", (0,)), ("3-4,8,4-5", (3, 4, 5, 8))],
)
def test_layers_are_ranges_and_numbers(text: str, layers: tuple[int, ...]):
    choice = Choice.of(text)

    assert choice.layers == layers
    assert Choice.of(choice.text) == choice


@pytest.mark.parametrize("text", ["", "third", "middle", "9-", "12-9", "-3", "9;10", "1.5", "1024", "99999"])
def test_anything_else_is_refused_with_what_to_give(text: str):
    with pytest.raises(Rejected, match=r"RAGKV_CHOOSING_LAYERS=.*: give \"upper\", a range such as 9-20"):
        Choice.of(text)


def test_the_setting_is_refused_where_it_is_read():
    with pytest.raises(Rejected, match="RAGKV_CHOOSING_LAYERS=last"):
        Settings.from_env({"RAGKV_CHOOSING_LAYERS": "last"})


def test_without_layers_those_from_a_third_of_the_depth_up_choose():
    assert DEFAULT_CHOICE.layers_of(30) == tuple(range(10, 30))
    assert DEFAULT_CHOICE.layers_of(1) == (0,)


def test_layers_that_the_model_lacks_are_refused_with_those_it_has():
    assert Choice.of("20-29").layers_of(30)[-1] == 29
    with pytest.raises(Rejected, match="20-30: the model has layers 0 to 29"):
        Choice.of("20-30").layers_of(30)


def test_attention_weights_are_a_plain_softmax_averaged_over_queries_and_heads():
    """Four query heads on two key heads: heads 0 and 1 read the first, 2 and 3 the second."""
    torch.manual_seed(0)
    queries, keys = torch.randn(3, 4, 8), torch.randn(5, 2, 8)
    rows = [torch.softmax(keys[:, head // 2] @ query[head] / 8**0.5, 0) for query in queries for head in range(4)]

    torch.testing.assert_close(attention_weights(queries, keys), torch.stack(rows).mean(0))
