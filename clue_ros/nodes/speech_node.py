"""The robot's ears: a managed node that turns sound, or typed lines, into `speech`.

Listening and recognizing have their own threads and the recognizer its own process, so that no
callback waits for them.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from builtin_interfaces.msg import Time
from clue_msgs.action import Listen
from clue_msgs.msg import AudioChunk, ClarificationQuestion, GroundingResult, Speaking, Transcript
from rclpy.action import ActionServer, CancelResponse
from rclpy.action.server import ServerGoalHandle
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup, ReentrantCallbackGroup
from rclpy.executors import Executor
from rclpy.qos import DurabilityPolicy, QoSProfile
from rclpy.task import Future
from std_msgs.msg import Bool, Empty, String

from clue_ros.dialogue.sayings import Saying, say
from clue_ros.dialogue.words import asks_yes_or_no, means_stop, means_yes_or_no
from clue_ros.errors import VoiceError
from clue_ros.nodes import messages
from clue_ros.nodes.inference_worker import new_future, until
from clue_ros.nodes.lifecycle import Managed
from clue_ros.nodes.parameter_tables import SPEECH
from clue_ros.nodes.parameters import declare, guard
from clue_ros.voice.audio import mono
from clue_ros.voice.confirmation import Action, Confirmer, Decision, Thresholds
from clue_ros.voice.echo import OwnVoice
from clue_ros.voice.endpointing import Phrase, PhraseLimits
from clue_ros.voice.grammar import Expecting, Hints
from clue_ros.voice.listener import Hearing, Listener, Reports
from clue_ros.voice.recognizer_process import Recognizer
from clue_ros.voice.recognizers import ENGINES, EngineSettings
from clue_ros.voice.sources import Files, Microphone, Source
from clue_ros.voice.sphinx import Heard

# -------------------------------------------------------------------------------------------------
# What the speech node knows: the open question, push to talk, what it has read back.


@dataclass
class Job:
    """A goal of ~/listen: `ended` gets (status, message, transcript or None).

    `seconds`: how long it waits for the person to begin, from `deadline` minus so many on.
    """

    goal: ServerGoalHandle
    ended: Future
    seconds: float
    deadline: float
    expected: tuple[str, ...] = ()
    state: int = field(default=Listen.Feedback.WAITING)


class Listening:
    """Thread-safe; times are seconds of the node's clock."""

    def __init__(self, language: str, thresholds: Thresholds) -> None:
        self.language = language
        self._confirmer = Confirmer(thresholds, language)
        self._lock = threading.RLock()
        self._answers: tuple[str, ...] = ()
        self._asks_which = False  # whether a bare yes or no leaves the question open
        self._question_until = 0.0
        self._confirm_until = 0.0
        self.job: Job | None = None

    # What is known.

    def asked(self, question: ClarificationQuestion, now: float) -> None:
        """The robot asks: its answers are likely until its timeout."""
        labels = [o.label for o in question.candidates if o.label]
        with self._lock:
            self._answers = (*question.suggested_answers, *labels)
            self._asks_which = not asks_yes_or_no(question.suggested_answers)
            self._question_until = now + (messages.seconds(question.answer_timeout) or 30.0)
            self._confirmer.forget()

    def over(self) -> None:
        """The dialogue is over: nothing is asked any more."""
        with self._lock:
            self._question_until = 0.0

    def hints(self, now: float, *, helped: bool) -> Hints:
        """What is likely to be said now."""
        with self._lock:
            if self._confirmer.pending:
                return Hints(Expecting.CONFIRMATION, (), self.language)
            if self.job is not None and self.job.expected:
                return Hints.make(Expecting.ANSWER, self.job.expected, self.language)
            if not helped:
                return Hints(Expecting.ANYTHING, (), self.language)
            if now < self._question_until:
                return Hints.make(Expecting.ANSWER, self._answers, self.language)
            return Hints(Expecting.COMMAND, (), self.language)

    def open(self, now: float) -> bool:
        """Whether push to talk listens now."""
        with self._lock:
            waits = bool(self._confirmer.pending) or now < self._question_until
            return waits or self.job is not None

    def claim(self, job: Job) -> bool:
        """Open a goal of ~/listen; False when another is open."""
        with self._lock:
            if self.job is not None:
                return False
            self.job = job
            return True

    def release(self, only: Job | None = None) -> Job | None:
        """Close the open goal and return it; None when there is none, or another than `only`."""
        with self._lock:
            if only is not None and self.job is not only:
                return None
            job, self.job = self.job, None
            return job

    # What was heard.

    def decide(self, heard: Heard, hints: Hints, thresholds: Thresholds, until: float) -> Decision:
        """Say what to do with a phrase; what is read back waits for its answer until `until`."""
        with self._lock:
            self._confirmer.thresholds = thresholds
            decision = self._confirmer.decide(heard, hints.expecting)
            if decision.action is Action.CONFIRM:
                self._confirm_until = until
            elif decision.action is Action.ACCEPT and not self._asked_once_more(decision.text):
                # The next question sets this again; "stop" means that there is none.
                self._question_until = 0.0
            return decision

    def _asked_once_more(self, text: str) -> bool:
        """Whether perception says the open question again, which is no new `question`."""
        return self._asks_which and means_yes_or_no(text, self.language)

    @property
    def confirming(self) -> bool:
        """Whether something was read back and is not answered yet."""
        with self._lock:
            return bool(self._confirmer.pending)

    def late(self, now: float) -> bool:
        """Whether what was read back was just given up."""
        with self._lock:
            if not self._confirmer.pending or now < self._confirm_until:
                return False
            self._confirmer.forget()
            return True

    def wait_on(self, now: float, seconds: float) -> None:
        """The robot or the person is speaking: what was read back waits on for so many seconds.

        A goal of ~/listen waits on for its own.
        """
        with self._lock:
            self._confirm_until = max(self._confirm_until, now + seconds)
            if self.job is not None:
                self.job.deadline = max(self.job.deadline, now + self.job.seconds)

    def stops(self, text: str) -> bool:
        """Whether a text ends it all."""
        return means_stop(text, self.language)


# -------------------------------------------------------------------------------------------------
# What was heard, as a message.


def time_msg(seconds: float) -> Time:
    """Return seconds (>= 0) as a Time."""
    whole = math.floor(seconds)
    return Time(sec=int(whole), nanosec=min(int((seconds - whole) * 1e9), 999_999_999))


def transcript_msg(
    settings: EngineSettings, heard: Heard, status: int, start: float, text: str | None = None
) -> Transcript:
    """Return a transcript of a phrase that began at `start`; `text` replaces what was heard."""
    message = Transcript(
        text=heard.text if text is None else text,
        confidence=heard.confidence,
        language=settings.language,
        is_final=status != Transcript.PARTIAL,
        status=status,
        unaided_text=heard.unaided,
        engine=settings.engine,
    )
    message.header.stamp = time_msg(start)
    message.header.frame_id = "microphone"
    return message


def keyboard(text: str, language: str, now: float) -> Transcript:
    """Return a typed line as a transcript."""
    message = Transcript(
        text=text,
        confidence=1.0,
        language=language,
        is_final=True,
        status=Transcript.ACCEPTED,
        engine="keyboard",
    )
    message.header.stamp = time_msg(now)
    return message


# -------------------------------------------------------------------------------------------------
# The person's words, typed: each line of stdin.


class TypedLines:
    """Reads lines in a thread of its own.

    `say(line)` gets each one that is not empty, `over(why)` is called when there are no more.
    """

    def __init__(
        self,
        lines: TextIO | None,
        prompt: str,
        say: Callable[[str], object],
        over: Callable[[str], object],
    ) -> None:
        self._lines, self._prompt, self._say, self._over = lines, prompt, say, over
        self._terminal = lines is not None and not lines.closed and lines.isatty()
        threading.Thread(target=self._read, name="typed lines", daemon=True).start()

    def _read(self) -> None:
        if self._lines is None or self._lines.closed:
            self._over("stdin is closed")
            return
        try:
            while True:
                if self._terminal:
                    print(self._prompt, end="", flush=True)
                line = self._lines.readline()
                if not line:
                    break
                if line.strip():
                    self._say(line.rstrip("\r\n"))
        except (OSError, ValueError, UnicodeError) as error:
            self._over(f"stdin cannot be read ({error})")
            return
        self._over("stdin has ended")


LISTENER_TIMEOUT = 5.0  # seconds to wait for somebody to subscribe before the first words are sent
FILE_PAUSE = 1.0  # seconds of silence before each file
CLOCKS_APART = 1.0  # seconds; beyond, the stamps of chunks are of another clock, or missing
LATEST = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
_CANCELED = (Listen.Result.CANCELED, "canceled by the caller")
STATUS = {
    Action.ACCEPT: Transcript.ACCEPTED,
    Action.CONFIRM: Transcript.UNCONFIRMED,
    Action.REJECT: Transcript.NOT_UNDERSTOOD,
    Action.DENIED: Transcript.DENIED,
}


class SpeechNode(Managed):
    """See the module's first lines; topics and parameters are in docs/ros.md.

    Raises (on construction): BadParameterError for an override that the parameter table refuses.
    """

    def __init__(self, executor: Executor, **kwargs: Any) -> None:
        super().__init__("speech", executor, **kwargs)
        declare(self, SPEECH)
        guard(self, SPEECH, state=lambda: self.state)
        self._own_voice = OwnVoice(self.value("mute_tail"))
        self._listening = Listening(self.value("language"), self._thresholds())
        self._recognizer: Recognizer | None = None
        self._hearing: Hearing | None = None
        self._source: Source | None = None
        self._threshold = PhraseLimits().threshold
        self._typed: TypedLines | None = None
        self._canceled: set[bytes] = set()  # goals of ~/listen that are being canceled
        self._delay = math.inf  # seconds that sound needs to come here, by its stamps
        self._offset = 0.0  # seconds added to its stamps
        self._typing = False  # whether typed lines are passed on
        self._speech = self.create_publisher(String, "speech", 10)
        self._transcript = self.create_publisher(Transcript, "transcript", 10)
        self._say = self.create_publisher(String, "say", 10)
        self._stop_speaking = self.create_publisher(Empty, "stop_speaking", 10)
        self._hearing_now = self.create_publisher(Bool, "hearing", 10)
        group = {"callback_group": ReentrantCallbackGroup()}
        self.create_subscription(
            ClarificationQuestion,
            "question",
            lambda m: self._listening.asked(m, self._now()),
            10,
            **group,
        )
        self.create_subscription(
            GroundingResult, "grounding", lambda _: self._listening.over(), 10, **group
        )
        self.create_subscription(Speaking, "speaking", self._on_speaking, LATEST, **group)
        self.create_subscription(
            AudioChunk,
            "audio",
            self._on_audio,
            500,  # seconds of sound, for a machine that is busy
            callback_group=MutuallyExclusiveCallbackGroup(),
        )
        self._action = ActionServer(
            self, Listen, "~/listen", self._on_goal, cancel_callback=self._on_cancel, **group
        )
        if self.value("autostart"):
            self.autostart()

    def _now(self) -> float:
        return float(self.get_clock().now().nanoseconds) * 1e-9

    def _thresholds(self) -> Thresholds:
        return Thresholds(self.value("accept_confidence"), self.value("confirm_confidence"))

    # Lifecycle.

    def open(self) -> None:
        """Check the source and the engine, and load it."""
        self._own_voice = OwnVoice(self.value("mute_tail"))
        self._listening = Listening(self.value("language"), self._thresholds())
        if self.value("source") == "stdin":
            return
        engine = self.value("engine")
        settings = EngineSettings(engine, self.value("language"), self.value("model_path"))
        self._recognizer = Recognizer(settings)
        self._source = self._find_source()
        if ENGINES[engine].online:
            self.get_logger().warning(
                f"engine {engine} sends what it hears to {ENGINES[engine].online}"
            )
        self._recognizer.open()
        name = self._source.name if self._source else self.resolve_topic_name("audio")
        self.get_logger().info(f"{engine} ({settings.language}) listens to {name}")

    def begin(self) -> None:
        """Listen."""
        if self.value("source") == "stdin":
            self._typing = True
            if self._typed is None:
                prompt = self.value("prompt")
                self._typed = TypedLines(sys.stdin, prompt, self._on_typed, self._nothing_to_read)
            return
        limits = PhraseLimits(
            end_silence=self.value("end_silence"),
            max_phrase=self.value("max_phrase"),
            vad_mode=self.value("vad_mode"),
            threshold=self._threshold,
        )
        listener = Listener(
            limits,
            self._own_voice,
            overhear=lambda: self.value("barge_in") != "off",
            open_=lambda: self.value("mode") == "continuous" or self._listening.open(self._now()),
        )
        assert self._recognizer is not None
        self._hearing = Hearing(
            listener,
            self._recognizer.hear,
            lambda: self._listening.hints(self._now(), helped=self.value("hints")),
            Reports(
                begun=self._on_begun,
                dropped=lambda: self._tell_hearing(False),
                ended=self._on_ended,
                heard=self._on_heard,
                partial=self._on_partial,
                problem=self._on_problem,
                tick=self._on_tick,
            ),
            lambda: self.value("partial_period"),
        )
        self._delay = math.inf
        if self._source is not None:
            self._source.start(self._hearing.put, self._now)

    def end(self) -> None:
        """Listen no more; ~/listen ends as CANCELED."""
        self._typing = False
        if self._source is not None:
            self._source.stop()
        if self._hearing is not None:
            self._hearing.close()
            self._hearing = None
        self._end_job(Listen.Result.CANCELED, f"speech became {self.state}")
        self._listening.over()

    def free(self) -> None:
        """End the recognizer."""
        if self._recognizer is not None:
            self._recognizer.close()
            self._recognizer = None
        self._source = None

    def _find_source(self) -> Source | None:
        """Return the microphone or the files; None for the topic, whose subscription is there."""
        name = self.value("source")
        self._threshold = PhraseLimits().threshold
        if name == "topic":
            return None
        if name != "microphone":
            return Files(Path(name).expanduser(), FILE_PAUSE, self._is_quiet)
        microphone = Microphone(self.value("device"))
        seconds = self.value("ambient_seconds")
        if seconds > 0:
            self._threshold = microphone.ambient(seconds, self.value("ambient_margin"))
            self.get_logger().info(f"sound above {self._threshold:.0f} dB may be speech")
        return microphone

    def _is_quiet(self) -> bool:
        now, hearing = self._now(), self._hearing
        heard = self._speech.get_subscription_count() > 0
        open_ = self.value("mode") == "continuous" or self._listening.open(now)
        busy = hearing is not None and hearing.busy
        return heard and open_ and not busy and not self._own_voice.muted(now, now)

    # What others tell.

    def _on_speaking(self, message: Speaking) -> None:
        at = messages.seconds(message.header.stamp)
        if message.is_speaking:
            self._own_voice.began(at, messages.seconds(message.remaining), message.text)
        else:
            self._own_voice.ended(at)

    def _on_audio(self, message: AudioChunk) -> None:
        hearing = self._hearing
        if hearing is None or self._source is not None:
            return
        try:
            samples = np.array(message.data, np.int16)
            audio = mono(samples, int(message.sample_rate), int(message.channels))
        except VoiceError as error:
            self.get_logger().warning(str(error), throttle_duration_sec=10.0)
            return
        start, arrived = messages.seconds(message.header.stamp), self._now() - audio.seconds
        # The least of all delays: a chunk that came late in a busy moment is of the same clock.
        self._delay = min(self._delay, arrived - start)
        if not hearing.busy:  # within a phrase time may not jump
            self._offset = 0.0 if abs(self._delay) < CLOCKS_APART else self._delay
        hearing.put(audio, start + self._offset)

    # What was heard, from the threads of `Hearing`.

    def _tell_hearing(self, now: bool) -> None:
        self._hearing_now.publish(Bool(data=now))

    def _on_begun(self, start: float) -> None:
        self._tell_hearing(True)
        self._job_state(Listen.Feedback.HEARING)
        if self.value("barge_in") == "voice" and self._own_voice.muted(start, self._now()):
            self._stop_speaking.publish(Empty())

    def _on_ended(self) -> None:
        self._tell_hearing(False)
        self._job_state(Listen.Feedback.RECOGNIZING)

    def _on_problem(self, reason: str) -> None:
        self.get_logger().error(reason)
        self._end_job(Listen.Result.FAILED, reason)

    def _on_partial(self, start: float, heard: Heard) -> None:
        settings = self._settings()
        self._transcript.publish(transcript_msg(settings, heard, Transcript.PARTIAL, start))

    def _settings(self) -> EngineSettings:
        assert self._recognizer is not None
        return self._recognizer.settings

    def _on_heard(self, phrase: Phrase, heard: Heard, hints: Hints) -> None:
        """Act on a phrase, ask back, or say that it was not understood."""
        interrupts = self._own_voice.muted(phrase.start, phrase.speech_end)
        if interrupts and self._is_echo(phrase, heard):
            self.get_logger().debug(f"heard itself: {heard.text!r}")
            return
        now = self._now()
        decision = self._listening.decide(
            heard, hints, self._thresholds(), now + self.value("listen_timeout")
        )
        status = STATUS[decision.action]
        if decision.action is Action.REJECT and self._listening.confirming:
            status = Transcript.UNCONFIRMED  # "did you say ...?" still waits for its answer
        text = decision.text if decision.action is Action.ACCEPT else heard.text
        message = transcript_msg(self._settings(), heard, status, phrase.start, text=text)
        message.duration = messages.duration(max(0.0, phrase.speech_end - phrase.start))
        message.latency = messages.duration(max(0.0, now - phrase.speech_end))
        if interrupts and decision.action is Action.ACCEPT:
            self._stop_speaking.publish(Empty())
        self._transcript.publish(message)
        if decision.action is Action.ACCEPT:
            self._accept(decision.text)
            self._end_job(Listen.Result.HEARD, "", message)
        elif decision.say:
            self._say.publish(String(data=decision.say))
        elif status == Transcript.NOT_UNDERSTOOD:
            reason = "something was said, but not what could be understood"
            self._end_job(Listen.Result.NOT_UNDERSTOOD, reason, message)

    def _is_echo(self, phrase: Phrase, heard: Heard) -> bool:
        """Whether a phrase from while the robot spoke is its own voice, or too unsure to tell."""
        times = (phrase.start, phrase.speech_end)
        own = any(self._own_voice.is_echo(t, *times) for t in (heard.text, heard.unaided))
        return own or heard.confidence < self.value("accept_confidence")

    def _accept(self, text: str) -> None:
        self.get_logger().info(f"heard: {text}")
        if self._listening.stops(text):
            self._stop_speaking.publish(Empty())
        self._speech.publish(String(data=text))

    def _on_tick(self) -> None:
        now, hearing = self._now(), self._hearing
        if self._own_voice.muted(now, now) or (hearing is not None and hearing.busy):
            self._listening.wait_on(now, self.value("listen_timeout"))
        if self._listening.late(now):
            self._say.publish(String(data=say(Saying.NOTHING_HEARD, self._listening.language)))
        job = self._listening.job
        if job is not None and now > job.deadline:
            self._end_job(Listen.Result.NOTHING_HEARD, "nobody spoke in time")

    # Typed lines.

    def _on_typed(self, text: str) -> None:
        # A line piped in at start would be lost while DDS still looks for the other side.
        deadline = time.monotonic() + LISTENER_TIMEOUT
        while self._speech.get_subscription_count() == 0 and time.monotonic() < deadline:
            time.sleep(0.02)
        if self._speech.get_subscription_count() == 0:
            self.get_logger().warning(f"nobody listens on {self._speech.topic_name}")
        if not self._typing:
            self.get_logger().warning(f"speech is {self.state}: {text!r} is not passed on")
            return
        self._speech.publish(String(data=text))
        self._transcript.publish(keyboard(text, self.value("language"), self._now()))
        if self._listening.stops(text):
            self._stop_speaking.publish(Empty())

    def _nothing_to_read(self, why: str) -> None:
        self.get_logger().info(
            f"{why}: nothing more can be typed here. To say something: "
            f"ros2 topic pub --once {self._speech.topic_name} std_msgs/msg/String "
            "\"{data: '...'}\""
        )

    # Push to talk.

    async def _on_goal(self, goal: ServerGoalHandle) -> Listen.Result:
        """Listen for one phrase."""
        key = bytes(goal.goal_id.uuid)
        try:
            outcome = await self._one_phrase(goal)
            if key in self._canceled:  # rclpy marks the goal only after the callback has returned
                await until(lambda: goal.is_cancel_requested, self.spinner)
        finally:
            self._canceled.discard(key)
        return self._finish(goal, outcome)

    async def _one_phrase(self, goal: ServerGoalHandle) -> tuple[Any, ...]:
        """How a goal ends: its result's status, why, and a transcript or None."""
        if self.state != "active" or self._hearing is None:
            why = (
                "source stdin hears nothing"
                if self.state == "active"
                else f"speech is {self.state}"
            )
            return (Listen.Result.FAILED, why, None)
        seconds = messages.seconds(goal.request.timeout) or self.value("listen_timeout")
        ended = new_future(self.spinner)
        job = Job(goal, ended, seconds, self._now() + seconds, tuple(goal.request.expected))
        if not self._listening.claim(job):
            return (Listen.Result.FAILED, "another ~/listen is open", None)
        self._job_state(Listen.Feedback.WAITING)
        if bytes(goal.goal_id.uuid) in self._canceled:  # before its job was there to be ended
            self._end_job(*_CANCELED, only=job)
        outcome: tuple[Any, ...] = await ended
        return outcome

    def _finish(self, goal: ServerGoalHandle, outcome: tuple[Any, ...]) -> Listen.Result:
        status, why, message = outcome
        result = Listen.Result(status=status, error_msg=why)
        if message is not None:
            result.transcript = message
        if status == Listen.Result.HEARD:
            goal.succeed()
        elif goal.is_cancel_requested:
            goal.canceled()
        else:
            goal.abort()
        return result

    def _on_cancel(self, goal: ServerGoalHandle) -> CancelResponse:
        key = bytes(goal.goal_id.uuid)
        self._canceled.add(key)
        job = self._listening.job
        if job is not None and bytes(job.goal.goal_id.uuid) == key:
            self._end_job(*_CANCELED, only=job)
        return CancelResponse.ACCEPT

    def _job_state(self, state: int) -> None:
        job = self._listening.job
        if job is not None and job.goal.is_active:
            job.goal.publish_feedback(Listen.Feedback(state=state))

    def _end_job(
        self,
        status: int,
        why: str,
        message: Transcript | None = None,
        only: Job | None = None,
    ) -> None:
        job = self._listening.release(only)
        if job is not None:
            job.ended.set_result((status, why, message))
