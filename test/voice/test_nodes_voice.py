"""The speech and tts nodes over DDS: sound comes and goes as topics, so no sound card is needed."""

from __future__ import annotations

import array
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ros_helpers
from ros_helpers import ROOT, Client, Process, action_client, ros_client, send_goal, wait_until
from voice_helpers import need_espeak, spoken

ros_helpers.need_ros()

from clue_msgs.action import Listen, Say  # noqa: E402
from clue_msgs.msg import AudioChunk, ClarificationQuestion, Speaking, Transcript  # noqa: E402
from rclpy.duration import Duration  # noqa: E402
from rclpy.time import Time  # noqa: E402
from std_msgs.msg import Empty, String  # noqa: E402
from std_srvs.srv import Trigger  # noqa: E402

from clue_ros.dialogue.reading import Kind, read  # noqa: E402
from clue_ros.errors import VoiceError  # noqa: E402
from clue_ros.nodes.topics import LATEST  # noqa: E402
from clue_ros.voice.audio import Audio, join, read_audio, resample, silence, write_wav  # noqa: E402
from clue_ros.voice.synthesis import Synthesizer, VoiceSettings  # noqa: E402

SPOKEN = ROOT / "demo" / "voice"


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with ros_client("voice_tester") as client:
        yield client


class Action:
    """A client of one action that keeps its feedback."""

    def __init__(self, client: Client, kind: Any, name: str) -> None:
        self._node = client.node
        self._client = action_client(client.node, kind, name)
        self.feedback: list[Any] = []

    def send(self, goal: Any) -> Any:
        """Send a goal and return its handle."""
        return send_goal(self._node, self._client, goal, self.feedback)

    def result(self, handle: Any) -> Any:
        """Return a goal's result."""
        future = handle.get_result_async()
        wait_until(future.done, "the goal's result")
        return future.result().result


# The voice.


@pytest.fixture(scope="module")
def need_engine() -> None:
    engine = Synthesizer(VoiceSettings(timeout=60.0))
    try:
        engine.open()
    except VoiceError as error:
        pytest.skip(str(error))
    finally:
        engine.close()


@pytest.fixture(scope="module")
def tts(need_engine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    del need_engine
    folder = tmp_path_factory.mktemp("tts")
    process = Process(
        "tts",
        folder / "log",
        *("--ros-args", "-r", "__ns:=/mouth"),
        parameters={
            "output": "topic",
            "engine": "pyttsx3",
            "rate": 300,
            "wav_folder": folder / "wav",
            "engine_timeout": 60.0,
        },
    )
    yield process
    assert process.stop() == 0, process.text()


class Mouth:
    """What a client says to tts, and what it hears of it."""

    def __init__(self, client: Client) -> None:
        node = client.node
        self._clock = node.get_clock()
        self._speaking = client.listen(Speaking, "mouth/speaking", LATEST)
        self._audio = client.listen(AudioChunk, "mouth/spoken_audio", 500)
        self.say_topic = node.create_publisher(String, "mouth/say", 10)
        self.question = node.create_publisher(ClarificationQuestion, "mouth/question", 10)
        self.stop = node.create_client(Trigger, "mouth/tts/stop")
        self.action = Action(client, Say, "mouth/tts/say")
        self.forget()

    def forget(self) -> None:
        """Count what is sent from now on; messages on their way are of before."""
        self._since = self._clock.now()
        self.action.feedback.clear()

    @property
    def speaking(self) -> list[Speaking]:
        """What was published about speaking since `forget`."""
        return self._sent_since(self._speaking)

    @property
    def audio(self) -> list[AudioChunk]:
        """The sound since `forget`."""
        return self._sent_since(self._audio)

    def _sent_since(self, messages: list[Any]) -> list[Any]:
        return [m for m in messages if Time.from_msg(m.header.stamp) >= self._since]

    def is_silent(self) -> bool:
        """Return whether the last message says that tts is silent."""
        return bool(self._speaking) and not self._speaking[-1].is_speaking

    def say(self, text: str, priority: int = 1) -> Any:
        """Say it by action and return the result."""
        return self.action.result(self.action.send(Say.Goal(text=text, priority=priority)))

    def samples(self) -> int:
        """Return how many samples were heard."""
        return sum(len(chunk.data) for chunk in self.audio)

    def texts(self) -> list[str]:
        """Return what was begun to be said."""
        return [m.text for m in self.speaking if m.is_speaking]


@pytest.fixture(scope="module")
def all_of_mouth(client: Client, tts: Process) -> Mouth:
    mouth = Mouth(client)
    wait_until(
        lambda: mouth.say("Ready.").status == Say.Result.DONE or tts.popen.poll() is not None,
        "tts to be active",
    )
    return mouth


@pytest.fixture
def mouth(all_of_mouth: Mouth) -> Mouth:
    wait_until(all_of_mouth.is_silent, "silence")
    all_of_mouth.forget()
    return all_of_mouth


def test_say_gives_feedback_sound_and_a_file(mouth: Mouth) -> None:
    result = mouth.say("I see it. Which one?")
    assert (result.status, result.error_msg) == (Say.Result.DONE, "")
    kept = read_audio(Path(result.wav))
    states = [(f.state, f.sentence, f.sentences) for f in mouth.action.feedback]
    assert states == [
        (Say.Feedback.QUEUED, 0, 2),
        (Say.Feedback.SPEAKING, 1, 2),
        (Say.Feedback.SPEAKING, 2, 2),
    ]
    wait_until(lambda: mouth.speaking and not mouth.speaking[-1].is_speaking, "silence")
    assert mouth.texts() == ["I see it.", "Which one?"]
    wait_until(lambda: mouth.samples() >= len(kept.samples), "all of the sound")
    assert mouth.samples() == len(kept.samples)
    assert {chunk.sample_rate for chunk in mouth.audio} == {kept.rate}


def test_a_question_on_both_topics_is_said_once(mouth: Mouth) -> None:
    wait_until(lambda: mouth.question.get_subscription_count() > 0, "tts on question")
    mouth.question.publish(ClarificationQuestion(text="The left one?"))
    mouth.say_topic.publish(String(data="The left one?"))
    wait_until(lambda: "The left one?" in mouth.texts(), "the question")
    assert mouth.say("Afterwards.").status == Say.Result.DONE
    assert mouth.texts() == ["The left one?", "Afterwards."]


def test_stop_and_cancel_are_heard_at_once(mouth: Mouth, client: Client) -> None:
    long = "This is a very long sentence about nothing at all " * 3
    handle = mouth.action.send(Say.Goal(text=long, priority=1))
    wait_until(lambda: len(mouth.audio) > 3, "sound")
    response = client.call(mouth.stop, Trigger.Request())
    assert (response.success, response.message) == (True, "1 text broken off")
    assert mouth.action.result(handle).status == Say.Result.CANCELED
    wait_until(lambda: not mouth.speaking[-1].is_speaking, "silence")
    heard = mouth.samples() / mouth.audio[0].sample_rate
    assert heard < len(long) / 25, "it was broken off, not said to its end"
    mouth.forget()
    handle = mouth.action.send(Say.Goal(text=long, priority=1))
    wait_until(lambda: len(mouth.audio) > 3, "sound")
    client.cancel(handle)
    assert mouth.action.result(handle).status == Say.Result.CANCELED


def test_bad_goals_and_any_text_are_answered_and_the_next_is_said(
    mouth: Mouth, client: Client
) -> None:
    for text, words in (("", "empty"), ("\x00\x07", "empty"), ("x" * 20_001, "20001")):
        result = mouth.say(text)
        assert result.status == Say.Result.FAILED
        assert words in result.error_msg
    assert "priority" in mouth.say("hello", priority=9).error_msg
    assert mouth.say("\N{GRINNING FACE} !").status == Say.Result.DONE  # nothing to be said
    for text in ("a 'quote' \"and\" `more` <speak>&amp;", "Привет, мир", "日本", "\x1b[31mred"):
        assert mouth.say(text).status == Say.Result.DONE, text
    mouth.forget()
    mouth.say_topic.publish(String(data="word " * 4000))  # 20,000 characters, a quarter hour
    wait_until(lambda: mouth.texts(), "its first sentence")
    client.call(mouth.stop, Trigger.Request())
    assert mouth.say("Still here.").status == Say.Result.DONE


def test_without_a_sound_device_it_says_so_once_and_prints(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no player to be found
    publisher = client.node.create_publisher(String, "mute/say", 10)
    action = Action(client, Say, "mute/tts/say")
    node = Process("tts", tmp_path / "log", "--ros-args", "-r", "__ns:=/mute")
    try:
        wait_until(lambda: "no sound" in node.text() or "cannot speak" in node.text(), "a warning")
        wait_until(lambda: publisher.get_subscription_count() > 0, "tts")

        def failed() -> Any:
            result = action.result(action.send(Say.Goal(text="hello", priority=1)))
            return None if "configure and activate" in result.error_msg else result

        result = wait_until(failed, "tts to be active")
        assert result.status == Say.Result.FAILED
        assert "apt-get install" in result.error_msg
        publisher.publish(String(data="Do you mean\nthe left one?"))
        wait_until(lambda: "robot> Do you mean the left one?" in node.text(), "the text")
        assert node.text().count("apt-get install") == 1, node.text()
    finally:
        assert node.stop() == 0, node.text()


# The ears.


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    process = Process(
        "speech",
        tmp_path_factory.mktemp("speech") / "log",
        *("--ros-args", "-r", "__ns:=/ears"),
        parameters={"source": "topic"},
    )
    yield process
    assert process.stop() == 0, process.text()


class Ears:
    """A microphone that never pauses, and what the speech node makes of its sound."""

    def __init__(self, client: Client, prefix: str = "ears") -> None:
        node = client.node
        self.transcripts = client.listen(Transcript, f"{prefix}/transcript", 10)
        self.speech = client.listen(String, f"{prefix}/speech", 10)
        self.say = client.listen(String, f"{prefix}/say", 10)
        self.speaking = node.create_publisher(Speaking, f"{prefix}/speaking", LATEST)
        self.question = node.create_publisher(ClarificationQuestion, f"{prefix}/question", 10)
        self.listen = Action(client, Listen, f"{prefix}/speech/listen")
        self.audio = node.create_publisher(AudioChunk, f"{prefix}/audio", 500)
        self._node = node
        self._waiting: list[Any] = []
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._noise = np.random.default_rng(0)
        threading.Thread(target=self._run, daemon=True).start()

    def hear(self, said: str | Audio) -> None:
        """Have a file of the demo, or 16 kHz sound, said; returns at its end."""
        sound = resample(read_audio(SPOKEN / f"{said}.wav")) if isinstance(said, str) else said
        blocks = range(0, len(sound.samples), 480)
        with self._lock:
            self._waiting += [sound.samples[i : i + 480] for i in blocks]
        wait_until(lambda: not self._waiting, "the end of the sound")

    def robot_speaks(self, text: str) -> None:
        """Tell the node that the robot says a text from now on; that it is silent, if empty."""
        message = Speaking(is_speaking=bool(text), text=text)
        message.header.stamp = self._node.get_clock().now().to_msg()
        message.remaining.sec = 100 if text else 0
        self.speaking.publish(message)
        time.sleep(0.3 if text else 0.6)  # until it has arrived, or until the mute_tail is over

    def is_heard(self) -> bool:
        """Whether a node listens."""
        return bool(self.audio.get_subscription_count() > 0)

    def close(self) -> None:
        """Be a microphone no more."""
        self._stopping.set()

    def _run(self) -> None:
        # Stamped as a sound card does, by the samples before, however late the thread comes.
        first, begin, count = self._node.get_clock().now(), time.monotonic(), 0
        while not self._stopping.is_set():
            with self._lock:
                block = self._waiting.pop(0) if self._waiting else np.zeros(480)
            full = np.zeros(480)
            full[: len(block)] = block
            samples = (full + self._noise.normal(0, 8, 480)).clip(-32_768, 32_767).astype(np.int16)
            message = AudioChunk(sample_rate=16_000, channels=1)
            message.header.stamp = (first + Duration(seconds=0.03 * count)).to_msg()
            message.data = array.array("h", samples.tobytes())
            self.audio.publish(message)
            count += 1
            self._stopping.wait(max(0.0, begin + 0.03 * count - time.monotonic()))


@pytest.fixture(scope="module")
def all_of_ears(client: Client, speech: Process) -> Iterator[Ears]:
    ears = Ears(client)
    wait_until(lambda: "listens to /ears/audio" in speech.text(), "speech to be configured")
    wait_until(ears.is_heard, "speech to be connected: what is said before is lost")
    time.sleep(0.5)  # sound that waited for it comes late, as if stamped by another clock
    yield ears
    ears.close()


@pytest.fixture
def ears(all_of_ears: Ears) -> Ears:
    for messages in (all_of_ears.transcripts, all_of_ears.speech, all_of_ears.say):
        messages.clear()
    all_of_ears.listen.feedback.clear()
    return all_of_ears


def test_a_spoken_request_becomes_speech_with_its_confidence(ears: Ears) -> None:
    ears.hear("pick_up_the_yellow_block")
    wait_until(lambda: ears.speech, "the request")
    assert [m.data for m in ears.speech] == ["pick up the yellow block"]
    wait_until(lambda: ears.transcripts, "its transcript")
    (heard,) = ears.transcripts
    assert (heard.text, heard.status) == ("pick up the yellow block", Transcript.ACCEPTED)
    assert heard.is_final
    assert 0.6 <= heard.confidence <= 1.0
    assert (heard.engine, heard.language) == ("sphinx", "en-US")
    assert heard.unaided_text
    assert 1.0 < heard.duration.sec + heard.duration.nanosec * 1e-9 < 2.5
    assert heard.latency.sec + heard.latency.nanosec * 1e-9 > 0.6  # the silence that ends it


def test_push_to_talk_hears_one_phrase_or_says_that_there_was_none(
    ears: Ears, client: Client
) -> None:
    from builtin_interfaces.msg import Duration

    action = ears.listen
    nothing = action.result(action.send(Listen.Goal(timeout=Duration(nanosec=300_000_000))))
    assert nothing.status == Listen.Result.NOTHING_HEARD
    handle = action.send(Listen.Goal(timeout=Duration(sec=100)))
    # Goals that are accepted one after the other may begin in any order: this one is to be first.
    wait_until(lambda: len(action.feedback) >= 2, "both goals to have said that they wait")
    second = action.result(action.send(Listen.Goal()))
    assert second.status == Listen.Result.FAILED
    assert "another" in second.error_msg
    ears.hear("the_left_one")
    result = action.result(handle)
    assert result.status == Listen.Result.HEARD
    assert result.transcript.text == "the left one"
    states = [f.state for f in action.feedback]
    assert states[-2:] == [Listen.Feedback.HEARING, Listen.Feedback.RECOGNIZING]
    handle = action.send(Listen.Goal(timeout=Duration(sec=100)))
    client.cancel(handle)
    assert action.result(handle).status == Listen.Result.CANCELED


def test_while_the_robot_speaks_nothing_is_heard_and_afterwards_it_is(ears: Ears) -> None:
    ears.robot_speaks("Do you mean this one?")
    ears.hear("pick_up_the_ball")
    ears.robot_speaks("")
    ears.hear("no")
    wait_until(lambda: ears.transcripts and ears.speech, "what is said afterwards, on both topics")
    assert [read(m.text).kind for m in ears.transcripts] == [Kind.NO]


def test_right_is_heard_as_the_answer_that_the_question_offers(ears: Ears) -> None:
    need_espeak()
    wait_until(lambda: ears.question.get_subscription_count() > 0, "speech on question")
    offered = ["the left one", "the right one"]
    ears.robot_speaks("Do you mean the left one or the right one?")
    ears.question.publish(ClarificationQuestion(suggested_answers=offered))
    ears.robot_speaks("")
    ears.hear(spoken("right", "en-gb"))
    wait_until(lambda: ears.speech and ears.transcripts, "the answer")
    assert [m.data for m in ears.speech] == ["right"]
    assert [m.status for m in ears.transcripts] == [Transcript.ACCEPTED]


def barge_in(client: Client, value: str) -> None:
    from rcl_interfaces.srv import SetParameters
    from rclpy.parameter import Parameter

    service = client.node.create_client(SetParameters, "ears/speech/set_parameters")
    parameter = Parameter("barge_in", value=value).to_parameter_msg()
    response = client.call(service, SetParameters.Request(parameters=[parameter]))
    assert response.results[0].successful, response.results[0].reason


def test_a_person_may_interrupt_the_robot_and_its_own_words_do_not(
    ears: Ears, client: Client
) -> None:
    stops = client.listen(Empty, "ears/stop_speaking", 10)
    barge_in(client, "words")
    try:
        ears.robot_speaks("Do you mean the left one or the right one?")
        ears.hear("the_left_one")  # what the robot itself is saying
        ears.hear(silence(0.9))
        ears.hear("pick_up_the_yellow_block")
        wait_until(lambda: ears.speech, "what the person says")
        assert [m.data for m in ears.speech] == ["pick up the yellow block"]
        wait_until(lambda: stops, "the robot to be told to stop")
        assert len(stops) == 1
    finally:
        barge_in(client, "off")
        ears.robot_speaks("")


def test_an_engine_without_its_model_says_so_when_it_is_configured(
    client: Client, tmp_path: Path
) -> None:
    del client
    node = Process(
        "speech", tmp_path / "log", parameters={"source": "topic", "engine": "faster_whisper"}
    )
    try:
        wait_until(lambda: "ros2 lifecycle set /speech configure" in node.text(), "the reason")
        assert "pip install faster-whisper" in node.text()
        assert "Traceback" not in node.text()
        assert node.popen.poll() is None, "it stays, to be mended"
    finally:
        assert node.stop() == 0, node.text()


def test_files_are_heard_as_if_spoken(client: Client, tmp_path: Path) -> None:
    for number, name in enumerate(("pick_up_the_ball", "no")):
        sound = resample(read_audio(SPOKEN / f"{name}.wav"))
        write_wav(tmp_path / f"{number}.wav", join([sound, silence(0.1)]))
    heard = client.listen(String, "tape/speech", 10)
    node = Process(
        "speech",
        tmp_path / "log",
        *("--ros-args", "-r", "__ns:=/tape"),
        parameters={"source": tmp_path},
    )
    try:
        wait_until(lambda: len(heard) == 2, "both files")
        assert heard[0].data == "pick up the ball"
        assert read(heard[1].data).kind is Kind.NO
    finally:
        assert node.stop() == 0, node.text()


def test_of_several_channels_the_log_says_which_is_heard(ears: Ears, speech: Process) -> None:
    ears.audio.publish(AudioChunk(sample_rate=16_000, channels=4, data=array.array("h", [0] * 8)))
    said = "sound of 4 channels: channel 0, counted from 0, is heard (parameter channel)"
    wait_until(lambda: said in speech.text(), "which channel is heard")


def test_a_chunk_that_is_no_sound_is_refused_and_the_next_is_heard(ears: Ears) -> None:
    ears.audio.publish(AudioChunk(sample_rate=0, channels=1, data=array.array("h", [1])))
    ears.audio.publish(AudioChunk(sample_rate=16_000, channels=0))
    assert Audio(np.zeros(0, np.int16)).seconds == 0
    ears.hear("no")
    wait_until(lambda: ears.transcripts, "the next phrase")
    assert read(ears.transcripts[0].text).kind is Kind.NO
