# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The node speech: sound, or typed lines, in; the topic `speech` out.

Listening and recognition have threads of their own and the recognizer a process of its own, so that
no callback waits for them.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from clue_msgs.action import Listen
from clue_msgs.msg import AudioChunk, ClarificationQuestion, Speaking, Transcript
from rclpy.action import CancelResponse
from rclpy.action.server import ServerGoalHandle
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup, ReentrantCallbackGroup
from rclpy.executors import Executor
from rclpy.task import Future
from rclpy.time import Time
from std_msgs.msg import Bool, Empty, String

from clue_ros.dialogue.reading import add_stops, calls_off, leaves_open, read
from clue_ros.dialogue.sayings import Saying, say
from clue_ros.errors import VoiceError
from clue_ros.nodes import messages, topics
from clue_ros.nodes.inference_worker import new_future, until
from clue_ros.nodes.lifecycle import ManagedNode
from clue_ros.nodes.parameters import declare, guard
from clue_ros.nodes.voice_parameters import SPEECH
from clue_ros.voice.audio import Channels
from clue_ros.voice.confirmation import Action, Confirmer, Decision, Thresholds
from clue_ros.voice.echo import OwnVoice
from clue_ros.voice.endpointing import Phrase, PhraseLimits
from clue_ros.voice.grammar import Expecting, Hints, Hypothesis
from clue_ros.voice.listener import Listener, ListenerCallbacks, PhraseStream
from clue_ros.voice.recognizers import RecognizerProcess, RecognizerSettings
from clue_ros.voice.sources import Files, Microphone, Source

SUBSCRIBER_TIMEOUT = 5.0  # seconds that the first typed line waits for a subscriber of `speech`
FILE_PAUSE = 1.0  # seconds of silence before each file
MAX_CLOCK_OFFSET = 1.0  # seconds; stamps of sound that are farther off are of another clock
QUESTION_TIMEOUT = 30.0  # seconds that a question stays open if it does not say
STATUS = {
    Action.ACCEPT: Transcript.ACCEPTED,
    Action.CONFIRM: Transcript.UNCONFIRMED,
    Action.REJECT: Transcript.NOT_UNDERSTOOD,
    Action.DENIED: Transcript.DENIED,
}


@dataclass
class ListenGoal:
    """An open goal of ~/listen (push to talk); times are seconds of the node's clock.

    Attributes:
        handle: the goal.
        ended: completed with (status, message, transcript or None).
        timeout: seconds that it waits for the person to begin.
        deadline: when that ends; later while the robot or the person speaks.
        expected: phrases to expect.
    """

    handle: ServerGoalHandle
    ended: Future
    timeout: float
    deadline: float
    expected: tuple[str, ...] = ()


class ListeningState:
    """The open question, the open goal of ~/listen, and the text that was read back. Thread-safe.

    Times are seconds of the node's clock.
    """

    def __init__(self, language: str, thresholds: Thresholds) -> None:
        self.language = language
        self._confirmer = Confirmer(thresholds, language)
        self._lock = threading.RLock()
        self._offered: tuple[str, ...] = ()  # the answers that the last question offers
        self._labels: tuple[str, ...] = ()  # of its candidates
        self._question_timeout = QUESTION_TIMEOUT
        self._question_until = 0.0
        self._confirm_until = 0.0
        self.goal: ListenGoal | None = None

    def question_asked(self, question: ClarificationQuestion, now: float) -> None:
        """The robot asks: the answers it offers are likely until its timeout."""
        with self._lock:
            self._offered = tuple(question.suggested_answers)
            self._labels = tuple(o.label for o in question.candidates if o.label)
            timeout = messages.seconds(question.answer_timeout) or QUESTION_TIMEOUT
            self._question_timeout = timeout
            self._question_until = now + timeout
            self._confirmer.forget()

    def dialogue_ended(self) -> None:
        """No question is open any more."""
        with self._lock:
            self._question_until = 0.0

    def hints(self, now: float, *, helped: bool) -> Hints:
        """Return the phrases that are likely now; `helped` is the parameter `hints`."""
        with self._lock:
            if self._confirmer.pending:
                return Hints(Expecting.CONFIRMATION, (), self.language)
            if self.goal is not None and self.goal.expected:
                return Hints.make(Expecting.ANSWER, self.goal.expected, self.language)
            if not helped:
                return Hints(Expecting.ANYTHING, (), self.language)
            if now < self._question_until:
                return Hints.make(Expecting.ANSWER, (*self._offered, *self._labels), self.language)
            return Hints(Expecting.COMMAND, (), self.language)

    def waits_for_speech(self, now: float) -> bool:
        """Whether push to talk listens now."""
        with self._lock:
            return self.confirming or now < self._question_until or self.goal is not None

    def open_goal(self, goal: ListenGoal) -> bool:
        """Open a goal of ~/listen; False if another one is open."""
        with self._lock:
            if self.goal is not None:
                return False
            self.goal = goal
            return True

    def close_goal(self, only: ListenGoal | None = None) -> ListenGoal | None:
        """Close and return the open goal; None if none is open, or another than `only`."""
        with self._lock:
            if only is not None and self.goal is not only:
                return None
            goal, self.goal = self.goal, None
            return goal

    def decide(
        self, heard: Hypothesis, thresholds: Thresholds, now: float, timeout: float
    ) -> Decision:
        """Say what to do with a phrase; a text that is read back is forgotten after `timeout`."""
        with self._lock:
            self._confirmer.thresholds = thresholds
            offered = self._offered if now < self._question_until else ()
            decision = self._confirmer.decide(heard, offered)
            if decision.action is Action.CONFIRM:
                self._confirm_until = now + timeout
            elif decision.action is Action.ACCEPT and now < self._question_until:
                # "wait", or a bare yes or no to "which?": perception still waits for an answer.
                kind = read(decision.text, self._offered).kind
                is_open = leaves_open(kind, self._offered)
                self._question_until = now + self._question_timeout if is_open else 0.0
            return decision

    @property
    def confirming(self) -> bool:
        """Whether a text was read back and is not answered yet."""
        with self._lock:
            return bool(self._confirmer.pending)

    def confirmation_timed_out(self, now: float) -> bool:
        """Whether a text that was read back is forgotten now because nobody answered."""
        with self._lock:
            if not self._confirmer.pending or now < self._confirm_until:
                return False
            self._confirmer.forget()
            return True

    def extend(self, now: float, timeout: float) -> None:
        """Restart the timeouts, because the robot or the person is speaking.

        `timeout` is that of a text that was read back; a goal of ~/listen has its own.
        """
        with self._lock:
            self._confirm_until = max(self._confirm_until, now + timeout)
            if self.goal is not None:
                self.goal.deadline = max(self.goal.deadline, now + self.goal.timeout)


def transcript_msg(
    heard: Hypothesis, status: int, start: float, *, engine: str, language: str, source: str
) -> Transcript:
    """Return the transcript of a phrase that began at `start` (seconds); `source` is its frame."""
    message = Transcript(
        text=heard.text,
        confidence=heard.confidence,
        language=language,
        is_final=status != Transcript.PARTIAL,
        status=status,
        unaided_text=heard.unaided,
        engine=engine,
    )
    message.header.stamp = Time(nanoseconds=int(start * 1e9)).to_msg()
    message.header.frame_id = source
    return message


def read_lines(
    lines: TextIO | None,
    prompt: str,
    say: Callable[[str], object],
    over: Callable[[str], object],
) -> None:
    """Pass each line that is not blank to `say`, then the reason for the end to `over`.

    On a terminal `prompt` is shown before each line.
    """
    if lines is None or lines.closed:
        over("stdin is closed")
        return
    try:
        is_terminal = lines.isatty()
        while True:
            if is_terminal:
                print(prompt, end="", flush=True)
            line = lines.readline()
            if not line:
                break
            if line.strip():
                say(line.rstrip("\r\n"))
    except (OSError, ValueError, UnicodeError) as error:
        over(f"stdin cannot be read ({error})")
        return
    over("stdin has ended")


class SpeechNode(ManagedNode):
    """The node speech; docs/voice.md lists its topics, docs/parameters.md its parameters.

    Raises (on construction): BadParameterError for an override that the parameter table refuses.
    """

    def __init__(self, executor: Executor, **kwargs: Any) -> None:
        super().__init__("speech", executor, **kwargs)
        declare(self, SPEECH)
        guard(self, SPEECH, state=lambda: self.state)
        self._own_voice = OwnVoice(self.value("mute_tail"))
        add_stops(self.value("stop_words").split(","))
        self.listening = ListeningState(self.value("language"), self._thresholds())
        self._recognizer: RecognizerProcess | None = None
        self._listener: Listener | None = None
        self._source: Source | None = None
        self._channels = Channels()
        self._threshold = PhraseLimits().threshold
        self._typed: threading.Thread | None = None
        self._typing = False  # whether typed lines are passed on
        self._canceled: set[bytes] = set()  # goals of ~/listen that are being canceled
        self._delay = math.inf  # least seconds from a chunk's stamp to its arrival
        self._offset = 0.0  # seconds added to the stamps of chunks
        self._speech = topics.Speech.SPEECH.publisher(self)
        self._transcript = topics.Speech.TRANSCRIPT.publisher(self)
        self._say = topics.Speech.SAY.publisher(self)
        self._stop_speaking = topics.Speech.STOP_SPEAKING.publisher(self)
        self._hearing = topics.Speech.HEARING.publisher(self)
        group = {"callback_group": ReentrantCallbackGroup()}
        topics.Speech.QUESTION.subscribe(self, self._on_question, **group)
        topics.Speech.GROUNDING.subscribe(self, lambda _: self.listening.dialogue_ended(), **group)
        topics.Speech.SPEAKING.subscribe(self, self._on_speaking, **group)
        topics.Speech.AUDIO.subscribe(
            self, self._on_audio, callback_group=MutuallyExclusiveCallbackGroup()
        )
        self._action = topics.Speech.LISTEN.serve(self, self.on_goal, self.on_cancel, **group)
        if self.value("autostart"):
            self.autostart()

    def _now(self) -> float:
        return float(self.get_clock().now().nanoseconds) * 1e-9

    def _thresholds(self) -> Thresholds:
        return Thresholds(self.value("accept_confidence"), self.value("confirm_confidence"))

    # Lifecycle.

    def open(self) -> None:
        """Check the source and the recognizer, and load it."""
        self._own_voice = OwnVoice(self.value("mute_tail"))
        self.listening = ListeningState(self.value("language"), self._thresholds())
        if self.value("source") == "stdin":
            return
        settings = RecognizerSettings(
            self.value("engine"), self.value("language"), self.value("model_path")
        )
        self._recognizer = RecognizerProcess(settings)
        self._source = self._find_source()
        self._recognizer.open()
        name = self._source.name if self._source else self.resolve_topic_name("audio")
        self.get_logger().info(f"{settings.engine} ({settings.language}) listens to {name}")

    def begin(self) -> None:
        """Listen."""
        if self.value("source") == "stdin":
            self._typing = True
            if self._typed is None:
                arguments = (sys.stdin, self.value("prompt"), self._on_typed, self._on_typing_ended)
                self._typed = threading.Thread(target=read_lines, args=arguments, daemon=True)
                self._typed.start()
            return
        limits = PhraseLimits(
            end_silence=self.value("end_silence"),
            max_phrase=self.value("max_phrase"),
            vad_mode=self.value("vad_mode"),
            threshold=self._threshold,
        )
        assert self._recognizer is not None
        self._listener = Listener(
            PhraseStream(
                limits,
                self._own_voice,
                overhear=lambda: self.value("barge_in") != "off",
                is_open=self._is_open,
            ),
            self._recognizer.recognize,
            lambda: self.listening.hints(self._now(), helped=self.value("hints")),
            ListenerCallbacks(
                begun=self._on_begun,
                dropped=lambda: self._hearing.publish(Bool(data=False)),
                ended=self._on_ended,
                recognized=self.on_recognized,
                partial=self._on_partial,
                failed=self._on_failed,
                tick=self._on_tick,
            ),
            lambda: self.value("partial_period"),
        )
        self._delay = math.inf
        if self._source is not None:
            self._source.start(self._listener.put, self._now)

    def end(self) -> None:
        """Stop listening; ~/listen ends as CANCELED."""
        self._typing = False
        if self._source is not None:
            self._source.stop()
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self._end_goal(Listen.Result.CANCELED, f"speech became {self.state}")
        self.listening.dialogue_ended()

    def free(self) -> None:
        """End the recognizer."""
        if self._recognizer is not None:
            self._recognizer.close()
            self._recognizer = None
        self._source = None

    def _find_source(self) -> Source | None:
        """Return the microphone or the files; None for the topic, which is always subscribed."""
        name, channel, log = self.value("source"), self.value("channel"), self.get_logger()
        self._threshold = PhraseLimits().threshold
        self._channels = Channels(channel, log.info, log.warning)
        if name == "topic":
            return None
        if name != "microphone":
            return Files(Path(name).expanduser(), FILE_PAUSE, self._is_quiet, self._channels)
        microphone = Microphone(self.value("device"), channel)
        seconds = self.value("ambient_seconds")
        if seconds > 0:
            self._threshold = microphone.ambient(seconds, self.value("ambient_margin"))
            self.get_logger().info(f"sound above {self._threshold:.0f} dB may be speech")
        return microphone

    def _is_open(self) -> bool:
        """Whether the mode says to listen now."""
        continuous = self.value("mode") == "continuous"
        return continuous or self.listening.waits_for_speech(self._now())

    def _is_speaking(self) -> bool:
        """Whether the robot speaks now."""
        now = self._now()
        return self._own_voice.muted(now, now)

    def _is_busy(self) -> bool:
        """Whether a person speaks, or a phrase is being recognized."""
        listener = self._listener
        return listener is not None and listener.busy

    def _is_quiet(self) -> bool:
        """Whether the next file may be played."""
        heard = self._speech.get_subscription_count() > 0
        return heard and self._is_open() and not self._is_busy() and not self._is_speaking()

    # Messages of other nodes.

    def _on_question(self, message: ClarificationQuestion) -> None:
        self.listening.question_asked(message, self._now())

    def _on_speaking(self, message: Speaking) -> None:
        at = messages.seconds(message.header.stamp)
        if message.is_speaking:
            self._own_voice.began(at, messages.seconds(message.remaining), message.text)
        else:
            self._own_voice.ended(at)

    def _on_audio(self, message: AudioChunk) -> None:
        listener = self._listener
        if listener is None or self._source is not None:
            return
        try:
            samples = np.array(message.data, np.int16)
            audio = self._channels(samples, int(message.sample_rate), int(message.channels))
        except VoiceError as error:
            self.get_logger().warning(str(error), throttle_duration_sec=10.0)
            return
        start, arrived = messages.seconds(message.header.stamp), self._now() - audio.seconds
        # The least of all delays: a chunk that came late in a busy moment is of the same clock.
        self._delay = min(self._delay, arrived - start)
        if not listener.busy:  # within a phrase time may not jump
            self._offset = 0.0 if abs(self._delay) < MAX_CLOCK_OFFSET else self._delay
        listener.put(audio, start + self._offset)

    # Calls of the listener, from its threads.

    def _on_begun(self, start: float) -> None:
        self._hearing.publish(Bool(data=True))
        self._publish_state(Listen.Feedback.HEARING)
        if self.value("barge_in") == "voice" and self._own_voice.muted(start, self._now()):
            self._stop_speaking.publish(Empty())

    def _on_ended(self) -> None:
        self._hearing.publish(Bool(data=False))
        self._publish_state(Listen.Feedback.RECOGNIZING)

    def _on_failed(self, reason: str) -> None:
        self.get_logger().error(reason)
        self._end_goal(Listen.Result.FAILED, reason)

    def _on_partial(self, start: float, heard: Hypothesis) -> None:
        self._transcript.publish(self._heard_msg(heard, Transcript.PARTIAL, start))

    def _heard_msg(self, heard: Hypothesis, status: int, start: float) -> Transcript:
        engine, language = self.value("engine"), self.value("language")
        return transcript_msg(
            heard, status, start, engine=engine, language=language, source="microphone"
        )

    def on_recognized(self, phrase: Phrase, heard: Hypothesis, _hints: Hints) -> None:
        """Act on a phrase, read it back, or report that it was not understood."""
        interrupts = self._own_voice.muted(phrase.start, phrase.speech_end)
        if interrupts and self._is_echo(phrase, heard):
            self.get_logger().debug(f"heard itself: {heard.text!r}")
            return
        now = self._now()
        timeout = self.value("listen_timeout")
        decision = self.listening.decide(heard, self._thresholds(), now, timeout)
        accepted = decision.action is Action.ACCEPT
        status = STATUS[decision.action]
        if decision.action is Action.REJECT and self.listening.confirming:
            status = Transcript.UNCONFIRMED  # "did you say ...?" still waits for its answer
        if accepted:
            heard = replace(heard, text=decision.text)
        message = self._heard_msg(heard, status, phrase.start)
        message.duration = messages.duration(max(0.0, phrase.speech_end - phrase.start))
        message.latency = messages.duration(max(0.0, now - phrase.speech_end))
        if interrupts and accepted:
            self._stop_speaking.publish(Empty())
        self._transcript.publish(message)
        if accepted:
            self.get_logger().info(f"heard: {decision.text}")
            self._publish_speech(decision.text)
            self._end_goal(Listen.Result.HEARD, "", message)
        elif decision.say:
            self._say.publish(String(data=decision.say))
        elif status == Transcript.NOT_UNDERSTOOD:
            reason = "something was said, but it was not understood"
            self._end_goal(Listen.Result.NOT_UNDERSTOOD, reason, message)

    def _is_echo(self, phrase: Phrase, heard: Hypothesis) -> bool:
        """Whether a phrase from while the robot spoke is its own voice, or too unsure to tell."""
        times = (phrase.start, phrase.speech_end)
        own = any(self._own_voice.is_echo(t, *times) for t in (heard.text, heard.unaided))
        return own or heard.confidence < self.value("accept_confidence")

    def _publish_speech(self, text: str) -> None:
        if calls_off(read(text).kind):
            self._stop_speaking.publish(Empty())
        self._speech.publish(String(data=text))

    def _on_tick(self) -> None:
        now = self._now()
        if self._is_speaking() or self._is_busy():
            self.listening.extend(now, self.value("listen_timeout"))
        if self.listening.confirmation_timed_out(now):
            self._say.publish(String(data=say(Saying.NOTHING_HEARD, self.value("language"))))
        goal = self.listening.goal
        if goal is not None and now > goal.deadline:
            self._end_goal(Listen.Result.NOTHING_HEARD, "nobody spoke in time")

    # Typed lines.

    def _on_typed(self, text: str) -> None:
        # A line piped in at the start would be lost while DDS discovery goes on.
        deadline = time.monotonic() + SUBSCRIBER_TIMEOUT
        while self._speech.get_subscription_count() == 0 and time.monotonic() < deadline:
            time.sleep(0.02)
        if self._speech.get_subscription_count() == 0:
            self.get_logger().warning(f"nobody listens on {self._speech.topic_name}")
        if not self._typing:
            self.get_logger().warning(f"speech is {self.state}: {text!r} is not passed on")
            return
        self._publish_speech(text)
        message = transcript_msg(
            Hypothesis(text, 1.0),
            Transcript.ACCEPTED,
            self._now(),
            engine="keyboard",
            language=self.value("language"),
            source="",
        )
        self._transcript.publish(message)

    def _on_typing_ended(self, why: str) -> None:
        self.get_logger().info(
            f"{why}: nothing more can be typed here. To say something: "
            f"ros2 topic pub --once {self._speech.topic_name} std_msgs/msg/String "
            "\"{data: '...'}\""
        )

    # Push to talk.

    async def on_goal(self, handle: ServerGoalHandle) -> Listen.Result:
        """Listen for one phrase."""
        key = bytes(handle.goal_id.uuid)
        try:
            status, reason, message = await self._listen_for_phrase(handle)
            if key in self._canceled:  # rclpy marks the goal only after the callback has returned
                await until(lambda: handle.is_cancel_requested, self.spinner)
        finally:
            self._canceled.discard(key)
        result = Listen.Result(status=status, error_msg=reason)
        if message is not None:
            result.transcript = message
        if status == Listen.Result.HEARD:
            handle.succeed()
        elif handle.is_cancel_requested:
            handle.canceled()
        else:
            handle.abort()
        return result

    async def _listen_for_phrase(
        self, handle: ServerGoalHandle
    ) -> tuple[int, str, Transcript | None]:
        """Return a goal's end: its result's status, the reason, and a transcript or None."""
        if self.state != "active":
            return (Listen.Result.FAILED, f"speech is {self.state}", None)
        if self._listener is None:
            return (Listen.Result.FAILED, "source stdin hears nothing", None)
        timeout = messages.seconds(handle.request.timeout) or self.value("listen_timeout")
        ended = new_future(self.spinner)
        expected = tuple(handle.request.expected)
        goal = ListenGoal(handle, ended, timeout, self._now() + timeout, expected)
        if not self.listening.open_goal(goal):
            return (Listen.Result.FAILED, "another ~/listen is open", None)
        self._publish_state(Listen.Feedback.WAITING)
        if bytes(handle.goal_id.uuid) in self._canceled:  # canceled before the goal was open
            self._end_goal(Listen.Result.CANCELED, "canceled by the caller", only=goal)
        outcome: tuple[int, str, Transcript | None] = await ended
        return outcome

    def on_cancel(self, handle: ServerGoalHandle) -> CancelResponse:
        """Accept every cancellation; a waiting goal ends at once."""
        key = bytes(handle.goal_id.uuid)
        self._canceled.add(key)
        goal = self.listening.goal
        if goal is not None and bytes(goal.handle.goal_id.uuid) == key:
            self._end_goal(Listen.Result.CANCELED, "canceled by the caller", only=goal)
        return CancelResponse.ACCEPT

    def _publish_state(self, state: int) -> None:
        goal = self.listening.goal
        if goal is not None and goal.handle.is_active:
            goal.handle.publish_feedback(Listen.Feedback(state=state))

    def _end_goal(
        self,
        status: int,
        reason: str,
        message: Transcript | None = None,
        only: ListenGoal | None = None,
    ) -> None:
        goal = self.listening.close_goal(only)
        if goal is not None:
            goal.ended.set_result((status, reason, message))
