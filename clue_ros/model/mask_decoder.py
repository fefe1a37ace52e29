# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""PaliGemma's mask decoder: sixteen segment tokens -> a 64x64 mask inside a box.

PaliGemma answers "segment the apple" with four location tokens and sixteen segment tokens
("<seg000>".."<seg127>"), which are indices into the codebook of a VQ-VAE of masks (Ning et al.
2023, "All in Tokens"). Its decoder is published apart from the model, as `vae-oid.npz`
(gs://big_vision/paligemma/vae-oid.npz, and in the repositories that use it). This is the same
network in PyTorch, with the names that its weights have in that file:

    _vq_vae._embedding         (128, 512)        the codebook; 16 entries make a 4x4 grid
    decoder.0                  512 -> 128        convolution 1x1, ReLU
    decoder.2.net, .3.net      128 -> 128        residual blocks: 3x3, ReLU, 3x3, ReLU, 1x1
    decoder.4, .6, .8, .10     128, 64, 32, 16   transposed convolutions 4x4, stride 2, ReLU
    decoder.12                 16 -> 1           convolution 1x1

each with .weight (PyTorch's order of dimensions) and .bias, float32. Here they lie in a safetensors
file, which `clue data mask-decoder vae-oid.npz --out mask_decoder.safetensors` writes; the file's
encoder is left out.
"""

from __future__ import annotations

import itertools
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from clue_ros.dialogue.types import Box
from clue_ros.errors import ModelError
from clue_ros.model.loading import MASK_DECODER, check_shapes, first_line, replacing, shapes
from clue_ros.model.masks import Mask, box_slices

CODES, WIDTH = 128, 512  # of the codebook; of one of its entries
GRID = 4  # tokens are the cells of a 4x4 grid, row by row
CHANNELS = (128, 128, 64, 32, 16)  # before the first and after each transposed convolution
MASK_SIDE = GRID * 2 ** (len(CHANNELS) - 1)  # 64 pixels
CODEBOOK = "_vq_vae._embedding"


class _ResidualBlock(nn.Module):
    """x + net(x), (n, C, h, w)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add what the convolutions find."""
        return x + self.net(x)  # type: ignore[no-any-return]


class MaskDecoder(nn.Module):
    """The decoder of the VQ-VAE; float32, on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("codebook", torch.zeros(CODES, WIDTH))
        first = CHANNELS[0]
        layers = [nn.Conv2d(WIDTH, first, 1), nn.ReLU()]
        layers += [_ResidualBlock(first), _ResidualBlock(first)]
        for before, after in itertools.pairwise(CHANNELS):
            layers += [nn.ConvTranspose2d(before, after, 4, stride=2, padding=1), nn.ReLU()]
        self.decoder = nn.Sequential(*layers, nn.Conv2d(CHANNELS[-1], 1, 1))

    @torch.inference_mode()
    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Segment tokens int64 (n, 16) of 0..127 -> masks (n, 64, 64), about -1 to 1.

        Above 0 is the object.
        """
        grid = self.codebook[tokens].reshape(-1, GRID, GRID, WIDTH)  # type: ignore[index]
        return self.decoder(grid.permute(0, 3, 1, 2))[:, 0]  # type: ignore[no-any-return]

    def mask(self, tokens: Sequence[int], box: Box, width: int, height: int) -> Mask:
        """The mask of sixteen tokens that belong to a box, bool (height, width) of the image.

        The 64x64 mask is stretched over the box (bilinear), then cut at 0.
        """
        values = self(torch.tensor([list(tokens)]))[0].numpy()
        rows, columns = box_slices(box, width, height)
        size = (columns.stop - columns.start, rows.stop - rows.start)
        mask = np.zeros((height, width), dtype=np.bool_)
        mask[rows, columns] = cv2.resize(values, size, interpolation=cv2.INTER_LINEAR) > 0
        return mask

    def memory_bytes(self) -> int:
        """Bytes of the weights."""
        return sum(weight.numel() * weight.element_size() for weight in self.state_dict().values())

    def published(self) -> dict[str, torch.Tensor]:
        """The weights by their names in the file."""
        return {_published(name): weight for name, weight in self.state_dict().items()}


def _published(name: str) -> str:
    return CODEBOOK if name == "codebook" else name


def load_mask_decoder(path: str | Path) -> MaskDecoder:
    """The decoder from a safetensors file. Raises ModelError naming what is missing or wrong."""
    path = Path(path).expanduser()
    if path.suffix == ".npz":
        raise ModelError(f"{path} is the published file: {_how_to_convert(path)}")
    if not path.is_file():
        raise ModelError(
            f"there is no mask decoder {path}: convert the published vae-oid.npz"
            " (`clue data mask-decoder --help`)"
        )
    try:
        found = load_file(path)
    except (SafetensorError, OSError) as error:
        raise ModelError(f"cannot read the mask decoder {path}: {first_line(error)}") from error
    return _built(path, found)


def convert_mask_decoder(npz: str | Path, out: str | Path) -> None:
    """Write the decoder of the published `vae-oid.npz` as safetensors; nothing is unpickled.

    Raises ModelError for a file that is no such archive, lacks an array or has one of another
    shape, and OSError where `out` cannot be written.
    """
    npz, out = Path(npz).expanduser(), Path(out).expanduser()
    model = _built(npz, _read_npz(npz))
    with replacing(out) as partial:
        save_file(
            {name: weight.contiguous() for name, weight in model.published().items()},
            partial,
            metadata={"format": "pt", "source": npz.name},
        )


def _how_to_convert(path: Path) -> str:
    return f"convert it with `clue data mask-decoder {path} --out {MASK_DECODER}`"


def _read_npz(path: Path) -> dict[str, torch.Tensor]:
    """The decoder's arrays of an npz file, as float32. Raises ModelError."""
    wanted = MaskDecoder().published()
    found: dict[str, torch.Tensor] = {}
    try:
        with np.load(path, allow_pickle=False) as archive:
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ModelError(f"{path} is one array, not an archive (.npz) of the decoder's")
            for name in wanted:
                if name in archive:
                    found[name] = _as_weight(path, name, archive[name])
    except FileNotFoundError as error:
        raise ModelError(f"there is no file {path}") from error
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ModelError(
            f"cannot read {path} as an archive of plain arrays: {first_line(error)}"
        ) from error
    return found


def _as_weight(path: Path, name: str, array: npt.NDArray[np.generic]) -> torch.Tensor:
    if array.dtype.kind != "f":
        raise ModelError(f"{path}: {name} holds {array.dtype}, want floating-point numbers")
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))


def _built(path: Path, found: dict[str, torch.Tensor]) -> MaskDecoder:
    """The network with these weights. Raises ModelError naming the one that does not fit."""
    model = MaskDecoder()
    wanted = model.published()
    check_shapes(path, shapes(found), shapes(wanted))
    for name in wanted:
        if not bool(torch.isfinite(found[name]).all()):
            raise ModelError(f"{path}: {name} holds a value that is no number")
    ours = {name: found[_published(name)].float() for name in model.state_dict()}
    model.load_state_dict(ours)
    return model.eval().requires_grad_(False)
