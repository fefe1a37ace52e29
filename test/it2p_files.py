"""A small data set of our own in IT2P's layout: two drawn photographs and their files."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

TABLE = (12, 12, 18)
PAINT = {
    "red": (190, 40, 40),
    "green": (22, 62, 44),
    "blue": (30, 70, 150),
    "yellow": (235, 220, 110),
    "purple": (46, 28, 62),
}
Point = tuple[int, int]


def photograph(blocks: list[tuple[str, Point]], side: int = 36) -> npt.NDArray[np.uint8]:
    """Squares of the given colours centred on the given points of a dark table, 250 x 250."""
    picture = np.full((250, 250, 3), TABLE, np.uint8)
    half = side // 2
    for color, (x, y) in blocks:
        picture[y - half : y + half, x - half : x + half] = PAINT[color]
    return picture


def python2_npz(words: dict[str, list[str]]) -> bytes:
    """An .npz as the data set's authors' NumPy wrote it: a pickled 0-d object array, by hand."""

    def text(value: str) -> bytes:
        return b"U" + bytes([len(value)]) + value.encode()

    pickled = b"\x80\x02cnumpy.core.multiarray\n_reconstruct\nq\x01cnumpy\nndarray\nq\x02K\x00\x85"
    pickled += b"U\x01b\x87Rq\x03(K\x01)cnumpy\ndtype\nq\x04U\x02O8K\x00K\x01\x87Rq\x05(K\x03"
    pickled += b"U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK?tb\x89]q\x06}q\x07("
    for command, answers in words.items():
        pickled += text(command + "\n") + b"](" + b"".join(text(a) for a in answers) + b"e"
    return npz_of(pickled + b"uatb.")


def npz_of(pickled: bytes) -> bytes:
    """An .npz file that holds one object array with this pickle inside."""
    header = b"{'descr': '|O', 'fortran_order': False, 'shape': (), }"
    header += b" " * (-(len(header) + 11) % 16) + b"\n"
    array = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + pickled
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("arr_0.npy", array)
    return packed.getvalue()


def write_it2p(root: Path) -> Path:
    """Write the data set under ``root`` and return ``root``."""
    data = root / "data"
    for folder in ("train_img", "train_script", "script_ambiguous", "question_ambiguous"):
        (data / folder).mkdir(parents=True)
    (data / "test_simulator").mkdir()
    blocks: list[tuple[str, Point]] = [
        ("yellow", (50, 60)),
        ("purple", (60, 180)),
        ("red", (200, 100)),
    ]
    Image.fromarray(photograph(blocks)).save(data / "train_img" / "0001.png")
    (data / "train_script" / "0001.txt").write_text(
        "50 60 pick up the yellow block\n"
        "52 61 pick up the block which color is yellow\n"
        "60 180 pick up the purple block below the yellow block\n"
        "200 100 pick up the red block\n"
        "200 100 pick up the block between the purple block and the yellow block\n"
    )
    (data / "script_ambiguous" / "0001.txt").write_text(
        "pick up the left block\npick up the block on the left\n"
    )
    (data / "question_ambiguous" / "0001.npz").write_bytes(
        python2_npz(
            {
                "pick up the left block": ["upper", "lower", "yellow", "purple"],
                "pick up the block on the left": ["upper", "lower"],
            }
        )
    )
    twins: list[tuple[str, Point]] = [
        ("green", (60, 50)),
        ("green", (190, 200)),
        ("blue", (60, 200)),
    ]
    Image.fromarray(photograph(twins)).save(data / "train_img" / "0002.png")
    (data / "train_script" / "0002.txt").write_text(
        "60 50 pick up the upper green block\n"
        "190 200 pick up the lower green block\n"
        "60 200 pick up the blue block\n"
    )
    (data / "script_ambiguous" / "0002.txt").write_text("pick up the green block\n")
    (data / "question_ambiguous" / "0002.npz").write_bytes(
        python2_npz({"pick up the green block": ["upperleft", "lowerright"]})
    )
    (data / "test_simulator" / "0002.txt").write_text(
        "61,51,pick up the green block,green,upperleft upper left\n"
        "190,199,pick up the green block,green,lowerright lower right\n"
    )
    return root
