import threading

import torch
from torch import nn

from entity_encoder.agents.accumulation import ChunkRunner, Gradient
from tests.agents.test_update import NOW, make_batch, make_updater, small_policy, weights


def test_chunks_are_computed_at_once_and_come_in_order() -> None:
    meeting = threading.Barrier(3, timeout=60)

    def work(chunk: int) -> int:
        meeting.wait()  # passes only when three are under way at the same time
        return chunk * 10

    assert list(ChunkRunner(3)(work, range(6))) == [0, 10, 20, 30, 40, 50]
    assert list(ChunkRunner(1)(lambda chunk: chunk + 1, range(3))) == [1, 2, 3]


def test_the_number_of_threads_changes_no_bit() -> None:
    results = []
    for threads in (1, 3):
        policy = small_policy()
        updater = make_updater(policy, chunk_entities=5, epochs=3, minibatch_size=11)
        updater.run_chunks = ChunkRunner(threads)
        updater.update(make_batch(policy, invalid=2), NOW)
        results.append(weights(policy))
    assert torch.equal(*results)


def test_gradients_are_added_where_there_are_any() -> None:
    parameters = [nn.Parameter(torch.zeros(2)) for _ in range(3)]
    gradient = Gradient(parameters)
    one = torch.ones(2)
    gradient.add([one.clone(), None, None])
    gradient.add([2 * one, 3 * one, None])
    gradient.add([None, 4 * one, None])
    gradient.store()
    assert parameters[0].grad is not None
    assert parameters[1].grad is not None
    assert parameters[0].grad.tolist() == [3.0, 3.0]
    assert parameters[1].grad.tolist() == [7.0, 7.0]
    assert parameters[2].grad is None


def test_an_error_in_a_thread_is_raised_here() -> None:
    def work(chunk: int) -> int:
        return 1 // chunk

    runner = ChunkRunner(2)
    try:
        list(runner(work, [1, 0]))
    except ZeroDivisionError:
        return
    raise AssertionError("no error was raised")
