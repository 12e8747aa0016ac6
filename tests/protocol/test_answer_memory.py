"""Memory of answers is used again when nobody has a view of it."""

from __future__ import annotations

from klog.protocol.answer_memory import AnswerMemory


def test_a_buffer_is_taken_again_when_the_last_view_of_it_is_gone() -> None:
    memory, buffer = AnswerMemory(), bytearray(b"answer")
    view = memoryview(buffer)[2:4]
    memory.keep(buffer)
    other = memory.take()
    assert other is not buffer
    assert not other
    view.release()
    assert memory.take() is buffer
    assert buffer == b"answer"


def test_a_buffer_that_was_taken_is_not_given_to_another_one() -> None:
    memory, buffer = AnswerMemory(), bytearray(1)
    memory.keep(buffer)
    assert memory.take() is buffer
    assert memory.take() is not buffer


def test_a_very_large_buffer_is_let_go() -> None:
    memory = AnswerMemory()
    memory.keep(bytearray((16 << 20) + 1))
    assert memory.take() == b""


def test_few_buffers_are_kept() -> None:
    memory, buffers = AnswerMemory(), [bytearray([number]) for number in range(5)]
    for buffer in buffers:
        memory.keep(buffer)
    assert [memory.take() for _ in range(4)] == [*buffers[2:], b""]
