"""vLLM's worker: the platform's own, which also passes the model runner to the connector.

`--worker-cls ragkv.connector.worker.StitchWorker` is an official hook that works alike in-process and under `vllm
serve`.
"""

from typing import TYPE_CHECKING, Any

from vllm.distributed.kv_transfer import get_kv_transfer_group
from vllm.platforms import current_platform

from ragkv.connector.internals import keep_seeds, keeping_all_tokens
from ragkv.threads import end_with_parent

if TYPE_CHECKING or not current_platform.is_cpu():
    from vllm.v1.worker.gpu_worker import Worker as PlatformWorker
else:
    from vllm.v1.worker.cpu_worker import CPUWorker as PlatformWorker


class StitchWorker(PlatformWorker):
    """Attaches the StitchConnector to the loaded model."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        end_with_parent()
        super().__init__(*args, **kwargs)

    def get_kv_cache_spec(self) -> dict[str, Any]:
        """vLLM: the kinds of KV that the layers keep. All of it, also where all layers have a sliding window: a stitch
        fills blocks that vLLM would not give them."""
        return keeping_all_tokens(super().get_kv_cache_spec())

    def compile_or_warm_up_model(self) -> Any:
        """vLLM: the model is loaded and its cache allocated. The connector gets the model runner."""
        result = super().compile_or_warm_up_model()
        keep_seeds(self.model_runner)
        get_kv_transfer_group().attach(self.model_runner)
        return result
