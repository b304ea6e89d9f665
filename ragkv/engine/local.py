"""The engine in this process: vLLM's AsyncLLM, whose core is a separate process."""

import asyncio
import logging
import multiprocessing
import os
import threading
import uuid
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragkv.engine.family import Family
from ragkv.engine.fork import core_context, end_server
from ragkv.engine.launch import (
    CONNECTOR_MODULE,
    engine_arguments,
    extend_vllm,
    processor_variables,
    transfer_config,
)
from ragkv.engine.protocol import MAX_LOGPROBS, WHOLE_VOCABULARY, EngineLost, Generate, Output, Prefill, looked_ahead
from ragkv.engine.wire import (
    ABORTED,
    PREFILL_PROMPT,
    check_prefilled,
    followed_schema,
    plan_to_wire,
    prefill_to_wire,
    report_of,
    sampling_to_wire,
)
from ragkv.errors import Rejected, Unavailable
from ragkv.files_io import make_folder
from ragkv.kv.layout import Layout
from ragkv.settings import Settings
from ragkv.span import Span
from ragkv.stitch.plan import PlacedChunk, StitchPlan

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from vllm import RequestOutput, SamplingParams
    from vllm.v1.engine.async_llm import AsyncLLM

log = logging.getLogger(__name__)

_WARM_UP_TOKENS = 1024
_LOOK_EVERY_S = 0.2
_CORE = "EngineCore"  # vLLM's name for its processes
_FAILED = "error"  # vLLM's reason for a request that it gave up, for instance with a schema that does not compile
_STOPPED = "the engine stopped while answering: ask again"
_UNANSWERED = "the engine could not answer this question: ask again"
_UNFOLLOWED = "the engine could not follow the schema: simplify it"


class LocalEngine:
    """Engine over AsyncLLM, started once. `start` takes some 40 seconds on a CPU; vLLM is imported then and not before.

    overrides: more of vLLM's EngineArgs, over those that the settings give. connector_module: where vLLM imports the
    StitchConnector from.
    """

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        layout: Layout,
        overrides: Mapping[str, Any] | None = None,
        connector_module: str = CONNECTOR_MODULE,
    ) -> None:
        self._connector_module = connector_module
        self._overrides = dict(overrides or {})
        self._settings = settings
        self._folder = folder
        self._layout = layout
        self._llm: AsyncLLM | None = None
        self._loading = False
        self._stopped = threading.Event()
        self._others: frozenset[BaseProcess] = frozenset()
        self._family = Family()

    async def start(self) -> None:
        """Load the model. Raises Unavailable with vLLM's reason if it cannot."""
        make_folder(self._settings.kv_dir)
        try:
            # In a thread: the event loop goes on answering while vLLM is imported and the model loads.
            await asyncio.to_thread(self._load)
            # A prompt each way: kernels are chosen and memory is touched before the first question, not by it.
            ids = (0,) * min(_WARM_UP_TOKENS, self._settings.max_model_len - 2)
            in_place = StitchPlan((PlacedChunk(None, Span(0, len(ids))),))
            async with asyncio.timeout(self._settings.engine_silence_s):
                for plan in (None, in_place):
                    async for _ in self.generate(Generate(ids, f"warm-up {plan}", plan, max_tokens=2, ignore_eos=True)):
                        pass
        except (RuntimeError, ValueError, OSError, EOFError) as error:  # EOFError: the fork server died
            raise Unavailable(f"vLLM did not start: {str(error) or 'it stopped responding'}") from error

    def _load(self) -> None:
        # As on a CPU: a fork of the service would have its sockets, and locks that its other threads held.
        os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
        for name, value in processor_variables(self._settings).items():
            os.environ.setdefault(name, value)
        # vLLM takes seconds to import and configures logging of its own: only the process that runs it pays.
        from vllm.config import KVTransferConfig  # noqa: PLC0415 - see above
        from vllm.engine.arg_utils import AsyncEngineArgs  # noqa: PLC0415 - see above
        from vllm.platforms import current_platform  # noqa: PLC0415 - see above
        from vllm.v1.engine import utils  # noqa: PLC0415 - see above
        from vllm.v1.engine.async_llm import AsyncLLM  # noqa: PLC0415 - see above

        extend_vllm()  # also where ragkv runs from a folder, and vLLM finds no entry point
        if current_platform.is_cpu():
            utils.get_mp_context = core_context
        arguments = AsyncEngineArgs(
            **engine_arguments(self._settings, self._folder, self._layout) | self._overrides,
            kv_transfer_config=KVTransferConfig(
                **transfer_config(self._settings, self._folder, self._layout, self._connector_module)
            ),
            # What vLLM counts, for /metrics; it registers it with the Prometheus client of this process.
            disable_log_stats=False,
        )
        self._others = frozenset(multiprocessing.active_children())
        self._loading = True
        try:
            if self._stopped.is_set():
                raise RuntimeError("it was stopped before it began")
            llm = AsyncLLM.from_engine_args(arguments)
            if self._stopped.is_set():
                _shut_down(llm)
                raise RuntimeError("it was stopped while it started")
            self._llm = llm
        finally:
            self._family = Family.of(self._new_processes())
            self._loading = False

    def _new_processes(self) -> "list[BaseProcess]":
        """vLLM's processes that came since the loading began."""
        children = multiprocessing.active_children()
        return [child for child in children if child not in self._others and child.name.startswith(_CORE)]

    async def stop(self) -> None:
        """Stop vLLM, also while it loads: its processes are ended, and the loading thread gives up."""
        await self._end_loading()
        llm, self._llm = self._llm, None
        if llm is not None:
            from vllm.v1.engine.exceptions import EngineDeadError  # noqa: PLC0415 - see _load

            # Raise in everything that waits for an output: vLLM does so for a core that dies, not for one that is
            # shut down.
            llm.output_processor.propagate_error(EngineDeadError())
            _shut_down(llm)

    async def kill(self) -> None:
        """Kill vLLM's processes, whatever state they are in, and free what they left.
        They are gone when this returns."""
        await self._end_loading()
        await asyncio.to_thread(self._family.kill)
        await self.stop()

    async def _end_loading(self) -> None:
        """Kill a starting engine: until ready, vLLM's core ignores other signals."""
        self._stopped.set()
        while self._loading:  # a process may come only after the first look
            end_server()
            await asyncio.to_thread(Family.of(self._new_processes()).kill)
            await asyncio.sleep(_LOOK_EVERY_S)

    async def ready(self) -> bool:
        return self._llm is not None and not self._llm.errored

    async def status(self) -> str:
        return "ok" if await self.ready() else "not started yet, or it stopped: see the service's log"

    async def probe(self) -> None:
        """Return when the core has answered: it does so between two steps."""
        assert self._llm is not None, "start() comes first"
        await self._llm.is_sleeping()

    def _started(self) -> "AsyncLLM":
        if self._llm is None:
            raise Unavailable("the engine has not started yet: try again in a minute")
        return self._llm

    async def generate(self, request: Generate) -> AsyncGenerator[Output, None]:
        """See Engine.generate."""
        llm = self._started()
        from vllm.exceptions import VLLMValidationError  # noqa: PLC0415 - see _load

        request.check_fits(self._settings.max_model_len)
        prompt = {"prompt_token_ids": list(request.token_ids), "cache_salt": request.salt}
        outputs = llm.generate(prompt, _sampling(request), request_id=uuid.uuid4().hex)
        with _failures_of(llm):
            async with aclosing(outputs):  # closing ours closes vLLM's, which stops the request at once
                try:  # vLLM refuses before it takes a request: a schema that cannot be followed, say
                    output = await anext(outputs, None)
                except (VLLMValidationError, ValueError) as error:  # ValueError: vLLM 0.25
                    raise Rejected(f"the engine refused the request: {error}") from error
                while output is not None:
                    reason = output.outputs[0].finish_reason
                    if reason == ABORTED:
                        raise EngineLost(_STOPPED)
                    if reason == _FAILED:
                        raise Rejected(_UNFOLLOWED) if request.sampling.schema else Unavailable(_UNANSWERED)
                    yield _output(output)
                    output = await anext(outputs, None)

    async def prefill(self, prefill: Prefill) -> None:
        """See Engine.prefill."""
        llm = self._started()
        from vllm import SamplingParams  # noqa: PLC0415 - see _load

        prefill = await looked_ahead(self, prefill)
        name = uuid.uuid4().hex
        prompt = {"prompt_token_ids": list(PREFILL_PROMPT), "cache_salt": name}
        extra = {"kv_transfer_params": prefill_to_wire(prefill)}
        outputs = llm.generate(prompt, SamplingParams(max_tokens=1, detokenize=False, extra_args=extra), name)
        with _failures_of(llm):
            async with aclosing(outputs):
                async for output in outputs:
                    params, reason = output.kv_transfer_params, output.outputs[0].finish_reason
        if reason == ABORTED:
            raise EngineLost(_STOPPED)
        check_prefilled(params)


@contextmanager
def _failures_of(llm: "AsyncLLM") -> Iterator[None]:
    """Raise the service's exceptions for those of a vLLM that failed."""
    from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError  # noqa: PLC0415 - see _load

    try:
        yield
    except EngineDeadError as error:
        raise EngineLost(_STOPPED) from error
    except EngineGenerateError as error:
        if llm.errored:
            raise EngineLost(_STOPPED) from error
        raise Unavailable(_UNANSWERED) from error


def _shut_down(llm: "AsyncLLM") -> None:
    llm.shutdown()
    llm.shutdown = lambda: None  # its finaliser calls it once more, which fails while the interpreter exits


def _sampling(request: Generate) -> "SamplingParams":
    from vllm import SamplingParams  # noqa: PLC0415 - see _load
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams  # noqa: PLC0415 - see _load

    params, sampling = plan_to_wire(request), request.sampling
    many = request.logprobs in (MAX_LOGPROBS, WHOLE_VOCABULARY)
    return SamplingParams(
        max_tokens=request.max_tokens,
        **sampling_to_wire(sampling),
        structured_outputs=StructuredOutputsParams(**followed) if (followed := followed_schema(sampling)) else None,
        logprobs=request.logprobs,
        flat_logprobs=many,
        detokenize=not many,
        allowed_token_ids=list(request.allowed_token_ids) or None,
        ignore_eos=request.ignore_eos,
        output_kind=RequestOutputKind.DELTA,
        extra_args={"kv_transfer_params": params} if params else None,
    )


def _output(output: "RequestOutput") -> Output:
    from vllm.logprobs import FlatLogprobs  # noqa: PLC0415 - see _load

    answer, report = output.outputs[0], None
    steps = answer.logprobs
    if isinstance(steps, FlatLogprobs):  # lists end to end: entry objects for a whole vocabulary would take longer
        bounds = zip(steps.start_indices, steps.end_indices, strict=True)
        logprobs = tuple(dict(zip(steps.token_ids[a:b], steps.logprobs[a:b], strict=True)) for a, b in bounds)
    else:
        logprobs = tuple({token: entry.logprob for token, entry in step.items()} for step in steps or ())
    if output.finished:
        report = report_of(output.kv_transfer_params, len(output.prompt_token_ids), output.num_cached_tokens or 0)
    return Output(
        text=answer.text,
        token_ids=tuple(answer.token_ids),
        logprobs=logprobs,
        finish_reason=answer.finish_reason,
        report=report,
    )
