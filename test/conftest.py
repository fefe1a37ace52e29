"""Fixtures for all tests. Nothing here reaches the network."""

import contextlib
import fcntl
import gc
import http.server
import os
import shutil
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator

# Before torch is imported anywhere: small models run slower on many threads, and a model that is
# not on this machine must fail at once instead of asking the hub.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Graphs of random models are of no use to anybody, and stay out of the user's cache.
os.environ.setdefault("CLUE_CACHE", os.path.join(tempfile.gettempdir(), "clue_ros_test_cache"))
# What a person taught their robot is none of a test's business, nor the other way round.
os.environ["XDG_DATA_HOME"] = tempfile.mkdtemp(prefix="clue_ros_test_data_")
# A command reads what its test gives it; the fixture `it2p_photographs` is for tests of these.
if "CLUE_IT2P" in os.environ:
    os.environ["CLUE_TEST_IT2P"] = os.environ.pop("CLUE_IT2P")

from pathlib import Path
from typing import Any

# bitsandbytes, where scripts/test has put it; before anything imports peft.
sys.path.append(str(Path(sys.prefix) / "quantization"))

import numpy as np
import numpy.typing as npt
import pytest
from browser import browser, new_page
from fast_dds import segment_of
from ros_fixtures import client, executor, model, node, shared

__all__ = ["browser", "client", "executor", "model", "new_page", "node", "shared"]  # fixtures

SHARED_MEMORY = Path("/dev/shm")
_RUNNING: set[str] = set()
_BEFORE = pytest.StashKey[dict[Path, Path]]()


def _segments() -> dict[Path, Path]:
    """Return the segments in Fast DDS's shared memory by their lock files."""
    found = ((lock, segment_of(lock)) for lock in SHARED_MEMORY.glob("fast*_el"))
    return {lock: segment for lock, segment in found if segment}


def pytest_sessionstart(session: pytest.Session) -> None:
    """Remember what other programs hold, or have left, before the tests."""
    session.config.stash[_BEFORE] = _segments()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Give back the shared memory of nodes that tests killed: 34 MB each, until the next boot.

    Only what came after the start and whose lock nobody holds any more (as `fastdds shm clean`).
    """
    if hasattr(session.config, "workerinput"):  # the process that all workers have ended for does
        return
    before = session.config.stash[_BEFORE]
    for lock, segment in _segments().items() - before.items():
        with contextlib.suppress(OSError), lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            segment.unlink(missing_ok=True)
            lock.unlink()


def pytest_runtest_logstart(nodeid: str) -> None:
    """Remember a test until it has ended, in whichever process it runs."""
    _RUNNING.add(nodeid)


def pytest_runtest_logfinish(nodeid: str) -> None:
    """Forget it."""
    _RUNNING.discard(nodeid)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the tests that were stopped: one that hangs in C has no other report."""
    for nodeid in sorted(_RUNNING):
        terminalreporter.write_line(f"did not end: {nodeid}", red=True)


@pytest.fixture(scope="module", autouse=True)
def set_aside() -> None:
    """Take all that is loaded out of the collector's sight: each training collects twice."""
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete model folder with random weights; do not write to it."""
    from tiny_model import write_random_model

    return write_random_model(tmp_path_factory.mktemp("random_model"))


@pytest.fixture
def asked_by_openvino(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], list[str]]]:
    """What OpenVINO's telemetry has done in the processes that a test has started: files, requests.

    Their home folder is empty and their proxy refuses; CI=true would hide the telemetry.
    """
    requests: list[str] = []

    class Refusing(http.server.BaseHTTPRequestHandler):
        """Counts what it refuses."""

        def do_CONNECT(self) -> None:
            requests.append(self.path)
            self.send_error(403)

        def log_message(self, *_: Any) -> None:
            pass

    home = tmp_path / "home"
    home.mkdir()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name in [name for name in os.environ if "proxy" in name.lower()] + ["CI"]:
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("HOME", str(home))
        yield lambda: [*requests, *(str(path) for path in home.rglob("intel/*"))]
        server.shutdown()


LOADED: list[tuple[Any, str, Any]] = []  # each shared model, its policy and its fit


def load_once(model: str | Path) -> Any:
    """Load a model (`Clue`) once for a worker process; each test finds it as it was loaded."""
    from clue_ros.engine import Clue

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the random one has no fit for policy "both"
        clue = Clue.load(model, device="cpu")
    LOADED.append((clue, clue.policy, clue.checkpoint.fusion))
    return clue


@pytest.fixture(scope="session")
def clue(random_model: Path) -> Any:
    """The random model, loaded; tests may change its settings."""
    return load_once(random_model)


@pytest.fixture(scope="session")
def household() -> Any:
    """The embedded model, loaded; tests may change its settings."""
    return load_once("household")


@pytest.fixture(autouse=True)
def settings_as_loaded() -> Iterator[None]:
    """Give shared models their settings back."""
    yield
    for clue, policy, fusion in LOADED:
        clue.checkpoint.fusion = fusion
        clue.policy = policy
        clue.threshold = clue.num_views = clue.doubtful_score = clue.max_risk = None


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without Java: METEOR is nltk's, and no test waits for a virtual machine."""
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "java" else which(name))


@pytest.fixture(scope="session")
def it2p_photographs() -> Path:
    """The folder of the IT2P photographs; skips where CLUE_IT2P named none."""
    if "CLUE_TEST_IT2P" not in os.environ:
        pytest.skip("IT2P is not here: set CLUE_IT2P to the folder that holds data/train_img")
    return Path(os.environ["CLUE_TEST_IT2P"])


@pytest.fixture
def fresh_seed() -> int:
    """A seed of random inputs that no run had; pytest shows it where a test fails."""
    seed = int.from_bytes(os.urandom(4), "little")
    print(f"seed {seed}")
    return seed


@pytest.fixture
def picture() -> npt.NDArray[np.uint8]:
    """A noise image, uint8 RGB, 60 rows and 80 columns."""
    return np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)
