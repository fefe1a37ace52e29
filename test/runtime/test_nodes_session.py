"""What ends a dialogue in the middle of things, with a model that this test holds in its hand."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import ros_helpers
from ros_helpers import TIMEOUT, isolate, picture, wait_until

ros_helpers.need_ros()
isolate()

import rclpy  # noqa: E402
from rclpy.executors import MultiThreadedExecutor  # noqa: E402
from sensor_msgs.msg import Image  # noqa: E402

from clue_ros.dialogue.conversation import Outcome, Think  # noqa: E402
from clue_ros.dialogue.types import AmbiguityEstimate, Box, Dialogue, Grounding, NotFound, Question  # noqa: E402
from clue_ros.errors import BadImageError  # noqa: E402
from clue_ros.nodes.camera import Camera, Frame, image_topic  # noqa: E402
from clue_ros.nodes.dialogue_session import (  # noqa: E402
    DialogueSlot,
    Limits,
    Listener,
    Session,
)
from clue_ros.nodes.executables import leave_a_core_free  # noqa: E402
from clue_ros.nodes.image_conversion import fill_image  # noqa: E402
from clue_ros.nodes.inference_worker import Worker, new_future  # noqa: E402

ESTIMATE = AmbiguityEstimate(0.9, 0.5, np.zeros((4, 4), np.float32), (), 0.0)
QUESTION = Question("which one?", (), (), ESTIMATE)
GROUNDING = Grounding(Box(1, 2, 3, 4), "block", 0.8, ESTIMATE)


class FakeView:
    """Knows its image and its size."""

    width, height = 160, 120

    def __init__(self, image: Any) -> None:
        self.image = image


class FakeClue:
    """Gives the replies it was made with, one after another; an exception among them is raised."""

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.at_work = threading.Event()

    def look(self, image: Any) -> FakeView:
        """Look at anything."""
        return FakeView(image)

    def reply(self, _view: Any, _dialogue: Dialogue, *, force_grounding: bool) -> Any:
        """Give the next reply, once the test lets it."""
        self.at_work.set()
        assert self.may_go_on.wait(TIMEOUT)
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return GROUNDING if force_grounding else reply


@pytest.fixture(scope="module")
def executor() -> Iterator[MultiThreadedExecutor]:
    context = rclpy.Context()
    rclpy.init(context=context)
    executor = MultiThreadedExecutor(2, context=context)
    thread = threading.Thread(target=executor.spin, daemon=True)
    thread.start()
    yield executor
    executor.shutdown(timeout_sec=2.0)
    context.try_shutdown()
    thread.join(TIMEOUT)


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.stop()


Start = Callable[..., Session]


@pytest.fixture
def start(executor: MultiThreadedExecutor, worker: Worker) -> Start:
    def start(clue: FakeClue, image: Image | None = None, timeout: float = TIMEOUT) -> Session:
        message = image if image is not None else fill_image(Image(), picture(), "rgb8")
        frame = Frame(message, 0.0)
        return Session("id", "pick the mug", frame, Limits(3, timeout), clue, worker, executor)

    return start


def run(executor: MultiThreadedExecutor, coroutine: Any) -> Any:
    task = executor.create_task(coroutine)
    wait_until(task.done, "the dialogue's end")
    return task.result()


def test_a_model_that_fails_is_model_error_and_the_worker_goes_on(
    executor: MultiThreadedExecutor, start: Start
) -> None:
    clue = FakeClue(RuntimeError("out of memory"), GROUNDING)
    outcome = run(executor, start(clue).run())
    assert (outcome.code, outcome.message) == ("MODEL_ERROR", "RuntimeError: out of memory")
    assert run(executor, start(clue).run()) == Outcome("NONE", grounding=GROUNDING)


def test_a_broken_image_is_found_in_the_worker(
    executor: MultiThreadedExecutor, start: Start
) -> None:
    broken = fill_image(Image(), picture(), "rgb8")
    broken.data = broken.data[:10]
    assert run(executor, start(FakeClue(GROUNDING), image=broken).run()).code == "BAD_IMAGE"
    torn = FakeClue(BadImageError("torn"))
    assert run(executor, start(torn).run()) == Outcome("BAD_IMAGE", "torn")


def test_an_error_in_what_listens_ends_the_dialogue_only(
    executor: MultiThreadedExecutor, start: Start
) -> None:
    class Failing(Listener):
        def replied(self, session: Session, reply: Question | Grounding) -> None:
            raise OSError("no publisher")

    session = start(FakeClue(GROUNDING))
    session.listeners = [Failing()]
    assert run(executor, session.run()).code == "MODEL_ERROR"


def test_a_stop_does_not_wait_for_the_model(executor: MultiThreadedExecutor, start: Start) -> None:
    clue = FakeClue(QUESTION, GROUNDING)
    clue.may_go_on.clear()
    session = start(clue)
    task = executor.create_task(session.run())
    assert clue.at_work.wait(TIMEOUT)
    session.stop(Outcome("CANCELED", "by the caller"))
    wait_until(task.done, "the end, with the model still at work")
    assert task.result() == Outcome("CANCELED", "by the caller")
    after = executor.create_task(start(clue).run())
    clue.may_go_on.set()
    wait_until(after.done, "the next dialogue")
    assert after.result() == Outcome("NONE", grounding=GROUNDING)


def test_a_stop_before_the_start_counts(executor: MultiThreadedExecutor, start: Start) -> None:
    session = start(FakeClue(GROUNDING))
    session.stop(Outcome("INACTIVE", "deactivated"))
    session.stop(Outcome("CANCELED", "later"))
    assert run(executor, session.run()) == Outcome("INACTIVE", "deactivated")


def test_only_the_first_answer_counts_and_only_while_waiting(
    executor: MultiThreadedExecutor, start: Start
) -> None:
    clue = FakeClue(QUESTION, GROUNDING)
    session = start(clue)
    assert session.answer("the left one") is None  # too early
    task = executor.create_task(session.run())
    wait_until(lambda: session.waiting, "the question")
    clue.may_go_on.clear()
    assert session.answer("the left one") == Think()
    assert session.answer("the right one") is None
    clue.may_go_on.set()
    wait_until(task.done, "the end")
    texts = [turn.text for turn, _ in session.conversation.spoken]
    assert texts == ["pick the mug", "which one?", "the left one"]
    assert session.answer("too late") is None


def test_nobody_names_another_thing_after_one_that_is_not_there(
    executor: MultiThreadedExecutor, start: Start
) -> None:
    missing = NotFound("I don't see a banana.", (), (), ESTIMATE, "a banana")
    assert run(executor, start(FakeClue(missing)).one_shot(force=False)) == missing
    outcome = run(executor, start(FakeClue(missing), timeout=0.3).run())
    assert outcome == Outcome("NOT_FOUND", "I don't see a banana.")


def test_where_the_picture_changes_at_each_look_nothing_is_pointed_at(
    executor: MultiThreadedExecutor, worker: Worker
) -> None:
    def frame(seed: int) -> Frame:
        message = fill_image(Image(), picture(seed=seed), "rgb8")
        return Frame(message, time.monotonic() - 9.0)

    seeds = iter(range(1, 100))
    clue = FakeClue(*4 * [Grounding(Box(10, 10, 110, 110), "noise", 0.8, ESTIMATE)])
    limits = Limits(3, TIMEOUT, max_age_at_result=0.5)
    newest = lambda: frame(next(seeds))  # noqa: E731
    session = Session("id", "pick the mug", frame(0), limits, clue, worker, executor, newest=newest)
    outcome = run(executor, session.run())
    assert (outcome.code, outcome.grounding) == ("STALE_IMAGE", None)
    assert "changed 3 times" in outcome.message
    assert clue.replies == []


def test_one_shot_returns_the_question_or_is_forced_to_point(
    executor: MultiThreadedExecutor, start: Start
) -> None:
    assert run(executor, start(FakeClue(QUESTION)).one_shot(force=False)) == QUESTION
    forced = run(executor, start(FakeClue(QUESTION)).one_shot(force=True))
    assert forced == Outcome("NONE", grounding=GROUNDING)


class DeafExecutor:
    """An executor that is woken and does not look."""

    woken = 0

    def create_task(self, callback: Callable[..., None], *args: Any) -> None:
        """Run a callback of the future."""
        callback(*args)

    def wake(self) -> None:
        """Count."""
        self.woken += 1


def test_an_executor_is_woken_until_the_value_was_taken() -> None:
    executor: Any = DeafExecutor()
    future = new_future(executor)

    async def wait() -> Any:
        return await future

    waiting = wait()
    waiting.send(None)
    future.set_result("value")
    wait_until(lambda: executor.woken > 2, "to be woken again")
    with pytest.raises(StopIteration, match="value"):
        waiting.send(None)
    assert future.taken


def test_a_job_for_later_is_done_once_however_often_it_is_asked_for(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Timer(threading.Timer):
        """Waits until the test calls `function`."""

        def start(self) -> None:
            timers.append(self)

    timers: list[Timer] = []
    done: list[int] = []
    monkeypatch.setattr(threading, "Timer", Timer)
    for count in (1, 2):
        for _ in range(5):
            worker.later(0.3, lambda: done.append(1))
        worker.call(lambda: None)
        assert (len(timers), len(done)) == (count, count - 1), "it waits, and other jobs do not"
        assert (timers[-1].interval, timers[-1].daemon) == (0.3, True)
        timers[-1].function()
        worker.call(lambda: None)
        assert len(done) == count


def test_a_job_for_later_that_fails_leaves_the_worker_at_work(worker: Worker) -> None:
    ran = threading.Event()

    def fail() -> None:
        ran.set()
        raise ValueError

    worker.later(0.0, fail)
    assert ran.wait(10)
    assert worker.call(lambda: 1) == 1
    worker.later(0.0, ran.clear)
    wait_until(lambda: not ran.is_set(), "the next one")


def test_a_call_of_the_worker_returns_or_raises_and_needs_a_worker(worker: Worker) -> None:
    assert worker.call(lambda: threading.current_thread().name) == "inference"
    with pytest.raises(ZeroDivisionError):
        worker.call(lambda: 1 // 0)
    assert worker.call(lambda: 1) == 1
    worker.stop()
    with pytest.raises(RuntimeError, match="stopped"):
        worker.call(lambda: 2)


def test_perception_leaves_a_core_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, threads in ((range(4), "3"), (range(1), "1")):
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _pid, cores=cores: set(cores))
        leave_a_core_free()
        assert os.environ["OMP_NUM_THREADS"] == threads
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    leave_a_core_free()
    assert os.environ["OMP_NUM_THREADS"] == "7"


# The slot and the camera.


def test_the_slot_takes_one_while_active(start: Start) -> None:
    frame = Frame(fill_image(Image(), picture(), "rgb8"), 0.0)
    session = start(FakeClue(GROUNDING))
    found: list[Any] = [frame]
    slot = DialogueSlot(lambda: found[0], lambda *_: session)
    limits = Limits(3, 1.0)

    def code(text: str = "pick the mug") -> str:
        opened = slot.open("id", text, None, limits)
        return opened.code if isinstance(opened, Outcome) else "open"

    assert code() == "INACTIVE"
    for state, advice in (("unconfigured", "configure and activate"), ("configuring", "loads")):
        slot.move(state)
        refused = slot.open("id", "pick the mug", None, limits)
        assert isinstance(refused, Outcome)
        assert state in refused.message
        assert advice in refused.message
    slot.move("active")
    assert code("") == "EMPTY_EXPRESSION"
    found[0] = ("NO_IMAGE", "dark")
    assert code() == "NO_IMAGE"
    found[0] = frame
    assert code() == "open"
    assert code() == "BUSY"
    slot.close(session)
    assert code() == "open"


class FakeClock:
    """A clock to be set."""

    now = 100.0

    def __call__(self) -> float:
        """Return the set time."""
        return self.now


def test_a_silent_camera_is_told_now_and_then(executor: MultiThreadedExecutor) -> None:
    node = rclpy.create_node("lonely", context=executor.context)
    clock = FakeClock()
    camera = Camera(clock)
    camera.open(node, "raw", None)
    assert camera.warning(5.0) is None
    clock.now += 6
    assert "nobody publishes it" in (camera.warning(5.0) or "")
    assert camera.warning(5.0) is None, "not every second"
    clock.now += 60
    assert "nobody publishes it" in (camera.warning(5.0) or ""), "but again after a while"
    assert camera.newest(2.0)[0] == "NO_IMAGE"  # type: ignore[index]
    camera.put(Image())
    assert isinstance(camera.newest(2.0), Frame)
    clock.now += 3
    assert camera.newest(2.0)[0] == "STALE_IMAGE"  # type: ignore[index]
    assert camera.age() == 3
    camera.close()
    assert camera.age() is None
    node.destroy_node()


@pytest.mark.parametrize(
    ("rules", "raw", "compressed"),
    [
        ([], "/image", "/image/compressed"),
        (["image:=/eye/raw"], "/eye/raw", "/eye/raw/compressed"),
        (["image:=/eye/raw", "image/compressed:=/jpeg"], "/eye/raw", "/jpeg"),
        (["__ns:=/arm"], "/arm/image", "/arm/image/compressed"),
    ],
    ids=["plain", "image", "both", "namespace"],
)
def test_compressed_images_follow_the_remapping_of_image(
    executor: MultiThreadedExecutor, rules: list[str], raw: str, compressed: str
) -> None:
    arguments = ["--ros-args", *(word for rule in rules for word in ("-r", rule))]
    node = rclpy.create_node("eye", context=executor.context, cli_args=arguments)
    try:
        assert node.resolve_topic_name(image_topic(node, "raw")) == raw
        assert node.resolve_topic_name(image_topic(node, "compressed")) == compressed
    finally:
        node.destroy_node()
