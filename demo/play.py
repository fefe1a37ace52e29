"""The demo: a real ROS 2 graph in separate processes, played through scene by scene.

    scripts/demo                                        the scenes that come with clue_ros
    scripts/demo --image FILE --say TEXT [--answer TEXT]...   your own
    scripts/demo --interactive [--image FILE]           you type
    scripts/demo --voice                                spoken: sound files in, sound files out

Image source, perception, speech (as text) and tts each run as a process; what is printed here is
what came over their topics. One picture per scene goes to demo_output/. Exit status 0 only if every
scene ended as it should.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image as Pillow

from clue_ros.dialogue.types import Box, Peak
from clue_ros.drawing import draw
from clue_ros.errors import ClueError
from clue_ros.images import load_image
from clue_ros.model.loading import add_model_argument
from clue_ros.nodes.executables import HOW_TO_GET_CLUE_MSGS
from clue_ros.nodes.image_conversion import float_map
from demo.scenes import EXPECTATIONS, Played, Scene, SceneError, find_scenes, read_scenes

if TYPE_CHECKING:
    from demo.graph import Processes, Watcher

LOAD_TIMEOUT = 600.0  # seconds; a full-size model on a CPU takes minutes
REPLY_TIMEOUT = 300.0
TOGETHER = 0.4  # seconds within which `say` and `question` or `grounding` bring the same reply
ANSWER_TIMEOUT = 3600.0  # a person who types may think


def say(text: str = "") -> None:
    """Print a line of the demo's own."""
    print(text, flush=True)


def parse(args: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="demo", description="Play scenes on a real ROS 2 graph: look, ask, point."
    )
    parser.add_argument("--image", type=Path, metavar="FILE", help="your own picture")
    parser.add_argument("--say", metavar="TEXT", help="the request")
    parser.add_argument(
        "--answer",
        action="append",
        default=[],
        metavar="TEXT",
        help="said to its questions, in order",
    )
    parser.add_argument("--interactive", action="store_true", help="type requests and answers")
    parser.add_argument(
        "--voice", action="store_true", help="play spoken dialogues from sound files"
    )
    parser.add_argument("--scenes", type=Path, metavar="YAML", help="another scenes file")
    parser.add_argument("--out", type=Path, default=Path("demo_output"), metavar="DIR")
    add_model_argument(parser)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, ...")
    options = parser.parse_args(args)
    if options.say and not options.image:
        parser.error("--say needs --image FILE")
    if options.image and not options.say and not options.interactive:
        parser.error("--image needs --say TEXT or --interactive")
    if options.voice and (options.image or options.interactive):
        parser.error("--voice plays sound files: name them in a file for --scenes")
    return options


def choose_scenes(options: argparse.Namespace) -> list[Scene]:
    """Return what to play. Raises SceneError, BadImageError."""
    if options.image:
        load_image(options.image)  # a broken picture is said before a graph is started for it
        return [Scene(options.image, options.say or "", tuple(options.answer), "any")]
    return read_scenes(options.scenes or find_scenes())


def main(args: list[str] | None = None) -> int:
    """Play the scenes; 0 if all went as they should, 1 if not, 2 if it could not begin."""
    options = parse(args)
    try:
        from demo.graph import GraphError, Processes, Watcher, stay_on_this_machine
    except ImportError as error:
        print(f"demo: {HOW_TO_GET_CLUE_MSGS.format(error=error)}", file=sys.stderr)
        return 2
    try:
        scenes = [] if options.voice else choose_scenes(options)
        processes = Processes(options.out / "logs")  # makes the folders
    except (SceneError, ClueError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    stay_on_this_machine()
    watcher: Watcher | None = None
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        watcher = Watcher(processes)
        if options.voice:
            from demo.spoken import play_voice

            failures = play_voice(processes, watcher, options)
        else:
            start(processes, watcher, scenes[0], options)
            failures = play(processes, watcher, scenes, options)
    except (GraphError, SceneError) as error:
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
    if not options.voice:
        say(f"pictures: {options.out.resolve()}")
    return 1 if failures else 0


def play(
    processes: Processes, watcher: Watcher, scenes: list[Scene], options: argparse.Namespace
) -> list[str]:
    """Play every scene; return what was wrong.

    A scene with no request asks for requests until there is none.
    """
    failures, number = [], 0
    for scene in scenes:
        while True:
            number += 1
            player = Player(processes, watcher, options, number, scene)
            if problem := player.play():
                failures.append(problem)
            if scene.say or not player.began:
                break
    return failures


def start(
    processes: Processes, watcher: Watcher, scene: Scene, options: argparse.Namespace
) -> None:
    """Start the nodes and bring perception up."""
    say("starting image_source, perception, speech and tts, each a process of its own")
    processes.start("image_source", source=scene.image.resolve(), rate=15.0)
    processes.start("tts")
    processes.start("speech", typed=True)
    processes.start(
        "perception",
        model=options.model,
        device=options.device,
        answer_timeout=ANSWER_TIMEOUT,
        max_image_age=10.0,
    )
    begin = time.monotonic()
    watcher.transition("configure", LOAD_TIMEOUT)
    watcher.transition("activate")
    watcher.wait(lambda: watcher.perception_sees > 0, "the first picture in perception", 30.0)
    say(
        f"perception has loaded {options.model} and sees the camera "
        f"({time.monotonic() - begin:.1f} s)"
    )


class Player:
    """Plays one scene and saves its picture."""

    def __init__(
        self,
        processes: Processes,
        watcher: Watcher,
        options: argparse.Namespace,
        number: int,
        scene: Scene,
    ) -> None:
        self._processes = processes
        self._watcher = watcher
        self._options = options
        self._number = number
        self._scene = scene
        self._answers = [] if options.interactive else list(scene.answers)
        self._questions: list[Any] = []
        self._grounding: Any = None
        self._last_words = ""
        self._said: list[str] = []  # the whole dialogue, for the picture
        self.began = False  # a request was made

    def play(self) -> str:
        """Play the scene; return "" or what was wrong with how it went."""
        watcher, scene = self._watcher, self._scene
        say(f"\nscene {self._number}: {scene.image.name}")
        watcher.show(scene.image.resolve())
        while not watcher.events.empty():
            watcher.events.get()
        watcher.attention = None
        if scene.say:
            request = scene.say
            self._speak(request)
        else:
            request = self._type("your request> ")
        self.began = bool(request)
        if not request:
            return ""
        self._listen()
        self._save()
        played = Played(
            tuple(question.text for question in self._questions),
            self._grounding is not None,
            self._last_words,
        )
        wanted, met = EXPECTATIONS[scene.expects]
        return "" if met(played) else f"scene {self._number} should {wanted}, but did not"

    def _speak(self, text: str) -> None:
        self._said.append(f"person: {text}")
        say(f"  person: {text}")
        self._processes.type_line("speech", text)

    def _type(self, prompt: str) -> str:
        """Have the person type a line and give it to the speech node; "" for nothing."""
        try:
            text = input(f"  {prompt}").strip()
        except EOFError:
            return ""
        if text:
            self._said.append(f"person: {text}")
            self._processes.type_line("speech", text)
        return text

    def _listen(self) -> None:
        """Follow the dialogue to its end: last words, or a question that nobody answers."""
        while True:
            heard = self._heard()
            self._grounding = next((m for kind, m in heard if kind == "grounding"), self._grounding)
            for question in [m for kind, m in heard if kind == "question"]:
                self._questions.append(question)
                self._said.append(f"robot: {question.text}")
                say(f"  robot:  {question.text}")
                if not self._reply():
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
        events = self._watcher.events
        self._watcher.wait(lambda: not events.empty(), "an answer of perception", REPLY_TIMEOUT)
        time.sleep(TOGETHER)
        heard = []
        while not events.empty():
            heard.append(events.get())
        return heard

    def _reply(self) -> bool:
        """Answer the question; False when there is nothing to say."""
        if self._answers:
            self._speak(self._answers.pop(0))
            return True
        if self._options.interactive:
            return bool(self._type("your answer> "))
        return False

    def _give_up(self) -> None:
        say("  (no more answers here, so the dialogue is closed)")
        self._watcher.transition("deactivate")
        self._watcher.transition("activate")
        seen = self._watcher.perception_sees
        self._watcher.wait(
            lambda: self._watcher.perception_sees > seen, "a picture after activation", 30.0
        )

    def _save(self) -> None:
        image = load_image(self._scene.image)
        box = None
        attention = self._watcher.attention
        peaks = [Peak(_box(o.box), 1.0) for q in self._questions[-1:] for o in q.candidates]
        if self._grounding is not None:
            box, peaks = _box(self._grounding.target.box), []
            attention = self._grounding.ambiguity.attention_map
            say(
                f"  box:    x {box.x_min:.0f} to {box.x_max:.0f}, "
                f"y {box.y_min:.0f} to {box.y_max:.0f} "
                f"of {image.shape[1]}x{image.shape[0]} px; {self._grounding.target.label!r}, "
                f"score {self._grounding.target.score:.2f}, "
                f"ambiguity {self._grounding.ambiguity.probability:.2f}"
            )
        drawn = draw(
            image,
            attention=None if attention is None else float_map(attention),
            peaks=peaks,
            box=box,
            caption="\n".join(self._said),
        )
        path = self._options.out / f"scene_{self._number}_{self._scene.image.stem}.png"
        Pillow.fromarray(drawn).save(path)
        say(f"  picture: {path}")


def _box(message: Any) -> Box:
    return Box(message.x_min, message.y_min, message.x_max, message.y_max)


if __name__ == "__main__":
    sys.exit(main())
