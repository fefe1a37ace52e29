# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Start clue_ros on a robot: ros2 launch clue_ros clue.launch.py image:=/camera/image_raw.

Perception is a managed node; its parameter `autostart`, set here, has it configured and activated
at every start of its process. `ros2 launch clue_ros clue.launch.py -s` lists the arguments.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from ament_index_python.packages import (
    PackageNotFoundError,
    get_package_prefix,
    get_package_share_directory,
)
from launch.actions import DeclareLaunchArgument, LogInfo, OpaqueFunction, SetEnvironmentVariable
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import LifecycleNode, Node
from launch_ros.parameter_descriptions import ParameterValue

from clue_ros.nodes.viewer_layouts import FRAME, write_layouts
from launch import Action, LaunchContext, LaunchDescription

FILE_NAME = "clue.launch.py"
SHARE = get_package_share_directory("clue_ros")
PROFILES = ("FASTDDS_DEFAULT_PROFILES_FILE", "FASTRTPS_DEFAULT_PROFILES_FILE")
LARGE, SMALL = (os.path.join(SHARE, "config", f"{n}.xml") for n in ("fastdds", "fastdds_small"))
ASK_AGAIN_AFTER = "12.0"  # seconds of silence, with voice:=true


class Rule(NamedTuple):
    """The values that an argument may have, in words and as a check."""

    words: str
    allows: Callable[[str], object]


def one_of(*values: str) -> Rule:
    """Allow these values."""
    return Rule(", ".join(values[:-1]) + f" or {values[-1]}", values.__contains__)


def like(words: str, pattern: str) -> Rule:
    """Allow a value that the pattern matches as a whole."""
    return Rule(words, re.compile(pattern).fullmatch)


def number(words: str, low: float, high: float, special: float | None = None) -> Rule:
    """Allow a number from low to high, or the special one."""

    def allows(text: str) -> bool:
        try:
            value = float(text)
        except ValueError:
            return False
        return low <= value <= high or value == special

    return Rule(words, allows)


# As in launch's own conditions: capitals do not matter, 1 and 0 count too.
TRUTH = like("true or false", "(?i)true|false|1|0")
DEVICE = like("auto, cpu, cuda, cuda:0, ...", r"auto|cpu|(cuda|mps|xpu)(:\d+)?")
TRANSPORT = one_of("raw", "compressed")
TOPIC = like("a topic, such as /camera/image_raw", r"(~?/)?[A-Za-z_]\w*(/[A-Za-z_]\w*)*")
NAMESPACE = like("a namespace, such as left_arm", r"/|/?[A-Za-z_]\w*(/[A-Za-z_]\w*)*")
SECONDS = Rule(
    "seconds, from 0 to 3600",
    lambda text: re.fullmatch(r"\d+(\.\d*)?|\.\d+", text) and float(text) <= 3600,
)
PROBABILITY = number("0 to 1, or -1", 0.0, 1.0, -1.0)
METRES = number("metres, from 0.000001 to 1", 1e-6, 1.0)
QUESTIONS = Rule("0 to 20", lambda text: text.isdecimal() and int(text) <= 20)
RELIABILITY = one_of("auto", "reliable", "best_effort")
LANGUAGE = like("a tag, such as en-US", "[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*")
LISTENS_TO = Rule(
    "microphone, topic, or an existing audio file or folder",
    lambda text: text in ("microphone", "topic") or os.path.exists(text),
)
FILE = Rule("an existing file", os.path.isfile)
FRAME_ID = like("a frame, such as camera_color_optical_frame", "[A-Za-z_][A-Za-z0-9_/]*")
HOST = like("a host name or an address, such as 0.0.0.0", r"[A-Za-z0-9.:_-]+")
PORT = Rule("0 to 65535", lambda text: text.isdecimal() and int(text) <= 65535)
LEVEL = like("debug, info, warn, error or fatal", "(?i)debug|info|warn|error|fatal")
ANY = Rule("anything", lambda _text: True)

# name, default, what it is, what it may be. An empty default leaves the value of the parameter
# file, and an empty value is allowed where the default is empty.
ARGUMENTS = (
    ("model", "", "household (embedded), a folder, a hub id, or wrapper", ANY),
    (
        "candidates",
        "",
        "with model:=wrapper, sources of boxes: base:household, topic:NAME, ... (docs/wrapper.md)",
        ANY,
    ),
    (
        "language_model",
        "",
        "with model:=wrapper, who chooses among boxes: a hub id, a folder, a .gguf file",
        ANY,
    ),
    ("device", "", "auto, cpu, cuda, cuda:1, ...", DEVICE),
    ("image", "image", "the camera's topic, such as /camera/image_raw", TOPIC),
    ("image_transport", "", "raw, or compressed for <image>/compressed", TRANSPORT),
    (
        "reliability",
        "",
        "of image, depth and camera_info: auto, reliable, best_effort",
        RELIABILITY,
    ),
    ("threshold", "", "probability of ambiguity from which it asks; -1: the model's", PROBABILITY),
    ("max_questions", "", "questions in one dialogue, 0 to 20", QUESTIONS),
    ("masks", "", "true: give each object its mask", TRUTH),
    ("depth", "depth", "the topic of depth registered to the image, for 3D poses", TOPIC),
    ("depth_unit", "", "metres of a count of a 16-bit depth image: 0.001, 0.000125, ...", METRES),
    (
        "target_frame",
        "",
        "frame that poses are published in, through tf2: base_link, ...",
        FRAME_ID,
    ),
    (
        "camera_info",
        "",
        "the camera's calibration; empty: camera_info beside the image",
        TOPIC,
    ),
    ("speech", "speech", "the topic of what people say", TOPIC),
    ("say", "say", "the topic of what the robot says", TOPIC),
    ("voice", "false", "true: listen (the speech node) and speak (the tts node)", TRUTH),
    (
        "ask_again_after",
        "",
        "seconds of silence until a question is asked once more; 0: never",
        SECONDS,
    ),
    (
        "speech_source",
        "microphone",
        "what voice:=true listens to: microphone, topic, or files",
        LISTENS_TO,
    ),
    ("audio", "audio", "the topic of sound, with speech_source:=topic", TOPIC),
    ("language", "", "of speech, of the robot's sentences and voice: en-US, fr-FR, ...", LANGUAGE),
    ("record", "", "a folder to keep every dialogue in, to learn from (docs/episodes.md)", ANY),
    ("console", "false", "true: serve the operator's page (docs/console.md)", TRUTH),
    ("console_host", "", "the page's address; 0.0.0.0: every network of this machine", HOST),
    ("console_port", "", "the page's port", PORT),
    ("console_token", "", "the page's secret; empty: made up where it is needed, see the log", ANY),
    ("namespace", "", "a namespace for all nodes", NAMESPACE),
    (
        "params_file",
        os.path.join(SHARE, "config", "clue.yaml"),
        "every parameter of every node",
        FILE,
    ),
    (
        "autostart",
        "true",
        "true: load the model and look at once; false: wait for a manager",
        TRUTH,
    ),
    (
        "use_sim_time",
        "",
        "true: the time of /clock (a bag played with --clock, a simulator)",
        TRUTH,
    ),
    ("respawn", "true", "true: start a node again when it dies", TRUTH),
    ("log_level", "info", "debug, info, warn, error, fatal", LEVEL),
    ("rviz", "false", "true: open RViz on the topics of these arguments", TRUTH),
    ("foxglove", "false", "true: start foxglove_bridge, and write a layout for Foxglove", TRUTH),
    ("frame", FRAME, "the fixed frame of RViz and Foxglove", FRAME_ID),
)

RESPAWN_DELAY = 0.5  # seconds
# Arguments for perception, if given: texts as they are, the others with their parameters.
PASSED_ON = (
    *("model", "candidates", "language_model", "device", "image_transport", "record"),
    "target_frame",
)
CONVERTED: dict[str, tuple[str, Callable[[str], Any]]] = {
    "reliability": ("image_reliability", str),
    "threshold": ("threshold", float),
    "max_questions": ("max_questions", int),
    "masks": ("masks", lambda text: is_true(text)),
    "depth_unit": ("depth_unit", float),
}
# ros2 launch that gets SIGTERM ends without its nodes (launch says "can result in orphaned
# processes"): the kernel then sends them SIGTERM too.
END_WITH_LAUNCH = "setpriv --pdeathsig TERM"


class ArgumentError(RuntimeError):
    """An argument has a value that it cannot have; ros2 launch prints the message and ends."""


def check_names() -> None:
    """Raise ArgumentError for an argument on the command line that this file does not have.

    Where another launch file includes this one, the command line is that file's.
    """
    files = [n for n, word in enumerate(sys.argv) if os.path.basename(word) == FILE_NAME]
    names = [argument[0] for argument in ARGUMENTS]
    for word in sys.argv[files[0] + 1 :] if files else []:
        name, given, _ = word.partition(":=")
        if given and name not in names and not name.startswith("launch-prefix"):
            like_it = difflib.get_close_matches(name, names, 1)
            advice = f"do you mean {like_it[0]}? " if like_it else ""
            raise ArgumentError(
                f"{name} is no argument of {FILE_NAME}: {advice}`ros2 launch clue_ros {FILE_NAME} "
                "-s` lists them"
            )


def program(context: LaunchContext, package: str, executable: str) -> dict[str, Any]:
    """Return a node's program, which ends when ros2 launch is killed."""
    what = {"package": package, "executable": executable, "exec_name": executable}
    own = context.launch_configurations.get("launch-prefix")  # a debugger, for example
    if shutil.which(END_WITH_LAUNCH.split()[0]) and not own:
        what["prefix"] = END_WITH_LAUNCH
    return what


def values_of(context: LaunchContext) -> dict[str, str]:
    """Return every argument's value. Raises ArgumentError."""
    values = {}
    for name, default, _, rule in ARGUMENTS:
        value = values[name] = LaunchConfiguration(name).perform(context)
        if (value or default) and not rule.allows(value):
            raise ArgumentError(f"{name}:={value} is not possible; allowed: {rule.words}")
    return values


def fast_dds_profile(context: LaunchContext) -> list[SetEnvironmentVariable]:
    """Give Fast DDS shared memory that holds whole images, unless a profile is set already."""
    # Fast DDS 2 (Humble, Jazzy) reads the old name; Fast DDS 3 (Kilted) warns about it.
    old = os.environ.get("ROS_DISTRO", "") in ("humble", "iron", "jazzy")
    if any(context.environment.get(name) for name in PROFILES):
        return []
    return [SetEnvironmentVariable(PROFILES[old], LARGE)]


def small_memory(context: LaunchContext) -> dict[str, str]:
    """Give a node that publishes no image 2 MB of it instead, where the profile is our own."""
    return {name: SMALL for name in PROFILES if context.environment.get(name) == LARGE}


def is_true(text: str) -> bool:
    """Whether an argument says yes."""
    return text.lower() in ("true", "1")


def as_text(value: str) -> ParameterValue:
    """A parameter that stays text where it looks like a number or a date, as a folder may."""
    return ParameterValue(value, value_type=str)


def start(context: LaunchContext) -> list[Node]:
    """Return the nodes.

    A function, so that only the arguments that were given override the parameter file.
    """
    check_names()
    value = values_of(context)
    given: dict[str, Any] = {name: as_text(value[name]) for name in PASSED_ON if value[name]}
    for name, (parameter, convert) in CONVERTED.items():
        if value[name]:
            given[parameter] = convert(value[name])
    given["autostart"] = is_true(value["autostart"])
    voice = is_true(value["voice"])
    language = {"language": value["language"]} if value["language"] else {}
    clock = value["use_sim_time"]
    time = {"use_sim_time": is_true(clock)} if clock else {}
    # A person who does not hear the question is asked once more.
    again = value["ask_again_after"] or (ASK_AGAIN_AFTER if voice else "")
    again_after = {"ask_again_after": float(again)} if again else {}
    arguments = ["--log-level", value["log_level"]]
    secure = context.environment.get("ROS_SECURITY_ENABLE") == "true"
    small = {"additional_env": small_memory(context)}
    common = {
        "namespace": value["namespace"],
        "output": "screen",
        "respawn": is_true(value["respawn"]),
        "respawn_delay": RESPAWN_DELAY,
    }

    def own(name: str) -> dict[str, Any]:
        """Give a node its program, and its enclave where SROS2 is on (config/sros2/policy.xml)."""
        enclave = ["--enclave", f"/clue/{name}"] if secure else []
        run = program(context, "clue_ros", f"{name}_node")
        return {**run, "name": name, "ros_arguments": arguments + enclave}

    perception = LifecycleNode(
        # A small supervisor starts the node again.
        arguments=["--keep"] if common["respawn"] else [],
        parameters=[value["params_file"], given, language, again_after, time],
        remappings=[
            (topic, value[topic])
            for topic in ("image", "depth", "camera_info", "speech", "say")
            if value[topic]
        ],
        **own("perception"),
        **common,
    )
    tts = LifecycleNode(
        parameters=[value["params_file"], {"autostart": given["autostart"]}, language, time],
        remappings=[("say", value["say"])],
        **own("tts"),
        **small,
        **common,
    )
    speech = LifecycleNode(
        parameters=[
            value["params_file"],
            {"autostart": given["autostart"], "source": value["speech_source"]},
            language,
            time,
        ],
        remappings=[(topic, value[topic]) for topic in ("speech", "say", "audio")],
        **own("speech"),
        **small,
        **common,
    )
    page: dict[str, Any] = {
        name: as_text(value[f"console_{name}"])
        for name in ("host", "token")
        if value[f"console_{name}"]
    }
    if value["console_port"]:
        page["port"] = int(value["console_port"])
    if value["image_transport"]:
        page["image_transport"] = value["image_transport"]
    if value["reliability"]:
        page["image_reliability"] = value["reliability"]
    if value["record"]:
        page["recordings"] = as_text(value["record"])
    console = Node(
        parameters=[value["params_file"], page, time],
        remappings=[(topic, value[topic]) for topic in ("image", "speech", "say", "audio")],
        **own("console"),
        **small,
        **common,
    )
    nodes: list[Node] = [perception]
    nodes += [tts, speech] if voice else []
    nodes += [console] if is_true(value["console"]) else []
    return nodes


def viewers(context: LaunchContext) -> list[Action]:
    """Return RViz and the bridge of Foxglove, where asked for and installed.

    Their layouts are copies of those in config/, with the topics of the arguments.
    """
    value = values_of(context)
    wanted = [name for name in ("rviz", "foxglove") if is_true(value[name])]
    if not wanted:
        return []
    layouts = write_layouts(os.path.join(SHARE, "config"), value)
    time = {"use_sim_time": is_true(value["use_sim_time"] or "false")}
    actions: list[Action] = []
    for name in wanted:
        package = {"rviz": "rviz2", "foxglove": "foxglove_bridge"}[name]
        try:
            get_package_prefix(package)
        except PackageNotFoundError:
            apt = f"ros-{os.environ.get('ROS_DISTRO', 'DISTRO')}-{package.replace('_', '-')}"
            message = f"{name}:=true: the package {package} is not installed (apt install {apt})"
            actions.append(LogInfo(msg=f"{message}; its layout is {layouts[name]}"))
            continue
        given = ["-d", layouts[name]] if name == "rviz" else []
        actions.append(
            Node(
                **program(context, package, package),
                name=package,
                arguments=given,
                parameters=[time],
                output="screen",
            )
        )
        if name == "foxglove":
            actions.append(LogInfo(msg=f"Foxglove: import the layout {layouts[name]}"))
    return actions


def generate_launch_description() -> LaunchDescription:
    """Return the description for `ros2 launch`."""
    arguments = [
        DeclareLaunchArgument(name, default_value=default, description=description)
        for name, default, description, _ in ARGUMENTS
    ]
    return LaunchDescription(
        [
            *arguments,
            OpaqueFunction(function=fast_dds_profile),
            OpaqueFunction(function=start),
            OpaqueFunction(function=viewers),
        ]
    )
