# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The demo: a real ROS 2 graph in separate processes, played through scene by scene.

    scripts/demo                                              the scenes that come with clue_ros
    scripts/demo --image FILE --say TEXT [--answer TEXT]...   your own picture and request
    scripts/demo --interactive [--image FILE]                 you type requests and answers
    scripts/demo --voice                                      spoken dialogues from sound files
    scripts/demo --teach                                      name an object, and find it elsewhere

Image source, perception, speech (as text) and tts each run as a process. The demo prints what comes
over their topics and writes one picture per scene to demo_output/. The exit status is 0 only if
every scene ended as expected. Where the scenes file states what is in a picture, the demo compares
the replies with it, and prints and counts those that are wrong; they do not change the exit status.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image as Pillow

from clue_ros.dialogue.types import Box, Peak
from clue_ros.drawing import draw
from clue_ros.errors import ClueError
from clue_ros.images import load_image
from clue_ros.model.loading import add_model_argument
from clue_ros.nodes.executables import HOW_TO_GET_CLUE_MSGS
from clue_ros.nodes.image_conversion import read_rows
from demo.scenes import (
    SCENES,
    VOICE_SCENES,
    DemoScene,
    Played,
    SceneError,
    box_text,
    read_scenes,
)

if TYPE_CHECKING:
    from demo.graph import Processes, Watcher

REPLY_TIMEOUT = 300.0  # seconds
TOGETHER = 0.4  # seconds within which `say` and `question` or `grounding` bring the same reply
BEGIN_TIMEOUT = 20.0  # seconds for perception to hear the first request
ANSWER_TIMEOUT = 3600.0  # seconds; a person who types may think

say = partial(print, flush=True)


@dataclass(frozen=True)
class DemoSettings:
    """The scenes and the model; see the options of `parse`."""

    image: Path | None
    say: str
    answer: tuple[str, ...]
    interactive: bool
    voice: bool
    teach: bool
    scenes: Path | None
    out: Path
    model: str
    device: str


def parse(args: list[str] | None) -> DemoSettings:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="demo", description="Play dialogues on a real ROS 2 graph: look, ask, point."
    )
    add = parser.add_argument
    add("--image", type=Path, metavar="FILE", help="picture to play instead of the scenes")
    add("--say", default="", metavar="TEXT", help="request about the picture of --image")
    add(
        "--answer", action="append", default=[], metavar="TEXT",
        help="answer to the robot's next question; may be given several times",
    )  # fmt: skip
    add("--interactive", action="store_true", help="type requests and answers yourself")
    add("--voice", action="store_true", help="play spoken dialogues from sound files")
    add("--teach", action="store_true", help="name an object on a photograph, find it on another")
    add("--scenes", type=Path, metavar="YAML", help="scenes file to play instead of the demo's own")
    add(
        "--out", type=Path, default=Path("demo_output"), metavar="DIR",
        help="folder for pictures and logs",
    )  # fmt: skip
    add_model_argument(parser)
    add("--device", default="auto", help="device to run the model on: auto, cpu, cuda, ...")
    options = parser.parse_args(args)
    settings = DemoSettings(**{**vars(options), "answer": tuple(options.answer)})
    if settings.say and not settings.image:
        parser.error("--say needs --image FILE")
    if settings.image and not settings.say and not settings.interactive:
        parser.error("--image needs --say TEXT or --interactive")
    if settings.voice and (settings.image or settings.interactive):
        parser.error("--voice plays sound files: name them in a file for --scenes")
    return settings


def choose_scenes(settings: DemoSettings) -> list[DemoScene]:
    """Return the scenes to play. Raises SceneError, BadImageError."""
    if settings.image:
        load_image(settings.image)  # report a broken picture before a graph is started for it
        return [DemoScene(settings.image, settings.say, settings.answer)]
    path = settings.scenes or (VOICE_SCENES if settings.voice else SCENES)
    scenes = read_scenes(path)
    if settings.voice and any(scene.truth for scene in scenes):
        raise SceneError(f"{path}: spoken scenes are not compared with a truth: leave it out")
    return scenes


def main(args: list[str] | None = None) -> int:
    """Play the scenes; 0 if all went as expected, 1 if not, 2 if the demo could not start."""
    settings = parse(args)
    if settings.teach:
        from demo.teach import play_teach

        try:
            return play_teach(settings.model, settings.device, settings.out)
        except (ClueError, OSError) as error:
            print(f"demo: {error}", file=sys.stderr)
            return 2
    try:
        from demo.graph import GraphError, Processes, Watcher, stay_on_this_machine
    except ImportError as error:
        print(f"demo: {HOW_TO_GET_CLUE_MSGS.format(error=error)}", file=sys.stderr)
        return 2
    try:
        scenes = choose_scenes(settings)
        processes = Processes(settings.out / "logs")  # makes the folders
    except (SceneError, ClueError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    stay_on_this_machine()
    watcher: Watcher | None = None
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        watcher = Watcher(processes)
        if settings.voice:
            from demo.spoken import play_voice

            out = settings.out / "voice"
            failures = play_voice(
                processes, watcher, scenes, out, model=settings.model, device=settings.device
            )
        else:
            failures = play(processes, watcher, scenes, settings)
    except GraphError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        say("\nstopped")
        return 1
    finally:
        processes.stop()
        if watcher is not None:
            watcher.close()
    for problem in failures:
        print(f"demo: {problem}", file=sys.stderr)
    if not settings.voice:
        say(f"pictures: {settings.out.resolve()}")
    return 1 if failures else 0


def play(
    processes: Processes, watcher: Watcher, scenes: list[DemoScene], settings: DemoSettings
) -> list[str]:
    """Start the nodes and play every scene; return what went wrong.

    A scene without a request asks for requests until the person enters none.
    """
    from demo.graph import start_nodes

    begin = time.monotonic()
    start_nodes(
        processes, watcher, scenes[0].image, settings.model, settings.device, ANSWER_TIMEOUT,
        speech={"typed": True},
    )  # fmt: skip
    seconds = time.monotonic() - begin
    say(f"perception has loaded {settings.model} and sees the camera ({seconds:.1f} s)")
    failures, number = [], 0
    wrong: dict[int, bool] = {}  # of the scenes with a truth, by number
    for scene in scenes:
        while True:
            number += 1
            player = Player(processes, watcher, settings, number, scene)
            if problem := player.play():
                failures.append(problem)
            if scene.truth:
                wrong[number] = bool(player.mistake)
            if scene.say or not player.began:
                break
    if wrong:
        say(f"\n{_count(wrong)}")
    return failures


def _count(wrong: dict[int, bool]) -> str:
    """Count the right scenes among those with a truth, and list the wrong ones."""
    text = f"right: {len(wrong) - sum(wrong.values())} of the {len(wrong)} scenes with a truth"
    numbers = ", ".join(str(number) for number, is_wrong in wrong.items() if is_wrong)
    return f"{text}; wrong: {numbers} (the exit status does not count them)" if numbers else text


@dataclass
class Player:
    """Plays one scene and saves its picture."""

    processes: Processes
    watcher: Watcher
    settings: DemoSettings
    number: int
    scene: DemoScene
    began: bool = False  # a request was made
    mistake: str = ""  # measured by the truth about the picture
    _questions: list[Any] = field(default_factory=list)
    _grounding: Any = None
    _last_words: str = ""
    _said: list[str] = field(default_factory=list)  # the whole dialogue, for the picture

    def play(self) -> str:
        """Play the scene; return "" or what went wrong."""
        say(f"\nscene {self.number}: {self.scene.image.name}")
        self.watcher.show(self.scene.image.resolve())
        while not self.watcher.events.empty():
            self.watcher.events.get()
        self.watcher.attention = None
        if self.scene.say:
            say(f"  person: {self.scene.say}")
            self._speak_first(self.scene.say)
        elif not self._type("your request> "):
            return ""
        self.began = True
        self._listen()
        questions = tuple(question.text for question in self._questions)
        box = None if self._grounding is None else _box(self._grounding.target.box)
        played = Played(questions, box is not None, self._last_words, box)
        if self.scene.truth:
            self.mistake = self.scene.mistake(played)
        verdict = f"wrong: {self.mistake}" if self.mistake else "right"
        if self.mistake:
            self._said.append(verdict)
        self._save()
        if self.scene.truth:
            say(f"  truth:  {self.scene.right_reply()}")
            say(f"  {verdict}")
        return self.scene.problem(self.number, played)

    def _speak(self, text: str) -> None:
        """Give a text to the speech node."""
        self._said.append(f"person: {text}")
        self.processes.type_line("speech", text)

    def _speak_first(self, text: str) -> None:
        """Give a request to the speech node, once more if perception does not hear it.

        DDS loses messages of the speech node until perception has discovered it.
        """
        before = self.watcher.dialogue_id
        self._speak(text)
        deadline = time.monotonic() + BEGIN_TIMEOUT
        while (
            self.number == 1 and self.watcher.dialogue_id == before and self.watcher.events.empty()
        ):
            self.processes.check()
            if time.monotonic() > deadline:
                self.processes.type_line("speech", text)
                return
            time.sleep(0.02)

    def _type(self, prompt: str) -> bool:
        """Give a line that the person types to the speech node; False for none."""
        try:
            text = input(f"  {prompt}").strip()
        except EOFError:
            return False
        if text:
            self._speak(text)
        return bool(text)

    def _listen(self) -> None:
        """Follow the dialogue to its end: last words, or a question that nobody answers."""
        while True:
            heard = self._heard()
            self._grounding = next((m for kind, m in heard if kind == "grounding"), self._grounding)
            for question in [m for kind, m in heard if kind == "question"]:
                self._questions.append(question)
                self._said.append(f"robot: {question.text}")
                say(f"  robot:  {question.text}")
                if not self._answer():
                    self._give_up()
                    return
            asked = {question.text for question in self._questions}
            words = [m for kind, m in heard if kind == "say" and m not in asked]
            if words:
                self._last_words = words[-1]
                self._said.append(f"robot: {self._last_words}")
                say(f"  robot:  {self._last_words}")
                return

    def _heard(self) -> list[tuple[str, Any]]:
        """Wait for a message, and for those of the other topics that belong to it."""
        events = self.watcher.events
        self.watcher.wait(lambda: not events.empty(), "an answer of perception", REPLY_TIMEOUT)
        time.sleep(TOGETHER)
        heard = []
        while not events.empty():
            heard.append(events.get())
        return heard

    def _answer(self) -> bool:
        """Answer the question; False when there is nothing to say."""
        if self.settings.interactive:
            return self._type("your answer> ")
        answers = self.scene.answers[len(self._questions) - 1 :]
        if answers:
            say(f"  person: {answers[0]}")
            self._speak(answers[0])
        return bool(answers)

    def _give_up(self) -> None:
        """Close a dialogue whose question nobody answers."""
        say("  (no more answers here, so the dialogue is closed)")
        self.watcher.transition("deactivate")
        self.watcher.transition("activate")
        seen = self.watcher.perception_sees
        self.watcher.wait(
            lambda: self.watcher.perception_sees > seen, "a picture after activation", 30.0
        )

    def _save(self) -> None:
        """Write the picture with the attention, the candidates or the box, and the dialogue."""
        image = load_image(self.scene.image)
        box = None
        attention = self.watcher.attention
        peaks = [Peak(_box(o.box), 1.0) for q in self._questions[-1:] for o in q.candidates]
        if self._grounding is not None:
            target, ambiguity = self._grounding.target, self._grounding.ambiguity
            box, peaks, attention = _box(target.box), [], ambiguity.attention_map
            say(
                f"  box:    {box_text(box)} of {image.shape[1]}x{image.shape[0]} px; "
                f"{target.label!r}, score {target.score:.2f}, "
                f"ambiguity {ambiguity.probability:.2f}"
            )
        drawn = draw(
            image,
            attention=None if attention is None else read_rows(attention, np.float32),
            peaks=peaks,
            box=box,
            caption="\n".join(self._said),
        )
        path = self.settings.out / f"scene_{self.number}_{self.scene.image.stem}.png"
        Pillow.fromarray(drawn).save(path)
        say(f"  picture: {path}")


def _box(message: Any) -> Box:
    return Box(message.x_min, message.y_min, message.x_max, message.y_max)


if __name__ == "__main__":
    sys.exit(main())
