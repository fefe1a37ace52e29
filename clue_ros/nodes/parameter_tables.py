# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Every parameter of every node, declared once.

The nodes declare from these tables; `python -m scripts.parameter_docs` writes
config/clue.yaml and the tables of docs/parameters.md from them, and a test compares.
"""

from __future__ import annotations

from clue_ros.dialogue.types import MAX_QUESTIONS
from clue_ros.model.load_options import BACKENDS, DEFAULT_POLICY, POLICIES
from clue_ros.model.loading import DEFAULT_MODEL
from clue_ros.model.multi_view import MAX_VIEWS
from clue_ros.model.trackers import FLOW
from clue_ros.nodes.parameters import FRAME, LANGUAGE_TAG, Change, Parameter
from clue_ros.nodes.voice_parameters import SPEECH, STOP_WORDS, TTS

PERCEPTION: tuple[Parameter, ...] = (
    Parameter(
        "model",
        DEFAULT_MODEL,
        "The model: 'household' (embedded), a folder, a Hugging Face hub id (with @revision behind "
        "it, if need be), or 'wrapper' (docs/wrapper.md).",
        change=Change.UNCONFIGURED,
    ),
    Parameter(
        "candidates",
        "base:household",
        "With model 'wrapper', where boxes come from, separated by commas: topic:NAME, base:MODEL,"
        " grounding-dino:NAME, owlv2:NAME, florence2:NAME, json:FILE or python:MODULE:FUNCTION;"
        " clue:MODEL: CLUE judges the boxes of the others.",
        change=Change.UNCONFIGURED,
    ),
    Parameter(
        "language_model",
        "",
        "With model 'wrapper', who chooses among boxes: a hub id, a folder, a .gguf file, the"
        " folder of `clue train wrapper`, or a server's address, http://127.0.0.1:8000/v1; empty:"
        " rules.",
        change=Change.UNCONFIGURED,
    ),
    Parameter(
        "device",
        "auto",
        "Where the model runs: auto, cpu, cuda, cuda:1, ... (auto: the GPU where there is one).",
        change=Change.UNCONFIGURED,
    ),
    Parameter(
        "backend",
        "auto",
        "What computes the model: openvino (a CPU, without torch), torch (any device), or auto"
        " (torch on a GPU and for a large decoder).",
        choices=BACKENDS,
        change=Change.UNCONFIGURED,
    ),
    Parameter(
        "dtype",
        "auto",
        "Number format of the weights (auto: the best one for the device; mixed: float32 with"
        " matrix products in bfloat16, on a CPU).",
        choices=("auto", "float32", "mixed", "bfloat16", "float16"),
        change=Change.UNCONFIGURED,
    ),
    Parameter(
        "quantization",
        "none",
        "Smaller decoder weights, for a full-size model on a small GPU; needs bitsandbytes.",
        choices=("none", "int8", "nf4"),
        change=Change.UNCONFIGURED,
    ),
    Parameter(
        "detector",
        "",
        "Another ambiguity detector: its folder, or a baseline's name; empty: the model's own.",
        change=Change.UNCONFIGURED,
    ),
    Parameter(
        "ivg",
        "",
        "Another adapter for questions and boxes (B): its folder; empty: the model's own.",
        change=Change.UNCONFIGURED,
    ),
    Parameter(
        "mask_decoder",
        "",
        "PaliGemma's mask decoder, a safetensors file; empty: the one in the model's folder.",
        change=Change.UNCONFIGURED,
    ),
    Parameter(
        "policy",
        DEFAULT_POLICY,
        "Who decides to ask or point: the ambiguity detector, the decoder's first token, or both;"
        " zero-shot: the base model without adapters, which both means where there are none.",
        choices=POLICIES,
    ),
    Parameter(
        "threshold",
        -1.0,
        "Probability of ambiguity from which the robot asks; -1: the one in the model's folder.",
        range=(0.0, 1.0),
        special=-1.0,
        unit="1",
    ),
    Parameter(
        "num_views",
        0,
        "Augmented views of an image whose boxes, and in doubt decisions, are averaged "
        "(test-time augmentation); 0: the number in the model's folder. zero-shot has one view.",
        range=(0, MAX_VIEWS),
        unit="1",
    ),
    Parameter(
        "max_risk",
        0.0,
        "Share of requests that may end in a wrong box without a confirmation: an unsure box is"
        " shown first (this one?). Needs a calibration of this place (docs/risk.md), else every box"
        " is shown; 0: no bound.",
        range=(0.0, 0.99),
        unit="1",
    ),
    Parameter(
        "calibration",
        "",
        "The file of `clue calibrate` that supports max_risk; empty: calibration.json in the"
        " model's folder.",
        change=Change.UNCONFIGURED,
    ),
    Parameter(
        "memory",
        "",
        "The folder of the objects that people showed and named (docs/your-table.md); empty: the"
        " one in the model's folder, else the user's own.",
        change=Change.UNCONFIGURED,
    ),
    Parameter(
        "autostart",
        False,
        "Configure and activate at start; the launch file sets it. False: wait for a manager.",
        change=Change.NEVER,
    ),
    Parameter(
        "max_questions",
        MAX_QUESTIONS,
        "Questions in one dialogue before it ends with MAX_TURNS.",
        range=(0, 20),
        unit="1",
    ),
    Parameter(
        "force_grounding",
        False,
        "When max_questions are asked: point at the best guess instead of ending with MAX_TURNS.",
    ),
    Parameter(
        "preempt",
        False,
        "A request by action or service while a dialogue is open ends that dialogue with CANCELED "
        "and takes its place; false: the request gets BUSY.",
    ),
    Parameter(
        "answer_timeout",
        30.0,
        "Seconds to wait for each answer before the dialogue ends with ANSWER_TIMEOUT.",
        range=(0.1, 3600.0),
        unit="s",
    ),
    Parameter(
        "ask_again_after",
        0.0,
        "Seconds of silence after which a question is asked once more in other words; 0: never.",
        range=(0.0, 3600.0),
        unit="s",
    ),
    Parameter(
        "language",
        "en-US",
        "Language of the robot's own sentences, as a tag such as en-US or fr-FR; the model's "
        "questions are in the model's language.",
        pattern=LANGUAGE_TAG,
    ),
    STOP_WORDS,
    Parameter(
        "image_transport",
        "raw",
        "Which topic to subscribe: raw (image) or compressed (image/compressed).",
        choices=("raw", "compressed"),
        change=Change.NOT_ACTIVE,
    ),
    Parameter(
        "image_reliability",
        "auto",
        "Reliability of the subscriptions to image, depth and camera_info. auto: reliable if every "
        "publisher of the topic offers it, else best effort.",
        choices=("auto", "reliable", "best_effort"),
        change=Change.NOT_ACTIVE,
    ),
    Parameter(
        "image_rate",
        5.0,
        "Images a second that the node takes while nobody asks; each costs CPU; 0: all. A request "
        "takes the newest image in any case.",
        range=(0.0, 1000.0),
        unit="Hz",
        change=Change.NOT_ACTIVE,
    ),
    Parameter(
        "max_image_age",
        2.0,
        "Seconds since the newest image arrived after which a request gets STALE_IMAGE.",
        range=(0.05, 3600.0),
        unit="s",
    ),
    Parameter(
        "max_age_at_result",
        0.5,
        "Seconds since the image of a result arrived after which the result is checked against the "
        "newest image: where something has moved, the robot looks again.",
        range=(0.0, 3600.0),
        unit="s",
    ),
    Parameter(
        "image_timeout",
        5.0,
        "Seconds without an image after which the node warns, naming the topic.",
        range=(0.5, 3600.0),
        unit="s",
    ),
    Parameter(
        "record",
        "",
        "A folder to keep every dialogue in as an episode (docs/episodes.md); empty: none.",
        change=Change.NEVER,
    ),
    Parameter(
        "record_limit",
        1000.0,
        "Megabytes of episodes; beyond, the oldest ones are removed.",
        range=(1.0, 1e6),
        unit="MB",
        change=Change.NEVER,
    ),
    Parameter(
        "masks",
        False,
        "Give each object its mask, an image as large as the camera's (2 MB at 1920x1080).",
    ),
    Parameter(
        "tracker",
        FLOW,
        "Tracker of objects: flow (optical flow, on a CPU, without weights), or sam2: and a hub "
        "id or folder of SAM 2 or EdgeTAM, such as sam2:facebook/sam2.1-hiera-tiny (needs torch).",
        change=Change.UNCONFIGURED,
    ),
    Parameter(
        "track_rate",
        15.0,
        "Largest number of frames a second in which objects are followed (topic tracked); further "
        "frames are dropped.",
        range=(0.1, 1000.0),
        unit="Hz",
        change=Change.NOT_ACTIVE,
    ),
    Parameter(
        "look_again_after",
        2.0,
        "Seconds that a followed object is lost before the model looks for it, with the dialogue "
        "that found it, and between two such looks; 0: it never looks.",
        range=(0.0, 3600.0),
        unit="s",
    ),
    Parameter(
        "use_depth",
        True,
        "Subscribe to depth and camera_info, and give each object its pose where they fit the "
        "image.",
        change=Change.NOT_ACTIVE,
    ),
    Parameter(
        "depth_slop",
        0.05,
        "Seconds that the stamps of an image and of its depth image may be apart.",
        range=(0.0, 10.0),
        unit="s",
    ),
    Parameter(
        "min_depth",
        0.1,
        "Metres; a nearer reading of the depth image counts as a hole.",
        range=(0.0, 100.0),
        unit="m",
        at_most="max_depth",
    ),
    Parameter(
        "max_depth",
        10.0,
        "Metres; a farther reading of the depth image counts as a hole.",
        range=(0.1, 1000.0),
        unit="m",
    ),
    Parameter(
        "depth_unit",
        0.001,
        "Metres of a count of a 16-bit depth image: 0.001 by ROS's convention, 0.000125 of some "
        "cameras, 0.0002 of data sets with 5000 counts a metre.",
        range=(1e-6, 1.0),
        unit="m",
    ),
    Parameter(
        "depth_registered",
        False,
        "Accept a depth image and camera_info whose frame has another name than the image's, "
        "because they are registered to it.",
    ),
    Parameter(
        "optical_frame",
        "auto",
        "Kind of the images' frame. given: an optical one (z forward); convert: a body's (x "
        "forward), as in simulators, and poses are turned to it; auto: given, unless tf has an "
        "optical frame beside it.",
        choices=("auto", "given", "convert"),
        change=Change.NOT_ACTIVE,
    ),
    Parameter(
        "target_frame",
        "",
        "Frame that poses are published in, through tf2, such as base_link; empty: the image's.",
        pattern=f"({FRAME})?",
        change=Change.NOT_ACTIVE,
    ),
    Parameter(
        "rectified",
        False,
        "The images are rectified (image_rect): the matrix P of camera_info counts; false: K, with "
        "the lens's distortion D undone.",
    ),
    Parameter(
        "debug_image", True, "Draw ~/debug_image for every reply while somebody subscribes to it."
    ),
    Parameter(
        "detections",
        True,
        "Publish ~/detections and ~/detections_3d where the package vision_msgs is installed.",
        change=Change.UNCONFIGURED,
    ),
    Parameter(
        "annotations",
        True,
        "Publish ~/annotations, boxes and labels over the image in Foxglove, where the package "
        "foxglove_msgs is installed.",
        change=Change.UNCONFIGURED,
    ),
    Parameter(
        "collision_object",
        True,
        "Publish ~/collision_object, the box of the object pointed at, where the package "
        "moveit_msgs is installed.",
        change=Change.UNCONFIGURED,
    ),
    Parameter(
        "markers", True, "Publish ~/markers: boxes and labels of the objects with a known pose."
    ),
    Parameter(
        "diagnostics_period",
        1.0,
        "Seconds between two messages on /diagnostics.",
        range=(0.1, 60.0),
        unit="s",
        change=Change.NEVER,
    ),
)

CONSOLE: tuple[Parameter, ...] = (
    Parameter(
        "host",
        "127.0.0.1",
        "Address that the page is served on; 0.0.0.0: every network of this machine.",
        change=Change.NEVER,
    ),
    Parameter(
        "port",
        8484,
        "Port of the page; 0: any free one, which the log names.",
        range=(0, 65535),
        unit="1",
        change=Change.NEVER,
    ),
    Parameter(
        "token",
        "",
        "Secret that the page's address must contain. Empty: none where host is this machine, else"
        " one is made up; the log has the address with it.",
        change=Change.NEVER,
    ),
    Parameter(
        "certificate",
        "",
        "Certificate for https (PEM file), with `key`: from another machine, browsers give the "
        "microphone to https alone. Empty: http.",
        change=Change.NEVER,
    ),
    Parameter("key", "", "Private key of `certificate` (PEM file).", change=Change.NEVER),
    Parameter(
        "perception",
        "perception",
        "Name of the perception node, relative to the namespace of this node or absolute.",
        pattern=r"/?[A-Za-z_]\w*(/[A-Za-z_]\w*)*",
        change=Change.NEVER,
    ),
    Parameter(
        "image_transport",
        "raw",
        "Which topic to subscribe: raw (image) or compressed (image/compressed).",
        choices=("raw", "compressed"),
        change=Change.NEVER,
    ),
    Parameter(
        "image_reliability",
        "auto",
        "Reliability of the subscription to image. auto: reliable if every publisher of the topic "
        "offers it, else best effort.",
        choices=("auto", "reliable", "best_effort"),
        change=Change.NEVER,
    ),
    Parameter(
        "recordings",
        "",
        "Folder of episodes that the page shows for review (parameter record of perception); "
        "empty: none.",
        change=Change.NEVER,
    ),
    Parameter(
        "pairs",
        "",
        "Folder that dialogues of two people are written to; empty: the page offers none.",
        change=Change.NEVER,
    ),
    Parameter(
        "pair_images",
        "",
        "Folder of the pictures that two people talk about, with `pairs`.",
        change=Change.NEVER,
    ),
)

IMAGE_SOURCE: tuple[Parameter, ...] = (
    Parameter(
        "source",
        "",
        "A picture, a folder of pictures, a video, or a webcam's number ('0'); a new one may be "
        "set while the node runs.",
    ),
    Parameter("rate", 10.0, "Images a second.", range=(0.1, 120.0), unit="Hz", change=Change.NEVER),
    Parameter(
        "loop",
        True,
        "Start again at the end of a folder or video; a single picture is always repeated. Counts "
        "from the next time that `source` is set.",
    ),
    Parameter(
        "depth",
        "",
        "A depth picture of `source` (16-bit PNG, millimetres), published on depth with each "
        "image; empty: none.",
    ),
    Parameter("frame_id", "camera_color_optical_frame", "frame_id of every header.", pattern=FRAME),
    Parameter(
        "camera_info",
        "",
        "A calibration file (camera_calibration's YAML); empty: made from horizontal_fov.",
    ),
    Parameter(
        "horizontal_fov",
        60.0,
        "Horizontal field of view in degrees, for CameraInfo where no file is given.",
        range=(1.0, 179.0),
        unit="degrees",
    ),
    Parameter("compressed", False, "Publish image/compressed (JPEG) as well.", change=Change.NEVER),
    Parameter("jpeg_quality", 90, "Quality of image/compressed.", range=(1, 100), unit="%"),
)

GRASP_EXAMPLE: tuple[Parameter, ...] = (
    Parameter(
        "max_opening",
        0.085,
        "Metres between the gripper's open fingers; a wider object is not grasped.",
        range=(0.001, 1.0),
        unit="m",
    ),
    Parameter(
        "finger_length",
        0.04,
        "Metres that an object may reach between the fingers.",
        range=(0.001, 1.0),
        unit="m",
    ),
    Parameter(
        "standoff", 0.1, "Metres from pregrasp_pose to grasp_pose.", range=(0.0, 1.0), unit="m"
    ),
)

NODES: dict[str, tuple[Parameter, ...]] = {
    "perception": PERCEPTION,
    "console": CONSOLE,
    "image_source": IMAGE_SOURCE,
    "tts": TTS,
    "speech": SPEECH,
    "grasp_example": GRASP_EXAMPLE,
}
