"""Start clue_ros on a robot: ros2 launch clue_ros clue.launch.py image:=/camera/image_raw.

Perception is a managed node; its parameter `autostart`, set here, has it configured and activated
at every start of its process. `ros2 launch clue_ros clue.launch.py -s` lists the arguments.
"""

from __future__ import annotations

import os

from ament_index_python.packages import get_package_share_directory
from launch.actions import DeclareLaunchArgument, OpaqueFunction, SetEnvironmentVariable
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import LifecycleNode

from launch import LaunchContext, LaunchDescription

SHARE = get_package_share_directory("clue_ros")
ASK_AGAIN_AFTER = "12.0"  # seconds of silence, with voice:=true

# name, default, what it is. An empty default leaves the value of the parameter file.
ARGUMENTS = (
    ("model", "", "household or tabletop (embedded), a folder, or a Hugging Face hub id"),
    ("device", "", "auto, cpu, cuda, cuda:1, ..."),
    ("image", "image", "the camera's topic, such as /camera/image_raw"),
    ("image_transport", "", "raw, or compressed for <image>/compressed"),
    ("depth", "depth", "the topic of depth registered to the image, for 3D poses"),
    ("camera_info", "", "the camera's calibration; empty: camera_info beside the image"),
    ("speech", "speech", "the topic of what people say"),
    ("say", "say", "the topic of what the robot says"),
    ("voice", "false", "true: listen (the speech node) and speak (the tts node)"),
    ("ask_again_after", "", "seconds of silence until a question is asked once more; 0: never"),
    ("speech_source", "microphone", "what voice:=true listens to: microphone, topic, or files"),
    ("audio", "audio", "the topic of sound, with speech_source:=topic"),
    ("language", "", "of speech, of the robot's sentences and voice: en-US, fr-FR, ..."),
    ("record", "", "a folder to keep every dialogue in, to learn from (docs/episodes.md)"),
    ("namespace", "", "a namespace for all nodes"),
    ("params_file", os.path.join(SHARE, "config", "clue.yaml"), "every parameter of every node"),
    ("autostart", "true", "true: load the model and look at once; false: wait for a manager"),
    ("use_sim_time", "", "true: the time of /clock (a bag played with --clock, a simulator)"),
    ("respawn", "true", "true: start a node again when it dies"),
    ("log_level", "info", "debug, info, warn, error"),
)

RESPAWN_DELAY = 0.5  # seconds
PASSED_ON = ("model", "device", "image_transport", "record")  # to perception, where given


def fast_dds_profile(context: LaunchContext) -> list[SetEnvironmentVariable]:
    """Give Fast DDS shared memory that holds whole images, unless a profile is set already."""
    profile = os.path.join(SHARE, "config", "fastdds.xml")
    # Fast DDS 2 (Humble, Jazzy) reads the old name; Fast DDS 3 (Kilted) warns about it.
    old = os.environ.get("ROS_DISTRO", "") in ("humble", "iron", "jazzy")
    names = ("FASTDDS_DEFAULT_PROFILES_FILE", "FASTRTPS_DEFAULT_PROFILES_FILE")
    if any(context.environment.get(name) for name in names):
        return []
    return [SetEnvironmentVariable(names[1] if old else names[0], profile)]


def is_true(text: str) -> bool:
    """Whether an argument says yes."""
    return text.lower() in ("true", "1")


def start(context: LaunchContext) -> list[LifecycleNode]:
    """Return the nodes.

    A function, so that only the arguments that were given override the parameter file.
    """
    value = {name: LaunchConfiguration(name).perform(context) for name, _, _ in ARGUMENTS}
    given = {name: value[name] for name in PASSED_ON if value[name]}
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
    common = {
        "package": "clue_ros",
        "namespace": value["namespace"],
        "output": "screen",
        "respawn": is_true(value["respawn"]),
        "respawn_delay": RESPAWN_DELAY,
    }

    def own(name: str) -> dict[str, list[str]]:
        """Give a node its enclave, where SROS2 is on (config/sros2/policy.xml)."""
        enclave = ["--enclave", f"/clue/{name}"] if secure else []
        return {"ros_arguments": arguments + enclave}

    perception = LifecycleNode(
        executable="perception_node",
        # A supervisor imports torch once and starts the node again within a second.
        arguments=["--keep"] if common["respawn"] else [],
        name="perception",
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
        executable="tts_node",
        name="tts",
        parameters=[value["params_file"], {"autostart": given["autostart"]}, language, time],
        remappings=[("say", value["say"])],
        **own("tts"),
        **common,
    )
    speech = LifecycleNode(
        executable="speech_node",
        name="speech",
        parameters=[
            value["params_file"],
            {"autostart": given["autostart"], "source": value["speech_source"]},
            language,
            time,
        ],
        remappings=[(topic, value[topic]) for topic in ("speech", "say", "audio")],
        **own("speech"),
        **common,
    )
    return [perception, tts, speech] if voice else [perception]


def generate_launch_description() -> LaunchDescription:
    """Return what `ros2 launch` runs."""
    arguments = [
        DeclareLaunchArgument(name, default_value=default, description=description)
        for name, default, description in ARGUMENTS
    ]
    return LaunchDescription(
        [
            *arguments,
            OpaqueFunction(function=fast_dds_profile),
            OpaqueFunction(function=start),
        ]
    )
