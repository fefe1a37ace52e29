# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""PaliGemma 2 as OpenVINO graphs, made of the weights in a model folder (section III).

`vision` is SigLIP with its stem and the projector. The decoder is cut at the blocks that a detector
reads: `segment` runs the blocks between two cuts, `attend` reads one block's attention (eq. 1, eq.
2, min-max, the CNN), `head` gives the next token's logits. So the decoder's weights are held once,
whatever is asked. The LoRA matrices are inputs of the graphs: both adapters share the base.

Shapes: B prompts, T tokens, P cached tokens, S = P + T, D the decoder's width, K key/value heads, G
query heads a key/value head, d the head size, N image tokens, r the rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from clue_ros.model.backbone import grid_side
from clue_ros.model.details import details_in, has_patches
from clue_ros.model.quiet_openvino import import_openvino
from clue_ros.model.shapes import SCALE
from clue_ros.model.tensors import Mapped

import_openvino()

import openvino  # noqa: E402
from openvino import opset13 as op  # noqa: E402

Node = Any  # an output of the graph
Array = npt.NDArray[Any]
EPS, FLAT = 1e-8, 1e-12  # of eq. 1; added to a map's range
PROJECTIONS = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "o": ("self_attn.o_proj",),
    "gate": ("mlp.gate_proj",),
    "up": ("mlp.up_proj",),
    "down": ("mlp.down_proj",),
}
"""The adapted products of a block. Queries, keys and values are one product. Gate and up are two:
OpenVINO computes the activation within the product of the gate."""
TEXT, TOWER = "language_model.model.", "vision_tower."


class Weights:
    """A model's weights as constants of graphs, in the files' own memory.

    merged: those that take the place of some, such as a projection with an adapter added.
    """

    def __init__(
        self, stored: Mapping[str, Mapped], merged: Mapping[str, Mapped] = MappingProxyType({})
    ) -> None:
        self._stored, self._merged = stored, merged

    def __contains__(self, name: str) -> bool:
        return name in self._stored

    def constant(self, name: str, rows: slice = slice(None)) -> Node:
        """A weight as float32, converted in the graph where the file has 16 or 8 bits."""
        return self.joined([name], rows)

    def joined(self, names: Sequence[str], rows: slice = slice(None)) -> Node:
        """Weights (O_i, I) one above the other, as float32. rows: those of each that are wanted.

        They are joined before they are converted: only then OpenVINO keeps 16, 8 and 4 bits.
        """
        kinds = {self._get(name).kind for name in names}
        if len(kinds) > 1:
            return op.concat([self.constant(name, rows) for name in names], 0)
        if "U8" in kinds:
            return self._of_4_bits(names, rows)
        joined = _above([self._constant(name, rows) for name in names])
        if "I8" in kinds:  # OpenVINO knows a product with a scale by itself
            scales = [op.constant(self._stored[name + SCALE].values[rows]) for name in names]
            return op.multiply(op.convert(joined, "f32"), _above(scales))
        return joined if "F32" in kinds else _widened(joined)

    def _of_4_bits(self, names: Sequence[str], rows: slice) -> Node:
        """OpenVINO has no concatenation of 4 bits: the bytes are joined before."""
        packed = np.concatenate([self._stored[name].values[rows] for name in names])
        scales = np.concatenate([self._stored[name + SCALE].values[rows] for name in names])
        size, groups = 2 * packed.shape[1], scales.shape[1]
        shape = openvino.Shape([len(packed), groups, size // groups])
        tensor = openvino.Tensor(packed, shape, openvino.Type.i4)
        grouped = op.constant(tensor, shared_memory=False)  # nothing else keeps what was joined
        scales = op.constant(scales, shared_memory=False)
        scaled = op.multiply(op.convert(grouped, "f32"), scales)
        return op.reshape(scaled, _ints(len(packed), size), False)

    def _get(self, name: str) -> Mapped:
        return self._merged.get(name) or self._stored[name]

    def _constant(self, name: str, rows: slice) -> Node:
        stored = self._get(name)
        values = stored.values[rows]
        if stored.kind == "BF16":
            tensor = openvino.Tensor(values, openvino.Shape(values.shape), openvino.Type.bf16)
        else:
            tensor = openvino.Tensor(values, shared_memory=True)
        # What was merged is not kept anywhere else.
        return op.constant(tensor, shared_memory=name not in self._merged)


def _above(parts: Sequence[Node]) -> Node:
    return parts[0] if len(parts) == 1 else op.concat(list(parts), 0)


def _widened(constant: Node) -> Node:
    """Weights of 16 bits as float32, which stay 16 bits in a compiled graph.

    OpenVINO keeps what has this mark (its `mark_as_decompression`), and writes float32 otherwise.
    """
    node = op.convert(constant, "f32")
    node.get_rt_info()["decompression_0"] = ""
    return node


def _number(value: float) -> Node:
    return op.constant(np.float32(value))


def _ints(*values: int) -> Node:
    return op.constant(np.array(values, np.int64))


def _input(name: str, *shape: int, kind: Any = np.float32) -> Node:
    node = op.parameter(list(shape), kind)
    node.set_friendly_name(name)
    node.output(0).set_names({name})
    return node


def _result(name: str, node: Node) -> Node:
    node.output(0).set_names({name})
    return op.result(node)


# ------------------------------------------------------------------------------------- vision


def _convolution(
    weights: Weights, name: str, picture: Node, stride: int, padding: str | None
) -> Node:
    """A convolution with a bias; padding "same_upper" is TensorFlow's, None is none."""
    kernel = weights.constant(f"{name}.weight")
    zero = [0, 0]
    settings = (picture, kernel, [stride, stride], zero, zero, [1, 1])
    found = op.convolution(*settings, auto_pad=padding or "explicit")
    bias = op.reshape(weights.constant(f"{name}.bias"), _ints(1, -1, 1, 1), False)
    return op.add(found, bias)


def _depthwise(weights: Weights, name: str, picture: Node, stride: int) -> Node:
    kernel = weights.constant(f"{name}.weight")  # (C, 1, k, k) -> (C, 1, 1, k, k)
    kernel = op.unsqueeze(kernel, _ints(1))
    found = op.group_convolution(
        picture, kernel, [stride, stride], [0, 0], [0, 0], [1, 1], auto_pad="same_upper"
    )
    bias = op.reshape(weights.constant(f"{name}.bias"), _ints(1, -1, 1, 1), False)
    return op.add(found, bias)


def _relu6(node: Node) -> Node:
    return op.clamp(node, 0.0, 6.0)


def _stages(weights: Weights, path: str, sizes: Any, picture: Node) -> Iterator[Node]:
    """Each stage's output of a stem's frozen network (`conv_stem.ConvStem`)."""
    features = _relu6(_convolution(weights, f"{path}first", picture, 2, "same_upper"))
    channels = int(sizes["first"])
    for number, (blocks, _kernel, stride, expansion, out) in enumerate(sizes["stages"]):
        for block in range(blocks):
            name, step = f"{path}stages.{number}.{block}.", 1 if block else stride
            wide = features
            if expansion > 1:
                wide = _relu6(_convolution(weights, f"{name}expand", features, 1, None))
            wide = _relu6(_depthwise(weights, f"{name}depthwise", wide, step))
            narrow = _convolution(weights, f"{name}project", wide, 1, None)
            features = op.add(narrow, features) if step == 1 and channels == out else narrow
            channels = out
        yield features


def _unit(level: Node, fold: int) -> Node:
    """Cells folded into channels, of unit size."""
    if fold > 1:
        level = op.space_to_depth(level, "depth_first", fold)
    return op.mvn(level, _ints(1), True, 1e-5, "inside_sqrt")


def _levels(weights: Weights, path: str, vision: Any, picture: Node) -> list[Node]:
    """Frozen features of a picture (`conv_stem.ConvStem.levels`)."""
    sizes, patch = vision.conv_stem, vision.patch_size
    grid, side = vision.image_size // patch, -(-vision.image_size // 2)
    reduced, levels = 2, []
    outputs = _stages(weights, path, sizes, picture)
    for number, (features, stage) in enumerate(zip(outputs, sizes["stages"], strict=True)):
        reduced *= stage[2]
        side = -(-side // stage[2])
        if number not in sizes["read"]:
            continue
        fold = max(1, patch // reduced)
        level = _unit(features, fold)
        if side // fold != grid:
            level = op.interpolate(
                level,
                _ints(grid, grid),
                "linear_onnx",
                "sizes",
                axes=_ints(2, 3),
                coordinate_transformation_mode="half_pixel",
            )
        levels.append(level)
    return levels


def _stem(weights: Weights, path: str, vision: Any, picture: Node, details: Node | None) -> Node:
    """Frozen features of a picture projected to the tower's width (`conv_stem.ConvStem`)."""
    levels = _levels(weights, path, vision, picture)
    seen = op.concat(levels if details is None else [*levels, details], 1)
    projected = _convolution(weights, path.removesuffix("."), seen, 1, None)
    if not has_patches(vision.conv_stem):
        return projected
    patches = _convolution(weights, f"{path}patches", picture, vision.patch_size, None)
    return op.add(projected, patches)


def levels_graph(weights: Weights, config: Any) -> openvino.Model:
    """Pixels (n, 3, S, S) in -1..1 -> the stem's frozen features `levels` (n, C, g, g)."""
    vision = config.vision_config
    pixels = _input("pixels", -1, 3, vision.image_size, vision.image_size)
    levels = _levels(weights, f"{TOWER}embeddings.patch_embedding.", vision, pixels)
    return openvino.Model([_result("levels", op.concat(levels, 1))], [pixels], "levels")


def details_graph(weights: Weights, config: Any) -> openvino.Model:
    """A picture (1, 3, h, w) in -1..1 at its own aspect -> `details` (1, C, g, g) of the stem.

    rows0, columns0, rows1, ...: of each stage that is read, the matrices of `details.averaging`.
    """
    vision = config.vision_config
    details, grid = details_in(vision), vision.image_size // vision.patch_size
    assert details is not None
    picture = _input("picture", 1, 3, -1, -1)
    path = f"{TOWER}embeddings.patch_embedding."
    outputs = list(_stages(weights, path, vision.conv_stem, picture))
    inputs, levels = [picture], []
    for place, (stage, fold) in enumerate(details.read):
        rows = _input(f"rows{place}", fold * grid, -1)
        columns = _input(f"columns{place}", fold * grid, -1)
        inputs += [rows, columns]
        across = op.matmul(outputs[stage], columns, False, True)
        levels.append(_unit(op.matmul(rows, across, False, False), fold))
    return openvino.Model([_result("details", op.concat(levels, 1))], inputs, "details")


def stages_graph(weights: Weights, config: Any, stages: Sequence[int]) -> openvino.Model:
    """A picture (1, 3, h, w) in -1..1 -> `stage0`, `stage1`, ...: outputs of the stem's stages.

    (1, C, h', w') each, of unit size.
    """
    picture = _input("picture", 1, 3, -1, -1)
    path = f"{TOWER}embeddings.patch_embedding."
    outputs = list(_stages(weights, path, config.vision_config.conv_stem, picture))
    results = [_result(f"stage{i}", _unit(outputs[stage], 1)) for i, stage in enumerate(stages)]
    return openvino.Model(results, [picture], "stages")


def box_head_graph(
    weights: Mapping[str, Array], channels: Sequence[int], dilations: Sequence[int]
) -> openvino.Model:
    """Levels `level0` to `level2` (1, C, h, w) -> the output `out` (h, w, 6) of a box head.

    weights: of the head by their names. channels: of each level. The finest level's cells become
    channels of the middle one's, as by torch's `pixel_unshuffle`; the coarsest one's are repeated.
    """
    levels = [_input(f"level{n}", 1, count, -1, -1) for n, count in enumerate(channels)]
    fine, middle, coarse = levels
    size = op.slice(op.shape_of(middle), _ints(2), _ints(4), _ints(1))
    settings = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    repeated = op.interpolate(coarse, size, "nearest", "sizes", axes=_ints(2, 3), **settings)

    def convolved(name: str, seen: Node, dilation: int = 1) -> Node:
        kernel, step = weights[f"{name}.weight"], [dilation, dilation]
        padding = [0, 0] if kernel.ndim == 2 else step
        kernel = kernel.reshape(*kernel.shape[:2], *kernel.shape[2:] or (1, 1))
        found = op.convolution(seen, op.constant(kernel), [1, 1], padding, padding, step)
        return op.add(found, op.constant(weights[f"{name}.bias"].reshape(1, -1, 1, 1)))

    seen = op.concat([op.space_to_depth(fine, "depth_first", 2), middle, repeated], 1)
    hidden = op.relu(convolved("inp", seen))
    for number, dilation in enumerate(dilations):
        hidden = op.add(hidden, op.relu(convolved(f"blocks.{number}", hidden, dilation)))
    out = op.transpose(op.squeeze(convolved("out", hidden), _ints(0)), _ints(1, 2, 0))
    return openvino.Model([_result("out", out)], levels, "box_head")


def _linear(weights: Weights, name: str, hidden: Node) -> Node:
    found = op.matmul(hidden, weights.constant(f"{name}.weight"), False, True)
    return op.add(found, weights.constant(f"{name}.bias"))


def _layer_norm(weights: Weights, name: str, hidden: Node, eps: float) -> Node:
    normed = op.mvn(hidden, _ints(-1), True, eps, "inside_sqrt")
    scaled = op.multiply(normed, weights.constant(f"{name}.weight"))
    return op.add(scaled, weights.constant(f"{name}.bias"))


def vision_graph(weights: Weights, config: Any) -> openvino.Model:
    """Pixels (n, 3, S, S) in -1..1 -> features (n, N, D).

    details: (n, C, g, g), of a stem that reads them (`details_graph`).
    """
    vision = config.vision_config
    side, patch, width = vision.image_size, vision.patch_size, vision.hidden_size
    heads, eps = vision.num_attention_heads, vision.layer_norm_eps
    pixels = _input("pixels", -1, 3, side, side)
    path, inputs = f"{TOWER}embeddings.patch_embedding.", [pixels]
    if getattr(vision, "conv_stem", None):
        read = details_in(vision)
        if read is not None:
            channels, grid = read.channels(vision.conv_stem), side // patch
            inputs.append(_input("details", -1, channels, grid, grid))
        seen = _stem(weights, path, vision, pixels, inputs[1] if read is not None else None)
    else:
        seen = _convolution(weights, path.removesuffix("."), pixels, patch, None)
    tokens = (side // patch) ** 2
    hidden = op.transpose(op.reshape(seen, _ints(0, width, tokens), True), _ints(0, 2, 1))
    hidden = op.add(hidden, weights.constant(f"{TOWER}embeddings.position_embedding.weight"))
    split = _ints(0, tokens, heads, width // heads)
    for block in range(vision.num_hidden_layers):
        name = f"{TOWER}encoder.layers.{block}."
        normed = _layer_norm(weights, f"{name}layer_norm1", hidden, eps)
        q, k, v = (
            op.transpose(
                op.reshape(_linear(weights, f"{name}self_attn.{p}_proj", normed), split, True),
                _ints(0, 2, 1, 3),
            )
            for p in "qkv"
        )
        seen = op.scaled_dot_product_attention(q, k, v)
        seen = op.reshape(op.transpose(seen, _ints(0, 2, 1, 3)), _ints(0, tokens, width), True)
        hidden = op.add(hidden, _linear(weights, f"{name}self_attn.out_proj", seen))
        normed = _layer_norm(weights, f"{name}layer_norm2", hidden, eps)
        wide = op.gelu(_linear(weights, f"{name}mlp.fc1", normed), "tanh")
        hidden = op.add(hidden, _linear(weights, f"{name}mlp.fc2", wide))
    hidden = _layer_norm(weights, f"{TOWER}post_layernorm", hidden, eps)
    features = _linear(weights, "multi_modal_projector.linear", hidden)
    return openvino.Model([_result("features", features)], inputs, "vision")


# ------------------------------------------------------------------------------------ decoder


class Decoder:
    """Builds the decoder's graphs. rank: of the LoRA matrices that they take; 0: none."""

    def __init__(self, weights: Weights, config: Any, rank: int) -> None:
        self.weights, self.rank = weights, rank
        text = config.text_config
        self.width, self.mlp = text.hidden_size, text.intermediate_size
        self.heads, self.shared = text.num_attention_heads, text.num_key_value_heads
        self.size, self.eps = text.head_dim, text.rms_norm_eps
        self.groups = self.heads // self.shared
        self.scale = text.query_pre_attn_scalar**-0.5
        self.cap, self.last_cap = text.attn_logit_softcapping, text.final_logit_softcapping
        self.grid, self.blocks = grid_side(config), int(text.num_hidden_layers)

    def lora_shapes(self, part: str) -> tuple[tuple[int, int], tuple[int, int]]:
        """The shapes of a product's matrices A (n r, I) and B (O, n r), n projections in one."""
        inner = self.heads * self.size
        shapes = {
            "qkv": (self.width, inner + 2 * self.shared * self.size, 3),
            "o": (inner, self.width, 1),
            "gate": (self.width, self.mlp, 1),
            "up": (self.width, self.mlp, 1),
            "down": (self.mlp, self.width, 1),
        }
        taken, given, count = shapes[part]
        return (count * self.rank, taken), (given, count * self.rank)

    def segment(self, first: int, end: int) -> openvino.Model:
        """Blocks first..end - 1.

        hidden (B, T, D), mask (B, 1, 1 or T, S) added to the attention logits, cos and sin (B or 1,
        1, T, d), keys and values (end - first, B, K, P, d) and the LoRA matrices -> the hidden
        states `through` the blocks, and keys and values of the T tokens.

        The last of all blocks takes rows (B, R), the tokens whose hidden states are wanted: nobody
        looks at the others. Its mask is one for all tokens, or R is T.
        """
        graph = _Inputs(self)
        rows = graph.add("rows", -1, -1, kind=np.int64) if end == self.blocks else None
        cache = (-1, -1, self.shared, -1, self.size)
        keys, values = graph.add("keys", *cache), graph.add("values", *cache)
        hidden, made = graph.hidden, []
        for place, block in enumerate(range(first, end)):
            past = [
                op.gather(kept, op.constant(np.int64(place)), _ints(0)) for kept in (keys, values)
            ]
            wanted = rows if block == end - 1 else None
            hidden, new = self._block(graph, block, hidden, past, wanted)
            made.append(new)
        outputs = [_result("through", hidden)]
        for name, side in (("new_keys", 0), ("new_values", 1)):
            parts = [op.unsqueeze(new[side], _ints(0)) for new in made]
            outputs.append(_result(name, op.concat(parts, 0)))
        return openvino.Model(outputs, graph.inputs, f"blocks_{first}_{end}")

    def attend(
        self, block: int, cnn: Mapping[str, Array] | None, temperature: float
    ) -> openvino.Model:
        """Where the words look at `block`, and what the CNN makes of it (eq. 1, 2; III-B.2).

        hidden (B, T, D) before the block, mask, cos, sin and LoRA matrices as for `segment`, words
        (B, T) 1 for the words Qx -> map (B, g, g) in 0..1, and with a CNN probability (B,).
        """
        graph = _Inputs(self)
        words = graph.add("words", -1, -1)
        query, key, _ = self._projected(graph, block, graph.hidden)
        chances = op.softmax(self._logits(query, key, graph.mask), -1)  # (B, K, G, T, S)
        image = self.grid**2
        over = op.slice(chances, _ints(0), _ints(image), _ints(1), _ints(4))
        share = op.divide(over, op.add(op.reduce_sum(over, _ints(4), True), _number(EPS)))
        weight = op.unsqueeze(words, _ints(1, 2, 4))  # (B, 1, 1, T, 1)
        total = op.reduce_sum(op.multiply(share, weight), _ints(1, 2, 3), False)
        count = op.maximum(op.reduce_sum(words, _ints(1), True), _number(1.0))
        flat = op.divide(total, op.multiply(count, _number(float(self.heads))))
        low, high = op.reduce_min(flat, _ints(1), True), op.reduce_max(flat, _ints(1), True)
        spread = op.add(op.subtract(high, low), _number(FLAT))
        shape = _ints(-1, self.grid, self.grid)
        stretched = op.reshape(op.divide(op.subtract(flat, low), spread), shape, False)
        outputs = [_result("map", stretched)]
        if cnn is not None:
            outputs.append(_result("probability", _cnn(stretched, cnn, self.grid, temperature)))
        return openvino.Model(outputs, graph.inputs, f"attend_{block}")

    def head(self, rows: slice = slice(None)) -> openvino.Model:
        """Hidden (B, D) after the last block -> logits (B, V) of the next token, capped.

        rows: those of the table that the logits are of.
        """
        hidden = _input("hidden", -1, self.width)
        normed = self._norm(f"{TEXT}norm", hidden)
        cap = self.last_cap
        if cap is not None:  # behind the product, OpenVINO makes a float32 table of it
            normed = op.multiply(normed, _number(1 / cap))
        name = "language_model.lm_head.weight"
        name = name if name in self.weights else f"{TEXT}embed_tokens.weight"
        logits = op.matmul(normed, self.weights.constant(name, rows), False, True)
        if cap is not None:
            logits = op.multiply(op.tanh(logits), _number(cap))
        return openvino.Model([_result("logits", logits)], [hidden], "head")

    def _norm(self, name: str, hidden: Node) -> Node:
        """Gemma's RMS norm, whose weights count from 1."""
        square = op.reduce_mean(op.multiply(hidden, hidden), _ints(-1), True)
        normed = op.divide(hidden, op.sqrt(op.add(square, _number(self.eps))))
        return op.multiply(normed, op.add(self.weights.constant(f"{name}.weight"), _number(1.0)))

    def _product(self, graph: _Inputs, block: int, part: str, hidden: Node) -> Node:
        layer = f"{TEXT}layers.{block}."
        names = [f"{layer}{name}.weight" for name in PROJECTIONS[part]]
        found = op.matmul(hidden, self.weights.joined(names), False, True)
        if not self.rank:
            return found
        a, b = self.lora_shapes(part)
        low = op.matmul(hidden, graph.add(f"{block}.{part}.a", *a), False, True)
        return op.add(found, op.matmul(low, graph.add(f"{block}.{part}.b", *b), False, True))

    def _projected(self, graph: _Inputs, block: int, hidden: Node) -> tuple[Node, Node, Node]:
        """Queries (B, K, G, T, d) and keys turned by their positions, and values (B, K, T, d)."""
        normed = self._norm(f"{TEXT}layers.{block}.input_layernorm", hidden)
        joined = self._product(graph, block, "qkv", normed)
        split = _ints(0, 0, self.heads + 2 * self.shared, self.size)
        each = op.transpose(op.reshape(joined, split, True), _ints(0, 2, 1, 3))
        parts = op.variadic_split(each, _ints(1), _ints(self.heads, self.shared, self.shared))
        query, key = (self._turned(graph, parts.output(i)) for i in range(2))
        query = op.reshape(query, _ints(0, self.shared, self.groups, -1, self.size), True)
        return query, key, parts.output(2)

    def _turned(self, graph: _Inputs, heads: Node) -> Node:
        """Rotary positions: x cos + rotate_half(x) sin."""
        half, axis = self.size // 2, _ints(3)
        first = op.slice(heads, _ints(0), _ints(half), _ints(1), axis)
        second = op.slice(heads, _ints(half), _ints(2**31 - 1), _ints(1), axis)
        turned = op.concat([op.multiply(second, _number(-1.0)), first], -1)
        return op.add(op.multiply(heads, graph.cos), op.multiply(turned, graph.sin))

    def _logits(self, query: Node, key: Node, mask: Node) -> Node:
        """Attention logits (B, K, G, T, S) with Gemma's softcap and the mask."""
        key = op.unsqueeze(key, _ints(2))
        logits = op.multiply(op.matmul(query, key, False, True), _number(self.scale))
        return op.add(_capped(logits, self.cap), op.unsqueeze(mask, _ints(1)))

    def _block(
        self,
        graph: _Inputs,
        block: int,
        hidden: Node,
        past: Sequence[Node],
        rows: Node | None,
    ) -> tuple[Node, tuple[Node, Node]]:
        name = f"{TEXT}layers.{block}."
        query, key, value = self._projected(graph, block, hidden)
        if rows is not None:
            query = op.gather(query, rows, _ints(3), 1)
            hidden = op.gather(hidden, rows, _ints(1), 1)
        keys, values = op.concat([past[0], key], 2), op.concat([past[1], value], 2)
        chances = op.softmax(self._logits(query, keys, graph.mask), -1)
        seen = op.matmul(chances, op.unsqueeze(values, _ints(2)), False, False)
        seen = op.reshape(seen, _ints(0, self.heads, -1, self.size), True)
        seen = op.reshape(
            op.transpose(seen, _ints(0, 2, 1, 3)), _ints(0, 0, self.heads * self.size), True
        )
        out = self._product(graph, block, "o", seen)
        hidden = op.add(hidden, self._norm(f"{name}post_attention_layernorm", out))
        normed = self._norm(f"{name}pre_feedforward_layernorm", hidden)
        gate, up = (self._product(graph, block, part, normed) for part in ("gate", "up"))
        wide = op.multiply(op.gelu(gate, "tanh"), up)
        out = self._product(graph, block, "down", wide)
        return op.add(hidden, self._norm(f"{name}post_feedforward_layernorm", out)), (key, value)


class _Inputs:
    """The inputs of a decoder's graph."""

    def __init__(self, decoder: Decoder) -> None:
        self.inputs: list[Node] = []
        self.hidden = self.add("hidden", -1, -1, decoder.width)
        self.mask = self.add("mask", -1, 1, -1, -1)
        self.cos = self.add("cos", -1, 1, -1, decoder.size)
        self.sin = self.add("sin", -1, 1, -1, decoder.size)

    def add(self, name: str, *shape: int, kind: Any = np.float32) -> Node:
        self.inputs.append(_input(name, *shape, kind=kind))
        return self.inputs[-1]


def _capped(logits: Node, cap: float | None) -> Node:
    if cap is None:
        return logits
    return op.multiply(op.tanh(op.multiply(logits, _number(1 / cap))), _number(cap))


def _cnn(maps: Node, weights: Mapping[str, Array], grid: int, temperature: float) -> Node:
    """`detector.CnnHead`: maps (B, g, g) -> probability (B,), divided by the temperature."""

    def convolved(place: int, seen: Node) -> Node:
        kernel = op.constant(weights[f"features.{place}.weight"].astype(np.float32))
        found = op.convolution(seen, kernel, [1, 1], [1, 1], [1, 1], [1, 1])
        bias = weights[f"features.{place}.bias"].astype(np.float32).reshape(1, -1, 1, 1)
        return op.relu(op.add(found, op.constant(bias)))

    seen = convolved(2, convolved(0, op.unsqueeze(maps, _ints(1))))
    pooled = op.max_pool(seen, [2, 2], [1, 1], [0, 0], [0, 0], [2, 2], "floor", "explicit")
    seen = convolved(5, pooled.output(0))
    parts = op.adaptive_avg_pool(seen, _ints(4, 4))
    flat = op.concat(
        [
            op.reshape(parts, _ints(0, -1), True),
            op.reduce_mean(seen, _ints(2, 3), False),
            op.reduce_max(seen, _ints(2, 3), False),
        ],
        1,
    )
    for place in (0, 3):
        if place:
            flat = op.relu(flat)
        matrix = op.constant(weights[f"decide.{place}.weight"].astype(np.float32))
        bias = op.constant(weights[f"decide.{place}.bias"].astype(np.float32))
        flat = op.add(op.matmul(flat, matrix, False, True), bias)
    return op.sigmoid(op.multiply(op.squeeze(flat, _ints(1)), _number(1 / temperature)))
