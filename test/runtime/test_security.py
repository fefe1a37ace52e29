"""The SROS2 policy as SROS2 takes it; test_nodes_faults compares it with what the nodes have."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import ros_helpers
from ros_helpers import ROOT, isolate, wait_until
from security_policy import POLICY, Allowed, read_policy

from clue_ros.nodes.parameter_tables import NODES


def test_every_node_has_an_enclave_and_none_but_the_console_calls_another() -> None:
    policy = read_policy()
    assert set(policy) == set(NODES)
    for node, allowed in policy.items():
        if node == "console":  # of perception alone
            assert allowed.request <= policy["perception"].reply
        else:
            assert allowed.request == set(), f"{node} needs no service of others"
        assert not allowed.publish & {f"/{other}/change_state" for other in policy}


def test_no_name_is_a_pattern() -> None:
    for node, allowed in read_policy().items():
        for what in vars(Allowed()):
            for name in getattr(allowed, what):
                assert not set(name) & set("*?[]"), f"{node} may {what} {name}"


def need_sros2() -> None:
    if importlib.util.find_spec("sros2") is None:
        pytest.skip("sros2 is not installed (it is no wheel: scripts/extra_ros)")


@pytest.fixture
def keystore(tmp_path: Path) -> Path:
    """Give the keystore that `ros2 security generate_artifacts -p policy.xml` makes."""
    need_sros2()
    from sros2.api._artifact_generation import generate_artifacts

    folder = tmp_path / "keystore"
    generate_artifacts(folder, [], [POLICY])
    return folder


def test_sros2_makes_permissions_of_it(keystore: Path) -> None:
    for node in read_policy():
        permissions = (keystore / "enclaves" / "clue" / node / "permissions.xml").read_text()
        assert f"<subject_name>CN=/clue/{node}</subject_name>" in permissions
        assert "<default>DENY</default>" in permissions
    text = (keystore / "enclaves" / "clue" / "perception" / "permissions.xml").read_text()
    for topic in ("rt/question", "rt/image", "rq/groundRequest", "rr/ground_with_dialogue/_action"):
        assert topic in text


def test_perception_comes_up_where_the_policy_is_enforced(keystore: Path, tmp_path: Path) -> None:
    ros_helpers.need_ros()
    from tiny_model import write_random_model

    model = write_random_model(tmp_path / "model")
    security = {
        "ROS_SECURITY_KEYSTORE": str(keystore),
        "ROS_SECURITY_ENABLE": "true",
        "ROS_SECURITY_STRATEGY": "Enforce",
        "ROS_DOMAIN_ID": "0",  # the one that SROS2 makes permissions for
    }
    log = tmp_path / "perception.log"
    command = [sys.executable, "-m", "clue_ros.nodes.executables", "perception", "--ros-args"]
    command += ["--enclave", "/clue/perception", "-p", "autostart:=true", "-p", f"model:={model}"]
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=file, env=isolate() | security, cwd=ROOT
        )
    try:
        active = "active, looking at /image"
        wait_until(lambda: active in log.read_text() or process.poll() is not None, "its start")
        if "doesn't have the security libraries" in log.read_text():
            pytest.skip("this Fast DDS is built without security (the wheels are)")
        assert active in log.read_text()
    finally:
        process.terminate()
        process.wait(ros_helpers.TIMEOUT)


def test_nothing_listens_on_the_network_but_dds_and_the_operators_page() -> None:
    """No sockets of our own, but the page's, and the one that asks a language model's server."""
    words = ("import socket", "socketserver", "http.server", "aiohttp", "uvicorn", "grpc",
             "import flask", "from flask")  # fmt: skip
    page = ROOT / "clue_ros" / "console" / "server.py"
    names = ROOT / "clue_ros" / "requirements.py"
    client = ROOT / "clue_ros" / "wrapper" / "served_model.py"
    for path in {*(ROOT / "clue_ros").rglob("*.py")} - {page, names}:
        text = path.read_text(encoding="utf-8")
        for word in (".bind(", ".listen(", "create_server") if path == client else words:
            assert word not in text, f"{path.relative_to(ROOT)}: {word}"
