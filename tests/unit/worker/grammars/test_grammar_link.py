"""What a worker says about grammars to a real gRPC scheduler of a few lines."""

import asyncio

import pytest

from pagewire_protos.common.v1.structured_outputs_pb2 import StructuredOutputs
from pagewire_protos.scheduler.v1 import worker_attach_pb2 as wire
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.identity.model_files import ModelFiles
from pagewire_shared.rpc.address import Address
from pagewire_shared.rpc.errors import from_detail
from pagewire_shared.sampling.convert import outputs_to_message
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams as Params
from pagewire_worker.grammars.compiled import CompiledGrammars
from pagewire_worker.grammars.compiler import GrammarCompiler
from pagewire_worker.link.scheduler_link import SchedulerLink
from pagewire_worker.loading.replica import ReplicaInfo
from pagewire_worker.runner.model_thread import ModelThread
from support.fakes.fake_scheduler import FakeScheduler, listening
from support.source_tree import ROOT

MODEL = ROOT / "pagewire" / "builtin_model"
VOCAB = 3072
AB, CD = Params(choice=("ab",)), Params(choice=("cd",))


@pytest.fixture
def compiled():
    return CompiledGrammars()


@pytest.fixture
def compiler(compiled):
    return GrammarCompiler(ModelFiles.of_folder(MODEL), VOCAB, compiled)


class NoModel:
    """A model runner with what an attach needs: no blocks, and no slots."""

    @property
    def blocks(self):
        return self

    def held_names(self):
        return {}

    def drop_slots(self):
        pass


INFO = ReplicaInfo(
    worker_id=b"w" * 16,
    served_model_name="tiny",
    tokenizer_fingerprint=b"t" * 32,
    model_fingerprint=b"m" * 32,
    numerics_fingerprint=b"n" * 32,
    cache_groups=(),
    num_blocks=1,
    max_num_seqs=1,
    max_num_batched_tokens=1,
    shared_step_tokens=1,
    max_model_len=1,
    steps_in_flight=1,
    vocab_size=VOCAB,
)


@pytest.fixture
async def attach(tmp_path):
    """Return a function that runs a link to a scheduler and returns its end of the stream."""
    scheduler, ended = FakeScheduler(), []
    async with listening(scheduler, Address(path=f"{tmp_path}/s")):

        async def start(compiler):
            thread = ModelThread(asyncio.get_running_loop())
            thread.start()
            link = SchedulerLink(
                address=f"unix:{tmp_path}/s",
                info=INFO,
                model_runner=NoModel(),
                thread=thread,
                attached=asyncio.Event(),
                grammars=compiler,
            )
            task = asyncio.create_task(link.run())
            ended.append((task, thread))
            stream, _ = await scheduler.attach()
            return scheduler, stream

        yield start
        for task, thread in ended:
            task.cancel()
            await asyncio.wait((task,))
            await asyncio.to_thread(thread.stop, 5)


def ask(stream, grammar_id, params):
    message = params if isinstance(params, StructuredOutputs) else outputs_to_message(params)
    stream.send(
        compile_grammar=wire.CompileGrammar(grammar_id=grammar_id, structured_outputs=message)
    )


async def test_the_link_answers_every_request_once(attach, compiler, compiled):
    _, stream = await attach(compiler)
    requests = {
        AB.digest: AB,
        b"1" * 16: Params(regex="(a"),
        b"2" * 16: StructuredOutputs(),
        b"3" * 16: StructuredOutputs(json_schema="[]"),
        CD.digest: CD,
    }
    for grammar_id, params in requests.items():
        ask(stream, grammar_id, params)
    answers = {}
    for _ in requests:
        answer = await stream.next("grammar_compiled")
        answers[answer.grammar_id] = from_detail(answer.error) if answer.HasField("error") else None
    assert answers[AB.digest] is None
    assert answers[CD.digest] is None
    for key, text in ((b"1", "unclosed group"), (b"2", "names no kind"), (b"3", "schema")):
        error = answers[key * 16]
        assert isinstance(error, InvalidRequestError)
        assert text in error.message
        assert error.field == "structured_outputs"
    assert len(compiled) == 2


async def test_a_new_attach_begins_without_grammars(attach, compiler, compiled):
    scheduler, stream = await attach(compiler)
    ask(stream, AB.digest, AB)
    await stream.next("grammar_compiled")
    assert len(compiled) == 1
    stream.end()
    stream, _ = await scheduler.attach(generation=8)
    ask(stream, CD.digest, CD)
    await stream.next("grammar_compiled")
    assert compiled.find(AB.digest) is None
    assert compiled.find(CD.digest) is not None


async def test_an_id_of_another_length_ends_the_stream(attach, compiler):
    scheduler, stream = await attach(compiler)
    ask(stream, b"short", AB)
    await scheduler.attach(generation=8)


async def test_without_a_compiler_the_link_refuses(attach):
    _, stream = await attach(None)
    ask(stream, AB.digest, AB)
    answer = await stream.next("grammar_compiled")
    assert "follows no grammars" in answer.error.message
