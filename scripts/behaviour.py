#!/usr/bin/env python3
# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Record what the system does, and compare two recordings: a net for a refactoring.

    scripts/run python scripts/behaviour.py record OUT.json [--parts replies cli ros help]
    scripts/run python scripts/behaviour.py compare BEFORE.json AFTER.json [--ignore PATTERN]

`record` works on the checkout that is the current folder, whichever one this script lies in. It
uses only what a user sees: the Python API, the console scripts of setup.py, the ROS graph.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import importlib.util
import io
import json
import math
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from itertools import zip_longest
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

ROOT = Path.cwd()
SETUP = (ROOT / "setup.py").read_text("utf-8") if (ROOT / "setup.py").is_file() else ""
SCRIPTS = dict(re.findall(r'"([\w-]+) = ([\w.]+:\w+)"', SETUP))
START = [sys.executable, str(Path(__file__).resolve()), "start"]
sys.path[0] = str(ROOT)  # before an editable install, and instead of this script's own folder
WORKERS = 2
TIMEOUT = 120.0  # seconds for a node to start, or to end

Record = dict[str, Any]

# ------------------------------------------------------------------------------------- replies

MODELS, POLICIES, REQUESTS = ("household",), ("detector", "decoder", "both"), 200
INVIG = "test/data/invig_new/images/table"
PICTURES = {  # and what may be said to be in each
    "demo/mugs.png": "black mug, purple mug, red cup, pink mug",
    "demo/photos/coffee.jpg": "white cup, red plate, silver spoon",
    "demo/five_blocks.png": "purple block, green block, orange block, yellow cube",
    "demo/photos/cutlery.jpg": "silver fork, grey knife, silver spoon",
    "demo/bananas_plate.png": "white plate, yellow banana, green banana, grey card",
    "demo/photos/tweezers.jpg": "red tweezers, black tool, silver tweezers",
    "demo/ball_block_can.png": "yellow ball, blue cylinder, red block",
    "demo/photos/spoons.jpg": "silver spoon, black spoon, grey spoon",
    f"{INVIG}-04.jpg": "yellow ball, green ball, blue block, yellow can",
    "demo/photos/cup_and_saucer.jpg": "white cup, white plate, white bowl",
    "demo/yellow_blocks.png": "yellow block, green block, yellow cube",
    "demo/photos/pan.jpg": "black pan, brown handle",
    f"{INVIG}-08.jpg": "white block, blue cube, purple block",
    "demo/photos/hammer_blue.jpg": "brown hammer, wooden handle",
    "demo/photos/teacup.jpg": "white cup, yellow plate",
    f"{INVIG}-09.jpg": "blue cylinder, blue block, yellow cylinder",
    "demo/photos/spray_bottle.jpg": "red bottle, white nozzle",
    "demo/photos/volleyball.jpg": "blue ball, yellow ball",
    "demo/photos/cat.jpg": "brown cat, green eye",
}
TEMPLATES = (
    *("{verb} the {noun}", "{verb} the {color} {noun}", "{verb} the {side} {noun}"),
    *("{verb} the {color} one", "{verb} the {size} {noun}"),
    *("{verb} the {order} {noun} from the {end}", "{verb} the {absent}"),
    *("{verb} the {noun} {relation} the {other}", "{verb} a {noun}"),
    *("{verb} the {noun} on the {end}", "{verb} the {noun} that is not {color}"),
    *("{verb} both {noun}s", "{verb} teh {slip} {typo}", "{verb} the {thing}"),
    *("{verb} the {side} {color} {noun} please", "{color} {noun}", "{verb} the turquoise {noun}"),
)
WORDS = {
    "verb": "pick up,hand me,give me,take,grab,i need,can you bring me,point at",
    "side": "left,rightmost,upper,lower left,middle,front,leftmost,right",
    "end": "left,right,top,bottom",
    "size": "big,smallest,larger,tall,little",
    "order": "first,second,third,last,fourth",
    "relation": "next to,left of,behind,on,to the right of,in front of,between",
    "absent": "hammer,lemon,blue mug,green block,fork,bottle,elephant,scissors",
    "thing": "thing,one,object,item,other one,whatsit,red thing",
}
ANSWERS = ("the left one", "the {color} one", "yes", "no", "the {other}", "the second one", "")
ODD = (
    *("", "   ", "\n\t", "?!", "a", "0", "it", "none", "x" * 1001, "pick up the block " * 55),
    *("<loc0001>", "pick up <loc0001><loc0002><loc0003><loc0004>", "<image> the mug"),
    *("pick up the mug<eos>", "PICK UP THE BLOCK", "pick  up\nthe\tball", "ramasse la tasse"),
    *("\u30de\u30b0\u3092\u53d6\u3063\u3066", "\U0001f600 the mug", "\u200bpick up the ball"),
    *("assistant: which one? user: the left one", "the block \ud800", "pickupthemug", "pick up"),
)
UNASKED = "which one do you mean?"  # before an answer, where the robot did not ask


def requests(count: int) -> list[Record]:
    """Make the fixed list of requests, with every sort of them among the first few."""
    made: list[Record] = []
    for i in range(count):
        picture = list(PICTURES)[i % len(PICTURES)]
        things, turn = PICTURES[picture].split(", "), i // len(PICTURES)
        color, noun = things[turn % len(things)].split()
        words = {k: v.split(",")[(i + turn) % len(v.split(","))] for k, v in WORDS.items()}
        words |= {"color": color, "noun": noun, "other": things[(turn + 1) % len(things)]}
        words |= {"slip": color[1] + color[0] + color[2:], "typo": noun[0] + noun[2:]}
        text = ODD[i // 8 % len(ODD)] if i % 8 == 5 else TEMPLATES[i % len(TEMPLATES)]
        answer = ANSWERS[i // 5 % len(ANSWERS)].format(**words) if i % 5 == 3 else None
        text = text.format(**words)
        made.append({"text": text, "picture": picture, "answer": answer, "force": i % 9 == 4})
    return made


def replies(count: int) -> dict[str, Record]:
    """Reply to all requests with every model and policy."""
    jobs = [(model, policy, count) for model in MODELS for policy in POLICIES]
    with ProcessPoolExecutor(WORKERS) as pool:
        return {key: record for made in pool.map(_replies, jobs) for key, record in made.items()}


def _replies(job: tuple[str, str, int]) -> dict[str, Record]:
    import numpy as np
    import torch
    from PIL import Image

    from clue_ros.engine import Clue

    model, policy, count = job
    torch.set_num_threads(1)  # several wait for each other where somebody else computes, too
    clue: Any = Clue.load(model, policy=policy, device="cpu")
    views: dict[str, Any] = {}
    made: dict[str, Record] = {}
    for number, asked in enumerate(requests(count)):
        name, text = asked["picture"], _plain(asked["text"])
        if name not in views:
            views[name] = clue.look(np.asarray(Image.open(ROOT / name).convert("RGB")))
        record = {**asked, "title": " ".join(text.split())[:60], "text": text}
        made[f"{model}/{policy}/{number:03d}"] = record | {"turns": _talk(clue, views[name], asked)}
    for bad in (np.zeros((4, 4), np.uint8), np.zeros((4, 4, 3)), np.zeros((0, 4, 3), np.uint8)):
        looked = _tried(partial(_looked, clue, bad))
        made[f"{model}/{policy}/picture {bad.shape} {bad.dtype}"] = looked
    return made


def _looked(clue: Any, picture: Any) -> Record:
    view = clue.look(picture)
    return {"size": [view.width, view.height]}


def _talk(clue: Any, view: Any, asked: Record) -> list[Record]:
    """Reply to a request, and to the answer where there is one, whether or not the robot asked."""
    from clue_ros.dialogue import Dialogue, Question

    said: list[Any] = []

    def reply(force: bool) -> Record:
        said.append(clue.reply(view, said[0], force_grounding=force))
        return described(said[-1])

    def first() -> Record:
        said.append(Dialogue(asked["text"]))
        return reply(asked["force"] and asked["answer"] is None)

    def second() -> Record:
        said[0].add_question(said[1].text if isinstance(said[1], Question) else UNASKED)
        said[0].add_answer(asked["answer"])
        return reply(asked["force"])

    turns = [_tried(first)]
    if asked["answer"] is not None and "error" not in turns[0]:
        turns.append(_tried(second))
    return turns


def _tried(step: Callable[[], Record]) -> Record:
    try:
        return step()
    except Exception as error:  # noqa: BLE001 - whatever is raised is what is recorded
        code = getattr(error, "code", None)
        return {"error": type(error).__name__, "code": code, "message": _plain(str(error))}


def described(reply: Any) -> Record:
    """Describe a reply in plain data."""
    from clue_ros.dialogue import Grounding, NotFound

    estimate, attention = reply.ambiguity, reply.ambiguity.attention
    record: Record = {"type": type(reply).__name__, "is_ambiguous": bool(estimate.is_ambiguous)}
    if isinstance(reply, Grounding):
        record |= {"box": _corners(reply.box), "label": reply.label, "score": _number(reply.score)}
        passed: Any = getattr(reply, "intermediate_boxes", ()) or getattr(reply, "via", ())
        record["via"] = [_corners(box) for box in passed]
    else:
        record |= {"text": reply.text, "suggested_answers": list(reply.suggested_answers)}
        record["candidates"] = [_corners(box) for box in reply.candidates]
    if isinstance(reply, NotFound):
        record["missing"] = reply.missing
    record |= {name: _number(getattr(estimate, name)) for name in ("probability", "threshold")}
    record["peaks"] = [
        {"box": _corners(p.box), "score": _number(p.score), "point": [*map(_number, p.point or ())]}
        for p in estimate.peaks
    ]
    record["attention"] = {"dtype": str(attention.dtype), "shape": list(attention.shape)}
    record["attention"] |= {"sum": _number(attention.sum()), "argmax": int(attention.argmax())}
    return record


def _corners(box: Any) -> list[float | None]:
    return [_number(value) for value in (box.x_min, box.y_min, box.x_max, box.y_max)]


def _number(value: Any) -> float | None:
    return None if math.isnan(value) else round(float(value), 6)


# ----------------------------------------------------------------------------------------- cli

MUG, FIVE, BALL = "demo/mugs.png", "demo/five_blocks.png", "demo/ball_block_can.png"
GROUND = f"""
{MUG} "pick up the black mug"
{MUG} "pick up the black mug" --json
{MUG} "pick up the mug"
{MUG} "pick up the mug" --json --answer "the black one"
{MUG} "pick up the mug" --answer "the black one" --answer yes --answer no
{BALL} "hand me the green block" --json
{BALL} "hand me the green block" --answer "the yellow ball" --save <tmp>/out.png
{FIVE} "take the block" --json --policy detector
{FIVE} "take the block" --json --policy decoder --answer "the green one"
{FIVE} "take the orange block" --json --model models/household --answer "the left one"
{FIVE} "the second block from the left" --json --threshold 1
{FIVE} "the green block" --json --threshold 0 --max-turns 1 --answer yes
{FIVE} "take the block" --json --max-turns 0 --save <tmp>/forced.jpg
{FIVE} "take <loc0001> the block" --json --device cpu --dtype float32
{FIVE} "take the block" --json --detector candidate-count
{FIVE} ""
{FIVE} "?!"
{FIVE} {"x" * 1001}
{FIVE}
nosuch.png "take the block"
demo "take the block"
setup.py "take the block"
"""
REFUSED_OPTIONS = (
    *("--detector nosuch", "--model nosuch", "--device nosuch", "--dtype nosuch", "--nosuch"),
    *("--policy nosuch", "--threshold 1.5", "--threshold much", "--max-turns -1", "--answer ''"),
    *("--save <tmp>/out.txt", "--save <tmp>/nosuch/out.png"),
)


def cli(_count: int) -> dict[str, Record]:
    """Run `clue` on good and bad input."""
    lines = [f"ground {line}" for line in GROUND.strip().splitlines()]
    lines += [f'ground {FIVE} "take the block" {option}' for option in REFUSED_OPTIONS]
    lines += ["", "nosuch", "eval", "eval nosuch", "--version"]
    with ThreadPoolExecutor(WORKERS) as pool:
        return {f"{i:02d}": record for i, record in enumerate(pool.map(_ran, lines))}


def _ran(line: str) -> Record:
    from PIL import Image

    with tempfile.TemporaryDirectory() as folder:
        words = [word.replace("<tmp>", folder) for word in shlex.split(line)]
        record = {"title": f"clue {line}"[:100], **_run("clue", *words, folder=folder), "saved": {}}
        with contextlib.suppress(ValueError):
            record["stdout"] = [json.loads(line) for line in record["stdout"].splitlines()]
        for path in sorted(Path(folder).iterdir()):
            picture = Image.open(path).convert("RGB")
            small = picture.resize((2, 2), Image.Resampling.BOX)
            record["saved"][path.name] = {"size": picture.size, "colors": list(small.tobytes())}
    return record


def _run(*words: str, folder: str = "") -> Record:
    """Run a console script; return its exit status and what it says."""
    done = subprocess.run([*START, *words], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True)
    out, err = (
        _plain(said.decode(errors="replace"), folder) for said in (done.stdout, done.stderr)
    )
    return {"exit": done.returncode, "stdout": out, "stderr": err}


def _plain(text: str, folder: str = "") -> str:
    """Take out of a text this machine's folders, and characters that UTF-8 cannot write."""
    for path, name in ((folder, "<tmp>"), (sys.prefix, "<prefix>"), (str(ROOT), "<root>")):
        text = text.replace(path, name) if path else text
    return text.encode("utf-8", "backslashreplace").decode()


def start(words: list[str]) -> int:
    """Run a console script of setup.py; with CLUE_QOS_LOG, log the QoS of all that it makes."""
    if words[0] not in SCRIPTS:
        sys.exit(f"behaviour: setup.py has no console script {words[0]}")
    module, function = SCRIPTS[words[0]].split(":")
    sys.argv = words
    if os.environ.get("CLUE_QOS_LOG"):
        from rclpy.node import Node

        for kind in ("publisher", "subscription"):
            setattr(Node, f"create_{kind}", _logged(kind, getattr(Node, f"create_{kind}")))
    return int(getattr(importlib.import_module(module), function)() or 0)


def _logged(kind: str, make: Callable[..., Any]) -> Callable[..., Any]:
    def create(*args: Any, **options: Any) -> Any:
        made = make(*args, **options)
        qos = {
            k: getattr(made.qos_profile, k).name for k in ("history", "reliability", "durability")
        }
        qos["depth"] = made.qos_profile.depth
        with open(os.environ["CLUE_QOS_LOG"], "a", encoding="utf-8") as file:
            print(json.dumps([f"{kind}{made.topic_name}", qos]), file=file)
        return made

    return create


# ----------------------------------------------------------------------------------------- ros

NODES = {
    "perception": "perception_node --ros-args -p autostart:=true",
    "speech": "speech_node --ros-args -p autostart:=true",
    "tts": "tts_node --ros-args -p autostart:=true",
    "image_source": f"image_source_node --ros-args -p source:={MUG}",
    "grasp_example": "grasp_example_node",
    "console": "console_node --ros-args -p port:=0",
}
REFUSED_NODES = (
    "image_source_node",
    "perception_node --ros-args -p threshold:=2.0",
    "speech_node --ros-args -p engine:=nosuch",
)


def ros(_count: int) -> dict[str, Record]:
    """Start every node as a process and look at it from outside; read the interfaces."""
    made: dict[str, Record] = {}
    for path in sorted((ROOT / "clue_msgs").glob("*/*")):
        if path.suffix in (".msg", ".srv", ".action"):
            made[f"interfaces/{path.parent.name}/{path.name}"] = {"text": path.read_text("utf-8")}
    with _domain(), tempfile.TemporaryDirectory() as folder:
        for number, line in enumerate(REFUSED_NODES):
            made[f"refused/{number}"] = {"title": line, **_run(*line.split())}
        running = {name: _Node(name, line, Path(folder)) for name, line in NODES.items()}
        try:
            made |= _graph(running)
        finally:
            for name, node in running.items():
                made[f"{name}/process"] = made.get(f"{name}/process", {}) | node.stop()
    return made


@contextlib.contextmanager
def _domain() -> Iterator[None]:
    """Take a DDS domain that no test (test/ros_helpers.py) and no other recording has."""
    os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
    os.environ["ROS_LOCALHOST_ONLY" if os.environ.get("ROS_DISTRO") == "humble" else "_"] = "1"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as lock:
        for domain in range(1, 102):
            with contextlib.suppress(OSError):
                lock.bind(f"\0clue_ros_test_domain_{domain}")
                break
        os.environ["ROS_DOMAIN_ID"] = str(domain)
        yield


class _Node:
    """A node in a process of its own, with what it says and the QoS of what it makes in files."""

    def __init__(self, name: str, line: str, folder: Path) -> None:
        self._log, self._qos = folder / f"{name}.log", folder / f"{name}.qos"
        self._qos.touch()
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*START, *line.split()],
                cwd=ROOT,
                stdin=subprocess.PIPE,  # open: speech waits for typed lines
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "CLUE_QOS_LOG": str(self._qos)},
            )

    def qos(self) -> dict[str, Record]:
        """Return the QoS of each topic that it publishes or subscribes."""
        return dict(json.loads(line) for line in self._qos.read_text("utf-8").splitlines())

    def stop(self) -> Record:
        """End it as Ctrl-C does; return its exit status, and in order what it said."""
        self.process.send_signal(signal.SIGINT)
        try:
            status: int | str = self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = f"does not end within {TIMEOUT:g} s"
        said = re.sub(r"\[\d{9,}\.\d+\]", "[time]", _plain(self._log.read_text("utf-8", "replace")))
        said = re.sub(r"\b\d+(\.\d+)? (s|ms|MB|seconds)\b", r"# \2", said)
        return {"exit": status, "said": sorted(said.splitlines())}


def _graph(running: dict[str, _Node]) -> dict[str, Record]:
    """Return what there is of all nodes once nothing changes any more."""
    import rclpy

    rclpy.init()
    watcher = rclpy.create_node("watcher")
    try:
        made = {f"{k}/process": {"state": _state(watcher, k, node)} for k, node in running.items()}
        before: dict[str, Record] = {}
        for _ in range(20):
            time.sleep(1.0)
            now = {k: r for name, node in running.items() for k, r in _seen(watcher, name, node)}
            if now == before:
                break
            before = now
        for name, node in running.items():
            if node.process.poll() is None:
                made |= {f"{name}/parameter/{p}": r for p, r in _parameters(watcher, name).items()}
        return made | before
    finally:
        watcher.destroy_node()
        rclpy.shutdown()


def _call(watcher: Any, kind: Any, name: str, **fields: Any) -> Any:
    """Call a service and return its response; None when none comes."""
    import rclpy

    client = watcher.create_client(kind, name)
    try:
        if not client.wait_for_service(TIMEOUT):
            return None
        future = client.call_async(kind.Request(**fields))
        rclpy.spin_until_future_complete(watcher, future, timeout_sec=10.0)
        return future.result()
    finally:
        watcher.destroy_client(client)


def _state(watcher: Any, name: str, node: _Node) -> str:
    """Wait until a node is there, and active if it is a managed one; return its state."""
    from lifecycle_msgs.srv import GetState

    state, end = "missing", time.monotonic() + TIMEOUT
    while time.monotonic() < end and node.process.poll() is None and state != "active":
        time.sleep(0.3)
        services: dict[str, Any] = {}
        if name in watcher.get_node_names():
            services = dict(watcher.get_service_names_and_types_by_node(name, "/"))
        if f"/{name}/get_state" in services:
            response = _call(watcher, GetState, f"/{name}/get_state")
            state = response.current_state.label if response else "silent"
        elif f"/{name}/set_parameters_atomically" in services:
            return "not managed"
    return state


def _seen(watcher: Any, name: str, node: _Node) -> Iterator[tuple[str, Record]]:
    """Yield what a node offers and takes, each with its type."""
    from rclpy import action

    if name not in watcher.get_node_names():
        return
    qos = node.qos()
    for kind, listed in (
        ("publisher", watcher.get_publisher_names_and_types_by_node),
        ("subscription", watcher.get_subscriber_names_and_types_by_node),
        ("service", watcher.get_service_names_and_types_by_node),
        ("client", watcher.get_client_names_and_types_by_node),
        ("action", partial(action.get_action_server_names_and_types_by_node, watcher)),
        ("action client", partial(action.get_action_client_names_and_types_by_node, watcher)),
    ):
        for topic, types in listed(name, "/"):
            yield f"{name}/{kind}{topic}", {"type": types} | qos.get(f"{kind}{topic}", {})


def _parameters(watcher: Any, node: str) -> dict[str, Record]:
    from rcl_interfaces.srv import DescribeParameters, GetParameters, ListParameters
    from rclpy.parameter import Parameter, parameter_value_to_python

    names = sorted(_call(watcher, ListParameters, f"/{node}/list_parameters").result.names)
    told = _call(watcher, DescribeParameters, f"/{node}/describe_parameters", names=names)
    values = _call(watcher, GetParameters, f"/{node}/get_parameters", names=names).values
    return {
        d.name: {
            "type": Parameter.Type(d.type).name,
            "value": parameter_value_to_python(value),
            "description": d.description,
            "constraints": d.additional_constraints,
            "range": [
                [r.from_value, r.to_value] for r in (*d.integer_range, *d.floating_point_range)
            ],
            "read_only": d.read_only,
        }
        for d, value in zip(told.descriptors, values, strict=True)
    }


# ---------------------------------------------------------------------------------------- help


def helps(_count: int) -> dict[str, Record]:
    """Read the help of all commands, and the arguments and nodes of the launch file."""
    made = {"demo": {"title": "demo --help", **_run("demo", "--help")}}
    module, function = SCRIPTS["clue"].split(":")
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        words = waiting.pop()
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status = getattr(importlib.import_module(module), function)([*words, "--help"])
            except SystemExit as end:
                status = end.code
        if " COMMAND ..." in out.getvalue().partition("\n")[0]:
            waiting += [(*words, name) for name in re.findall(r"(?m)^  (\w+) ", out.getvalue())]
        title = " ".join(("clue", *words))
        texts = {"stdout": _plain(out.getvalue()), "stderr": _plain(err.getvalue())}
        made[title] = {"title": f"{title} --help", "exit": status, **texts}
    return made | _launch()


def _launch() -> dict[str, Record]:
    """Run the launch file with stand-ins for launch and launch_ros, which not all machines have."""
    made: dict[str, Record] = {}
    given: dict[str, str] = {}

    def argument(name: str, default_value: str = "", description: str = "") -> None:
        given[name] = default_value
        told = {"default": _plain(default_value), "description": description}
        made[f"launch argument {name}"] = told

    def node(**options: Any) -> None:
        record = json.loads(_plain(json.dumps(options, default=repr)))
        made[f"launch node {options['name']}"] = record

    def substitution(name: str) -> Any:
        return SimpleNamespace(perform=lambda _context: given[name])

    launch = mock.MagicMock(
        DeclareLaunchArgument=argument,
        LaunchConfiguration=substitution,
        LaunchDescription=list,
        LifecycleNode=node,
        Node=node,
        OpaqueFunction=lambda function: function,
        ParameterValue=lambda value, **_: value,
    )
    modules = (
        "launch",
        "launch.actions",
        "launch.substitutions",
        "launch_ros",
        "launch_ros.actions",
        "launch_ros.parameter_descriptions",
    )
    for path in sorted((ROOT / "launch").glob("*.launch.py")):
        with mock.patch.dict(sys.modules, dict.fromkeys(modules, launch)):
            spec = importlib.util.spec_from_file_location("launch_file", path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            steps = module.generate_launch_description()
            given |= {"voice": "true", "model": "household", "language": "fr-FR"}
            for step in filter(callable, steps):
                step(SimpleNamespace(environment={}, launch_configurations={}))
    return made


# ---------------------------------------------------------------------------- record and compare

PARTS: dict[str, Callable[[int], dict[str, Record]]] = {
    "replies": replies, "cli": cli, "ros": ros, "help": helps,
}  # fmt: skip
NUMBER, PIXELS = 1e-4, 0.05  # how far apart two equal numbers may be
IN_PIXELS = {"box", "via", "candidates", "point"}  # fields


def record(out: Path, parts: list[str], count: int) -> int:
    """Record parts of the behaviour of the checkout that is the current folder."""
    spec = importlib.util.find_spec("clue_ros")
    if spec is None or not str(spec.origin).startswith(f"{ROOT}{os.sep}") or not SCRIPTS:
        print("behaviour: run this in the root folder of a checkout of clue_ros", file=sys.stderr)
        return 2
    os.environ |= {"COLUMNS": "80", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    made: dict[str, Any] = {"requests": count, "parts": {}}
    for part in parts:
        begin = time.monotonic()
        made["parts"][part] = PARTS[part](count)
        seconds = time.monotonic() - begin
        print(f"{part}: {len(made['parts'][part])} records, {seconds:.0f} s", file=sys.stderr)
        out.write_text(json.dumps(made, indent=1, sort_keys=True), encoding="utf-8")
    return 0


def compare(before: Path, after: Path, ignore: list[str]) -> int:
    """Print each difference of two recordings in one line; return 1 if there is one."""
    old, new = (json.loads(path.read_text(encoding="utf-8")) for path in (before, after))
    most, found, counts = min(old["requests"], new["requests"]), 0, Counter[str]()
    for part in (p for p in PARTS if p in old["parts"] or p in new["parts"]):
        one, other = old["parts"].get(part), new["parts"].get(part)
        if one is None or other is None:
            print(f"not compared: {part}, which only one of the two has")
            continue
        for key in sorted({*one, *other}):
            number = key.rpartition("/")[2]
            if part == "replies" and number.isdecimal() and int(number) >= most:
                continue  # fewer were recorded once
            counts[part] += 1
            path, pair = f"{part}/{key}", (one.get(key), other.get(key))
            title = next((f' "{r["title"]}"' for r in pair if r and "title" in r), "")
            for field, a, b in _differences(*pair, (), counts):
                full = "/".join((path, *field))
                if not any(fnmatch.fnmatch(name, i) for i in ignore for name in (path, full)):
                    found += 1
                    print(f"{path}{title}: {'.'.join(field) or 'record'} {a} -> {b}")
    values = counts.pop("values", 0)
    told = ", ".join(f"{number} of {part}" for part, number in counts.items())
    print(f"compared {told or 'nothing'}; {values} values; {found} differences")
    return int(found > 0 or not counts)


def _differences(
    a: Any, b: Any, field: tuple[str, ...], counts: Counter[str]
) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Yield where two values differ, with both as text."""
    if isinstance(a, dict) and isinstance(b, dict):
        for name in sorted({*a, *b}):
            yield from _differences(a.get(name), b.get(name), (*field, name), counts)
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for i, pair in enumerate(zip(a, b, strict=True)):
            yield from _differences(*pair, (*field, str(i)), counts)
    else:
        counts["values"] += 1
        if not _equal(a, b, NUMBER if IN_PIXELS.isdisjoint(field) else PIXELS):
            yield field, *_shown(a, b)


def _equal(a: Any, b: Any, tolerance: float) -> bool:
    if all(isinstance(v, int | float) and not isinstance(v, bool) for v in (a, b)):
        return bool(abs(a - b) <= tolerance * 1.001)
    return type(a) is type(b) and bool(a == b)


def _shown(a: Any, b: Any) -> tuple[str, str]:
    """Return two values as text, of long texts only the first lines that differ."""
    if isinstance(a, str) and isinstance(b, str) and "\n" in a.strip() + b.strip():
        lines = zip_longest(a.splitlines(), b.splitlines())
        a, b = next((pair for pair in lines if pair[0] != pair[1]), (a, b))
    return _short(a), _short(b)


def _short(value: Any) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else repr(value)
    text = f"{len(value)} items {text}" if isinstance(value, list) else text
    return text if len(text) <= 160 else f"{text[:157]}..."


def main() -> int:
    """Run one command; return the exit status."""
    if sys.argv[1:2] == ["start"]:  # what `record` runs in processes of their own
        return start(sys.argv[2:])
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    made = commands.add_parser("record", help="record the checkout that is the current folder")
    made.add_argument("out", type=Path, metavar="OUT.json")
    made.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="only these")
    made.add_argument("--requests", type=int, default=REQUESTS, metavar="N", help="only the first")
    both = commands.add_parser("compare", help="compare two recordings; exit status 1: they differ")
    both.add_argument("before", type=Path, metavar="BEFORE.json")
    both.add_argument("after", type=Path, metavar="AFTER.json")
    ignore = both.add_argument("--ignore", action="append", default=[], metavar="PATTERN")
    ignore.help = "leave out keys, such as 'ros/*/parameter/num_views' or 'replies/*/turns/*/score'"
    args = parser.parse_args()
    if args.command == "record":
        return record(args.out, args.parts, args.requests)
    return compare(args.before, args.after, args.ignore)


if __name__ == "__main__":
    sys.exit(main())
