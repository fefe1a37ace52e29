# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The node tts: speaks the texts of the topics `say` and `question`, and of the action ~/say.

The engine is a process of its own and the sound a program that can be killed; no callback waits for
either.
"""

from __future__ import annotations

import array
from pathlib import Path
from typing import Any

from clue_msgs.action import Say
from clue_msgs.msg import AudioChunk, ClarificationQuestion, Speaking
from rclpy.action import CancelResponse
from rclpy.action.server import ServerGoalHandle
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.executors import Executor
from std_msgs.msg import String
from std_srvs.srv import Trigger

from clue_ros.errors import VoiceError
from clue_ros.nodes import messages, topics
from clue_ros.nodes.inference_worker import new_future, until
from clue_ros.nodes.lifecycle import ManagedNode
from clue_ros.nodes.parameters import declare, guard
from clue_ros.nodes.voice_parameters import TTS
from clue_ros.voice.audio import Audio
from clue_ros.voice.player import DevicePlayer, Player, SilentPlayer, StreamPlayer
from clue_ros.voice.speaker import HIGH, MAX_TEXT, End, Speaker, SpeakerCallbacks, Utterance, clean
from clue_ros.voice.synthesis import Synthesizer, VoiceSettings

LEAD = 0.1  # seconds from the message on `speaking` to the sound; DDS takes some of it
STATUS = {
    End.DONE: Say.Result.DONE,
    End.CANCELED: Say.Result.CANCELED,
    End.FAILED: Say.Result.FAILED,
}


class TtsNode(ManagedNode):
    """The node tts; docs/voice.md lists its topics, docs/parameters.md its parameters.

    Raises (on construction): BadParameterError for an override that the parameter table refuses.
    """

    def __init__(self, executor: Executor, **kwargs: Any) -> None:
        super().__init__("tts", executor, **kwargs)
        declare(self, TTS)
        guard(self, TTS, state=lambda: self.state)
        self._speaker: Speaker | None = None
        self._goals: dict[bytes, Utterance] = {}
        self._speaking = topics.Tts.SPEAKING.publisher(self)
        self._audio = topics.Tts.SPOKEN_AUDIO.publisher(self)
        self._canceled: set[bytes] = set()  # goals of ~/say that are being canceled
        self._said = ""  # the latest sentence
        self._mute = ""  # why nothing can be heard, unless the parameters ask for that
        group = {"callback_group": ReentrantCallbackGroup()}
        topics.Tts.SAY.subscribe(self, self._on_say, **group)
        topics.Tts.QUESTION.subscribe(self, self._on_question, **group)
        topics.Tts.STOP_SPEAKING.subscribe(self, lambda _: self._stop(), **group)
        topics.Tts.STOP.serve(self, self._on_stop, **group)
        self._action = topics.Tts.SAY_ACTION.serve(self, self.on_goal, self.on_cancel, **group)
        if self.value("autostart"):
            self.autostart()

    # Lifecycle.

    def open(self) -> None:
        """Start the engine and find the sound device, or say once why there is none."""
        self._mute = ""
        keep = self.value("wav_folder")
        player = self._player()
        self._speaker = Speaker(
            self._synthesizer(),
            player,
            SpeakerCallbacks(
                begin=self._on_begin,
                silent=lambda: self._publish_speaking(False, 0.0),
                show=lambda text: print(f"robot> {clean(text)}", flush=True),
                warn=self.get_logger().warning,
            ),
            keep=Path(keep).expanduser() if keep else None,
            lead=0.0 if isinstance(player, SilentPlayer) else LEAD,
        )

    def end(self) -> None:
        """Stop speaking; when the process ends, `free` lets the queue be said."""
        if self._speaker is not None and self.state != "finalized":
            self._speaker.stop()

    def free(self) -> None:
        """Say the queue for two seconds at most, and end the engine."""
        if self._speaker is not None:
            self._speaker.close()
            self._speaker = None

    def _synthesizer(self) -> Synthesizer | None:
        engine = self.value("engine")
        if engine == "print":
            return None
        settings = VoiceSettings(
            self.value("voice"),
            self.value("language"),
            self.value("rate"),
            self.value("volume"),
            self.value("engine_timeout"),
        )
        synthesizer = Synthesizer(settings)
        try:
            voice = synthesizer.open()
        except VoiceError as error:
            if engine == "pyttsx3":
                raise
            self._mute = f"cannot speak, so I print: {error}"
            self.get_logger().warning(self._mute)
            return None
        self.get_logger().info(f"speaking through pyttsx3 with the voice {voice}")
        return synthesizer

    def _player(self) -> Player:
        output = self.value("output")
        if output == "topic":
            return StreamPlayer("the topic spoken_audio", self._send)
        if output == "none" or self.value("engine") == "print":
            return SilentPlayer()
        try:
            player = DevicePlayer(self.value("device"))
        except VoiceError as error:
            if output == "device":
                raise
            folder = self.value("wav_folder")
            instead = f"WAV files go to {folder}" if folder else "wav_folder would keep WAV files"
            self.get_logger().warning(f"no sound: {error}; {instead}")
            self._mute = self._mute or ("" if folder else f"no sound: {error}")
            return SilentPlayer()
        self.get_logger().info(f"playing through {player.name}")
        return player

    # Called from the speaker's thread.

    def _on_begin(self, text: str, seconds: float) -> None:
        self._said = text
        self._publish_speaking(True, seconds)

    def _publish_speaking(self, speaking: bool, seconds: float) -> None:
        if not self.context.ok():  # the process ends while something is being said
            return
        message = Speaking(
            is_speaking=speaking, text=self._said, remaining=messages.duration(seconds)
        )
        message.header.stamp = self.get_clock().now().to_msg()
        self._speaking.publish(message)

    def _send(self, audio: Audio) -> None:
        message = AudioChunk(sample_rate=audio.rate, channels=1)
        message.header.stamp = self.get_clock().now().to_msg()
        message.header.frame_id = "loudspeaker"
        message.data = array.array("h", audio.samples.tobytes())
        self._audio.publish(message)

    # Requests.

    def _on_say(self, message: String) -> None:
        self._add(Utterance(message.data[:MAX_TEXT], source="say"))

    def _on_question(self, message: ClarificationQuestion) -> None:
        self._add(Utterance(message.text[:MAX_TEXT], HIGH, "question"))

    def _add(self, utterance: Utterance) -> bool:
        speaker = self._speaker
        if speaker is None or self.state != "active" or not clean(utterance.text):
            return False
        return speaker.add(utterance)

    def _stop(self) -> int:
        speaker = self._speaker
        return speaker.stop() if speaker is not None else 0

    def _on_stop(self, _request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        count = self._stop()
        response.success = True
        response.message = f"{count} text{'s' if count != 1 else ''} broken off"
        return response

    async def on_goal(self, goal: ServerGoalHandle) -> Say.Result:
        """Say a text; the goal ends when it has been said."""
        request, result = goal.request, Say.Result()
        key, reason = bytes(goal.goal_id.uuid), self._refusal(request)
        if reason:
            self._canceled.discard(key)
            goal.abort()
            result.status, result.error_msg = Say.Result.FAILED, reason
            return result
        ended = new_future(self.spinner)
        utterance = Utterance(request.text, request.priority)
        utterance.on_sentence = lambda number: _feedback(goal, utterance, number)
        utterance.on_end = lambda end, why: ended.set_result((end, why))
        self._goals[key] = utterance
        _feedback(goal, utterance, 0)
        if key in self._canceled or not self._add(utterance):
            end, why = End.CANCELED, "canceled before it was said"
        else:
            end, why = await ended
        self._goals.pop(key, None)
        if end is End.DONE and self._mute:
            end, why = End.FAILED, self._mute
        if key in self._canceled:  # rclpy marks the goal only after the callback has returned
            self._canceled.discard(key)
            await until(lambda: goal.is_cancel_requested, self.spinner)
        result.status, result.wav = STATUS[end], utterance.wav
        result.error_msg = "" if end is End.DONE else why
        if end is End.DONE:
            goal.succeed()
        elif goal.is_cancel_requested:
            goal.canceled()
        else:
            goal.abort()
        return result

    def _refusal(self, request: Say.Goal) -> str:
        if self.state != "active":
            return f"tts is {self.state}: configure and activate it first"
        if not clean(request.text):
            return "the text is empty"
        if len(request.text) > MAX_TEXT:
            return f"the text has {len(request.text)} characters, at most {MAX_TEXT} can be said"
        if request.priority > Say.Goal.URGENT:
            return f"priority {request.priority}: LOW (0) to URGENT (3) exist"
        return ""

    def on_cancel(self, goal: ServerGoalHandle) -> CancelResponse:
        """Accept every cancellation; the goal's utterance is broken off."""
        key = bytes(goal.goal_id.uuid)
        self._canceled.add(key)  # before its utterance is there to be broken off, too
        utterance = self._goals.get(key)
        if utterance is not None and self._speaker is not None:
            self._speaker.cancel(utterance)
        return CancelResponse.ACCEPT


def _feedback(goal: ServerGoalHandle, utterance: Utterance, sentence: int) -> None:
    state = Say.Feedback.SPEAKING if sentence else Say.Feedback.QUEUED
    if goal.is_active:
        goal.publish_feedback(
            Say.Feedback(state=state, sentence=sentence, sentences=len(utterance.sentences))
        )
