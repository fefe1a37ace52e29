"""The launch file, run by the real `ros2 launch` machinery where there is one."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import ros_helpers
from ros_helpers import ROOT, TIMEOUT, isolate, ros_client, wait_until

from clue_ros.nodes.supervisor import supervised

ros_helpers.need_ros()
for name in ("launch", "launch_ros"):
    if importlib.util.find_spec(name) is None:
        pytest.skip(
            f"{name} is not installed (it is no wheel: scripts/extra_ros)",
            allow_module_level=True,
        )

LAUNCH = ROOT / "launch" / "clue.launch.py"
RUN = """
import importlib.util, sys
from launch import LaunchService
spec = importlib.util.spec_from_file_location("clue_launch", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
from launch.actions import SetLaunchConfiguration
service = LaunchService()
description = module.generate_launch_description()
for pair in sys.argv[2:]:
    description.entities.insert(0, SetLaunchConfiguration(*pair.split(":=", 1)))
service.include_launch_description(description)
sys.exit(service.run())
"""


@contextlib.contextmanager
def launched(log: Path, arguments: list[str]) -> Iterator[Path]:
    """Run the launch file, with its output in `log`; it ends on SIGINT and without a traceback."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", RUN, str(LAUNCH), *arguments],
            stdout=file,
            stderr=subprocess.STDOUT,
            env=isolate(),
        )
        try:
            yield log
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(TIMEOUT)
    assert "Traceback" not in log.read_text()


def test_launch_brings_perception_up_and_again_after_a_kill(tmp_path: Path) -> None:
    from tiny_model import write_random_model

    model = write_random_model(tmp_path / "model")
    arguments = [f"model:={model}", "namespace:=arm", "image:=/eye/image_raw"]
    with launched(tmp_path / "launch.log", arguments) as log:
        words = "active, looking at /eye/image_raw"
        wait_until(lambda: words in log.read_text(), "perception to become active")
        child = int(log.read_text().split("process started with pid [")[1].split("]")[0])
        with ros_client("launch_tester") as client:
            names = client.node.get_node_names_and_namespaces
            wait_until(lambda: ("perception", "/arm") in names(), "perception in /arm")
        os.kill(supervised(child), signal.SIGKILL)
        wait_until(lambda: log.read_text().count(words) == 2, "its supervisor to start the node")
        os.kill(child, signal.SIGKILL)
        wait_until(lambda: log.read_text().count(words) == 3, "launch to start both")


def test_launch_brings_a_wrapper_up_on_boxes_of_a_file(tmp_path: Path) -> None:
    boxes = tmp_path / "boxes.json"
    boxes.write_text('[{"box": [1, 2, 30, 40], "label": "mug", "score": 0.9}]')
    arguments = ["model:=wrapper", f"candidates:=json:{boxes}", "device:=cpu"]
    with launched(tmp_path / "launch.log", arguments) as log:
        words = "model wrapper of json with rules is ready"
        wait_until(lambda: words in log.read_text(), "perception to open the file")


def test_a_wrong_value_ends_the_launch_with_one_line() -> None:
    command = [sys.executable, "-c", RUN, str(LAUNCH), "voice:=yes"]
    done = subprocess.run(command, capture_output=True, text=True, env=isolate(), check=False)
    assert done.returncode == 1
    lines = [line for line in (done.stdout + done.stderr).splitlines() if "INFO" not in line]
    (line,) = lines
    assert line.endswith("voice:=yes is not possible; allowed: true or false")


def test_an_unknown_argument_ends_the_launch_and_is_named() -> None:
    command = [sys.executable, "-c", RUN, str(LAUNCH), "treshold:=0.4"]
    done = subprocess.run(command, capture_output=True, text=True, env=isolate(), check=False)
    assert done.returncode == 1
    lines = [line for line in (done.stdout + done.stderr).splitlines() if "INFO" not in line]
    (line,) = lines
    assert "treshold is no argument of clue.launch.py: do you mean threshold?" in line


def test_arguments_reach_perceptions_parameters(tmp_path: Path) -> None:
    from rcl_interfaces.srv import GetParameters

    given = {
        "threshold": ("threshold", "0.4"),
        "max_questions": ("max_questions", "2"),
        "masks": ("masks", "True"),
        "depth_unit": ("depth_unit", "0.000125"),
        "target_frame": ("target_frame", "base_link"),
        "reliability": ("image_reliability", "reliable"),
    }
    arguments = [f"{name}:={value}" for name, (_, value) in given.items()]
    with (
        launched(tmp_path / "launch.log", ["autostart:=false", *arguments]),
        ros_client("launch_tester") as client,
    ):
        service = client.node.create_client(GetParameters, "/perception/get_parameters")
        request = GetParameters.Request(names=[parameter for parameter, _ in given.values()])
        values = client.call(service, request).values
        assert [v.double_value for v in values[:1]] + [values[1].integer_value] == [0.4, 2]
        assert (values[2].bool_value, values[3].double_value) == (True, 0.000125)
        assert [v.string_value for v in values[4:]] == ["base_link", "reliable"]


def test_no_node_outlives_a_launch_that_is_terminated(tmp_path: Path) -> None:
    log = tmp_path / "launch.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", RUN, str(LAUNCH), "autostart:=false", "console:=true"],
            stdout=file,
            stderr=subprocess.STDOUT,
            env=isolate(),
        )
    started = "process started with pid ["
    wait_until(lambda: log.read_text().count(started) == 2, "both processes")
    pids = [int(part.split("]")[0]) for part in log.read_text().split(started)[1:]]
    wait_until(lambda: supervised(pids[0]), "the supervisor's node")
    pids.append(supervised(pids[0]))
    process.terminate()
    process.wait(TIMEOUT)

    def gone(pid: int) -> bool:
        stat = Path(f"/proc/{pid}/stat")
        return not stat.exists() or ") Z " in stat.read_text()

    try:
        wait_until(lambda: all(gone(pid) for pid in pids), "the nodes to end")
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_two_instances_wait_for_their_manager_in_their_namespaces(tmp_path: Path) -> None:
    from lifecycle_msgs.srv import GetState

    processes = []
    for name in ("left", "right"):
        arguments = [f"namespace:={name}", "autostart:=False", "respawn:=0"]
        with (tmp_path / f"{name}.log").open("wb") as file:
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-c", RUN, str(LAUNCH), *arguments],
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    env=isolate(),
                )
            )
    try:
        with ros_client("launch_tester") as client:
            for name in ("left", "right"):
                service = client.node.create_client(GetState, f"/{name}/perception/get_state")
                state = client.call(service, GetState.Request()).current_state.label
                assert state == "unconfigured", name
    finally:
        for process in processes:
            process.send_signal(signal.SIGINT)
        statuses = [process.wait(TIMEOUT) for process in processes]
    assert statuses == [0, 0]
    for name in ("left", "right"):
        assert "Traceback" not in (tmp_path / f"{name}.log").read_text()


def test_under_launch_testing_every_killed_node_comes_back(tmp_path: Path) -> None:
    if importlib.util.find_spec("launch_testing") is None:
        pytest.skip("launch_testing is not installed (it is no wheel: scripts/extra_ros)")
    from tiny_model import write_random_model

    own = {
        "CLUE_TEST_MODEL": str(write_random_model(tmp_path / "model")),
        "CLUE_TEST_RECORD": str(tmp_path / "episodes"),
        "ROS_LOG_DIR": str(tmp_path / "log"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "launch_testing.launch_test", "test/bringup_launch_testing.py"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=isolate() | own,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
