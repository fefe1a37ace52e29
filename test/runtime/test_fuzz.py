"""Anything at all as an image or as words: used, or refused with a reason, and never a crash.

1,300 cases, the same ones each time. `benchmarks/soak.py --fuzz` sends thousands to a real node.
"""

from __future__ import annotations

import array
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ros_helpers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image as Picture

ros_helpers.need_ros()

from sensor_msgs.msg import Image  # noqa: E402

from clue_ros.dialogue.reading import read  # noqa: E402
from clue_ros.dialogue.types import MAX_TEXT, Dialogue, Grounding, clean_text  # noqa: E402
from clue_ros.engine import Clue  # noqa: E402
from clue_ros.errors import BadExpressionError, BadImageError, ClueError, EmptyExpressionError  # noqa: E402
from clue_ros.model.prompts import LOCATIONS, encode_prompts, load_processor  # noqa: E402
from clue_ros.nodes.image_conversion import compressed_to_rgb, to_rgb  # noqa: E402

COLOURS = ["rgb8", "bgr8", "rgba8", "bgra8", "rgb16", "bgr16", "rgba16", "bgra16", "8UC3", "8UC4"]
GREYS = ["mono8", "mono16", "8UC1", "16UC1", "32FC1"]
BAYER = ["bayer_rggb8", "bayer_bggr8", "bayer_gbrg8", "bayer_grbg8", "bayer_rggb16"]
YUV = ["yuv422", "uyvy", "yuv422_yuy2", "yuyv", "nv12", "nv21"]
ENCODINGS = [*COLOURS, *GREYS, *BAYER, *YUV, "jpeg"]


def cases(count: int) -> settings:
    """The same cases each time, none kept on disk, no limit of time: machines differ."""
    return settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


side = st.one_of(st.integers(0, 9), st.integers(0, 2**32 - 1))


@st.composite
def images(draw: Any) -> Image:
    """Images whose parts need not fit together, and some whose parts do but for one."""
    message = Image(
        encoding=draw(st.one_of(st.sampled_from(ENCODINGS), st.text(max_size=12))),
        width=draw(side),
        height=draw(side),
        step=draw(side),
        is_bigendian=draw(st.integers(0, 255)),
    )
    if draw(st.booleans()):  # rows of the right length, with some padding
        width, height = draw(st.integers(1, 9)), draw(st.integers(1, 9))
        message.width, message.height = width, height
        message.step = width * draw(st.integers(1, 8)) + draw(st.integers(0, 5))
        size = message.step * height + draw(st.sampled_from((0, 0, 0, -1, 1)))
        message.data = array.array("B", bytes(max(0, size)))
    else:
        message.data = array.array("B", draw(st.binary(max_size=200)))
    return message


def is_one_line(error: ClueError) -> None:
    """Check that there is a reason, on one line."""
    assert str(error).strip()
    assert len(str(error).splitlines()) == 1


def is_rgb(pixels: np.ndarray[Any, Any]) -> None:
    """Check that these are the pixels that the model takes."""
    assert pixels.dtype == np.uint8
    assert pixels.ndim == 3
    assert pixels.shape[2] == 3
    assert pixels.size


@cases(500)
@given(images())
def test_any_image_is_pixels_or_bad_image(message: Image) -> None:
    try:
        pixels = to_rgb(message)
    except BadImageError as error:
        is_one_line(error)
    else:
        is_rgb(pixels)
        assert pixels.shape[:2] == (message.height, message.width)


def picture_file(kind: str) -> bytes:
    content = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (6, 9, 3), dtype=np.uint8)
    Picture.fromarray(noise).save(content, kind)
    return content.getvalue()


FILES = [picture_file(kind) for kind in ("JPEG", "PNG", "BMP", "GIF", "WEBP")]


@st.composite
def damaged(draw: Any) -> bytes:
    """A picture file with a piece cut off, put in, or changed; or any bytes."""
    content = bytearray(draw(st.sampled_from(FILES)))
    place = draw(st.integers(0, len(content) - 1))
    damage = draw(st.sampled_from(("cut", "insert", "change", "replace")))
    if damage == "cut":
        del content[place:]
    elif damage == "insert":
        content[place:place] = draw(st.binary(max_size=20))
    elif damage == "change":
        content[place] = draw(st.integers(0, 255))
    else:
        content[:] = draw(st.binary(max_size=100))
    return bytes(content)


@cases(300)
@given(damaged(), st.one_of(st.just("jpeg"), st.just("rgb8; png compressed bgr8"), st.text()))
def test_any_compressed_image_is_pixels_or_bad_image(content: bytes, name: str) -> None:
    try:
        is_rgb(compressed_to_rgb(array.array("B", content), name))
    except BadImageError as error:
        is_one_line(error)


TOKENS = ["<loc0001>", "<image>", "<bos>", "<eos>", "<pad>", "assistant: ", "user: "]
STRANGE = ["\n", "\x00", "\x1b[31m", "\u202e", "\ud800", "\N{ROBOT FACE}", "e\u0301", "\u4e0d"]
SHELL = ["%s", "{}", "$(reboot)", "`", "';--", "../"]
PLAIN = ["block", "yes", "no", "stop", "the left one"]
pieces = st.sampled_from([*TOKENS, *STRANGE, *SHELL, *PLAIN])
words = st.one_of(st.text(max_size=60), st.lists(pieces, max_size=30).map(" ".join))
long_words = st.builds(lambda text, times: text * times, words, st.sampled_from((1, 1, 1, 40)))


@pytest.fixture(scope="module")
def processor(random_model: Path) -> Any:
    return load_processor(random_model)


@cases(400)
@given(long_words, long_words)
def test_any_words_are_a_dialogue_or_refused_and_never_special_tokens(
    processor: Any, request_: str, answer: str
) -> None:
    try:
        dialogue = Dialogue(request_)
        dialogue.add_question("which one?")
        dialogue.add_answer(answer)
    except (EmptyExpressionError, BadExpressionError) as error:
        is_one_line(error)
        return
    assert all(0 < len(turn.text) <= MAX_TEXT for turn in dialogue.turns)
    assert dialogue.context().isprintable()
    assert clean_text(dialogue.request) == dialogue.request
    prompts = encode_prompts(processor, "clarify", [dialogue.context()])
    ids = prompts.input_ids[0].tolist()
    tokenizer = processor.tokenizer
    special = {*tokenizer.all_special_ids, *tokenizer.convert_tokens_to_ids(list(LOCATIONS))}
    special = (special | {processor.image_token_id}) - {tokenizer.unk_token_id}
    plain = encode_prompts(processor, "clarify", ["block"]).input_ids[0].tolist()
    assert [i for i in ids if i in special] == [i for i in plain if i in special]
    said = read(answer, ("the left one", "the right one"), request_)
    assert said.text in answer


@cases(60)
@given(words, st.integers(0, 3))
def test_any_words_about_any_picture_get_a_reply(clue: Clue, text: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = tuple(int(n) for n in rng.integers(1, 90, 2))
    view = clue.look(rng.integers(0, 256, (*size, 3), dtype=np.uint8))
    try:
        dialogue = Dialogue(text)
    except (EmptyExpressionError, BadExpressionError):
        return
    reply = clue.reply(view, dialogue)
    assert 0 <= reply.ambiguity.probability <= 1
    if isinstance(reply, Grounding):
        assert 0 <= reply.box.x_min < reply.box.x_max <= view.width
        assert 0 <= reply.box.y_min < reply.box.y_max <= view.height
