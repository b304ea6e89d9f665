"""The dtype that a machine computes in, beside the one that KV is kept in."""

import pytest
import torch
from transformers import LlamaConfig

from ragkv.engine.launch import engine_arguments, transfer_config
from ragkv.kv.layout import Layout, computed_in
from ragkv.settings import Settings

AVX2 = {"avx2": True, "fma3": True, "avx512_f": False, "avx512_bf16": False, "amx_bf16": False}
SKYLAKE = AVX2 | {"avx512_f": True}
SAPPHIRE_RAPIDS = SKYLAKE | {"avx512_bf16": True, "avx512_fp16": True, "amx_bf16": True}


@pytest.mark.parametrize(
    ("capabilities", "kept", "computed"),
    [
        (AVX2, torch.bfloat16, torch.float32),
        (AVX2, torch.float16, torch.float32),
        (AVX2, torch.float32, torch.float32),
        (SKYLAKE, torch.bfloat16, torch.bfloat16),
        (SKYLAKE, torch.float16, torch.float32),
        (SAPPHIRE_RAPIDS, torch.float16, torch.float16),
        ({}, torch.bfloat16, torch.float32),
    ],
)
def test_a_processor_computes_in_what_it_has_arithmetic_for(monkeypatch, capabilities, kept, computed):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)

    assert computed_in(kept) is computed


def test_a_gpu_computes_in_what_is_kept(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: AVX2)

    assert computed_in(torch.bfloat16) is torch.bfloat16


def test_the_engine_is_told_both(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: AVX2)
    layout = Layout(layers=2, q_heads=4, kv_heads=2, head_dim=16, dtype=torch.bfloat16)
    LlamaConfig().save_pretrained(tmp_path)

    assert engine_arguments(Settings(), tmp_path, layout)["dtype"] == "float32"
    assert transfer_config(Settings(), tmp_path, layout)["kv_connector_extra_config"]["kv_dtype"] == "bfloat16"
