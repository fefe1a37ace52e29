"""Many queries in one sequence: the same as one by one, and PaliGemma's own mask at the end."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from drawn_scenes import random_scenes
from tiny_model import write_random_model
from torch import Tensor
from torch.nn import functional as F

from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.language.vocabulary import vocabulary
from clue_ros.lab.simulator.scene import Scene
from clue_ros.lab.simulator.worlds import BLOCKS
from clue_ros.lab.training import packing
from clue_ros.lab.training.decoder import held_out_losses
from clue_ros.lab.training.ivg import USUAL, Teaching, boxes_right, cross_entropy_sum
from clue_ros.lab.training.packing import (
    PackedDecoder,
    pack,
    packed_mask,
    patch_shares,
    pointer_maps,
    query_maps,
)
from clue_ros.lab.training.samples import Query, detect_query, list_query, scene_queries
from clue_ros.lab.training.vision import batch_tensor
from clue_ros.model.attention import image_attention
from clue_ros.model.location_tokens import decode_box
from clue_ros.model.prompts import Prompts, encode_prompts, load_processor
from clue_ros.model.torch_backbone import TorchModel, load_model

Batch = list[tuple[Scene, list[Query]]]
CPU = torch.device("cpu")
TOLERANCE = 2e-5  # of float32, through four blocks


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_model(tmp_path_factory.mktemp("model"), vocabulary())


@pytest.fixture(scope="module")
def processor(folder: Path) -> Any:
    return load_processor(folder)


@pytest.fixture(scope="module")
def backbone(folder: Path) -> TorchModel:
    """Random weights five times as large, so that attention is far from uniform."""
    backbone = load_model(folder)
    with torch.no_grad():
        for name, weight in backbone.model.named_parameters():
            if "layers" in name and weight.ndim == 2:
                weight.mul_(5)
    return backbone


@pytest.fixture
def decoder(backbone: TorchModel, processor: Any) -> PackedDecoder:
    """In float32 everywhere: bf16 would hide small mistakes."""
    return PackedDecoder(backbone.model, processor.tokenizer, CPU, "float32")


@pytest.fixture(scope="module")
def batch() -> Batch:
    """Two pictures with four queries each, of every task and of different lengths."""
    rng = np.random.default_rng(0)
    out = [(scene, scene_queries(scene, 4, rng, grammar_of())) for scene in random_scenes(2, 5)]
    assert all(len(queries) == 4 for _, queries in out)
    return out


def one_by_one(batch: Batch) -> Batch:
    return [(scene, [query]) for scene, queries in batch for query in queries]


def prompts_of(processor: Any, queries: list[Query]) -> Prompts:
    """What the run-time code makes of queries that all have the first one's form."""
    suffixes = [q.suffix for q in queries if q.suffix is not None]
    contexts = [q.context for q in queries]
    return encode_prompts(processor, queries[0].instruction, contexts, suffixes or None).to("cpu")


def by_form(batch: Batch) -> list[Batch]:
    """Queries one by one, those with one instruction and with (without) a suffix together."""
    groups: dict[tuple[str, bool], Batch] = {}
    for scene, (query,) in one_by_one(batch):
        groups.setdefault((query.instruction, query.suffix is None), []).append((scene, [query]))
    assert len(groups) >= 2
    return list(groups.values())


def both_ways(
    decoder: PackedDecoder, backbone: TorchModel, processor: Any, part: Batch
) -> tuple[Tensor, Any, Tensor, Any, Prompts]:
    """Hidden states and attention by the packed code and by the backbone, padding left out."""
    scenes = [scene for scene, _ in part]
    prompts = prompts_of(processor, [queries[0] for _, queries in part])
    with torch.no_grad():
        packed = pack(part, processor.tokenizer, backbone.grid)
        hidden, attention = decoder.run(decoder.features(scenes), packed, image_sees_prefix=True)
        features = backbone.look(batch_tensor(scenes, CPU))
        expected, maps = backbone.forward(features, prompts, output_attentions=True)
    return hidden, attention, expected, maps, prompts


def test_one_query_a_sequence_is_paligemma(
    decoder: PackedDecoder, backbone: TorchModel, processor: Any, batch: Batch
) -> None:
    for part in by_form(batch):
        hidden, attention, expected, maps, prompts = both_ways(decoder, backbone, processor, part)
        real = prompts.attention_mask.bool()
        assert hidden.shape == expected.shape
        torch.testing.assert_close(hidden[real], expected[real], atol=TOLERANCE, rtol=1e-4)
        for found, wanted in zip(attention.values(), maps, strict=True):
            n = decoder.tokens  # found: of the text's rows, over the image
            of_text = wanted[:, :, n:, :n]
            rows = real[:, None, n:, None].expand_as(of_text)
            torch.testing.assert_close(found[rows], of_text[rows], atol=TOLERANCE, rtol=1e-4)


def test_the_attention_that_is_taught_is_the_one_the_detector_reads(
    decoder: PackedDecoder, backbone: TorchModel, processor: Any, batch: Batch
) -> None:
    for part in by_form(batch):
        _, attention, _, _, prompts = both_ways(decoder, backbone, processor, part)
        packed = pack(part, processor.tokenizer, backbone.grid)
        found = query_maps(attention[decoder.block], packed)
        features = backbone.look(batch_tensor([scene for scene, _ in part], CPU))
        with torch.no_grad():
            half_depth = backbone.attention_at(decoder.block, features, prompts)
        expected = image_attention(half_depth, prompts.query_mask, backbone.grid).flatten(1)
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-4)
        torch.testing.assert_close(found.sum(1), torch.ones(len(found)), atol=1e-4, rtol=0)
        # a real difference between queries and patches, or the comparison would say nothing
        assert found.std(dim=1).min() > 1e-4


def test_the_adapters_attention_is_transformers_own(
    backbone: TorchModel, processor: Any, batch: Batch
) -> None:
    decoder = backbone.model.model.language_model
    for part in by_form(batch):
        prompts = prompts_of(processor, [queries[0] for _, queries in part])
        with torch.no_grad():
            features = backbone.look(batch_tensor([scene for scene, _ in part], CPU))
            expected = backbone.hidden_at(backbone.blocks - 1, features, prompts)
            with packing.training_attention(decoder):
                found = backbone.hidden_at(backbone.blocks - 1, features, prompts)
        real = prompts.attention_mask.bool()
        torch.testing.assert_close(found[0][real], expected[0][real], atol=TOLERANCE, rtol=1e-4)
        rows = real[:, None, :, None].expand_as(expected[1])
        torch.testing.assert_close(found[1][rows], expected[1][rows], atol=TOLERANCE, rtol=1e-4)


def test_without_the_prefix_the_image_sees_itself_only(
    decoder: PackedDecoder, backbone: TorchModel, processor: Any, batch: Batch
) -> None:
    part = one_by_one(batch)[:1]
    packed = pack(part, processor.tokenizer, backbone.grid)
    features = decoder.features([part[0][0]])
    with torch.no_grad():
        alone, _ = decoder.run(features, packed, image_sees_prefix=False)
        seen, _ = decoder.run(features, packed, image_sees_prefix=True)
    assert (alone - seen).abs().max() > 100 * TOLERANCE


@pytest.mark.parametrize("rows", [7, 64, 1000])
def test_packed_queries_do_not_see_each_other(
    decoder: PackedDecoder,
    backbone: TorchModel,
    processor: Any,
    batch: Batch,
    rows: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many rows of text a span of their attention has."""
    monkeypatch.setattr(packing, "ROWS", rows)
    tokenizer, grid, n = processor.tokenizer, backbone.grid, decoder.tokens
    scenes = [scene for scene, _ in batch]
    packed = pack(batch, tokenizer, grid)
    sequences = [b for b, (_, queries) in enumerate(batch) for _ in queries]
    single = pack(one_by_one(batch), tokenizer, grid)
    with torch.no_grad():
        features = decoder.features(scenes)
        together, seen = decoder.run(features, packed, image_sees_prefix=False)
        alone, seen_alone = decoder.run(features[sequences], single, image_sees_prefix=False)
    for i, (b, q) in enumerate(packed.map_rows.tolist()):
        mine, its_own = packed.owner[b] == q, single.owner[i] == 0
        assert packed.ids[b][mine].tolist() == single.ids[i][its_own].tolist()
        torch.testing.assert_close(
            together[b, n:][mine], alone[i, n:][its_own], atol=TOLERANCE, rtol=1e-4
        )
        torch.testing.assert_close(together[b, :n], alone[i, :n], atol=TOLERANCE, rtol=1e-4)
    block = decoder.block
    torch.testing.assert_close(
        query_maps(seen[block], packed),
        query_maps(seen_alone[block], single),
        atol=1e-6,
        rtol=1e-4,
    )
    torch.testing.assert_close(packed.maps, single.maps)
    torch.testing.assert_close(packed.points, single.points)
    torch.testing.assert_close(
        pointer_maps(seen[block + 1], packed),
        pointer_maps(seen_alone[block + 1], single),
        atol=1e-6,
        rtol=1e-4,
    )


def test_the_mask_position_by_position(processor: Any, batch: Batch) -> None:
    packed = pack(batch, processor.tokenizer, 8)
    n = 64
    prefix_mask = packed_mask(packed, n, image_sees_prefix=True)[:, 0]
    mask = packed_mask(packed, n, image_sees_prefix=False)[:, 0]
    assert mask[:, :, :n].all()
    assert not mask[:, :n, n:].any()
    for b in range(len(batch)):
        owner, suffix = packed.owner[b].tolist(), packed.types[b].tolist()
        for i, (mine, _) in enumerate(zip(owner, suffix, strict=True)):
            for j, (other, is_suffix) in enumerate(zip(owner, suffix, strict=True)):
                seen = mine >= 0 and mine == other and (not is_suffix or j <= i)
                assert bool(mask[b, n + i, n + j]) == seen
        in_prefix = [o >= 0 and not s for o, s in zip(owner, suffix, strict=True)]
        assert prefix_mask[b, :n, n:].any(0).tolist() == in_prefix


def test_the_words_loss_is_plain_cross_entropy_for_narrow_targets(
    decoder: PackedDecoder, backbone: TorchModel, processor: Any, batch: Batch
) -> None:
    part = [item for item in one_by_one(batch) if item[1][0].suffix is not None]
    instruction = part[0][1][0].instruction
    part = [item for item in part if item[1][0].instruction == instruction]
    prompts = prompts_of(processor, [queries[0] for _, queries in part])
    scenes = [scene for scene, _ in part]
    with torch.no_grad():
        found = held_out_losses(decoder, part, Teaching(sigma=0.01))
        hidden, _ = backbone.forward(backbone.look(batch_tensor(scenes, CPU)), prompts)
        logits = backbone.logits(hidden)
    expected = F.cross_entropy(logits[:, :-1].flatten(0, 1), prompts.labels[:, 1:].flatten())
    words = found["loss"] - USUAL.look * found["look"] - USUAL.point * found["point"]
    torch.testing.assert_close(words, expected, atol=1e-3, rtol=1e-3)


def test_location_targets_narrow_until_seven_tenths_of_a_stage() -> None:
    teaching = Teaching(sigma=1.5, first_sigma=6.0)
    widths = [teaching.at(progress).sigma for progress in (0.0, 0.35, 0.7, 1.0)]
    assert widths == pytest.approx([6.0, 3.0, 1.5, 1.5])
    assert Teaching(sigma=1.5, first_sigma=1.0).at(0.0).sigma == 1.5  # never narrower
    assert Teaching(sigma=0.0).at(0.0).sigma == 0.0  # the paper's plain cross-entropy


def test_pointers_belong_to_the_tokens_that_speak_of_the_object(processor: Any) -> None:
    rng = np.random.default_rng(3)
    spoken = set()
    for scene in random_scenes(12, 6):
        queries = [
            *scene_queries(scene, 5, rng, grammar_of()),
            list_query("the block", [0, 1], scene.objects),
        ]
        packed = pack([(scene, queries)], processor.tokenizer, 8)
        shares = torch.from_numpy(patch_shares(scene, 8))
        pointers = [(q, i) for q in queries for _, i in q.pointers]
        for (_, at), target, (query, owner) in zip(
            packed.point_rows.tolist(), packed.points, pointers, strict=True
        ):
            # the position predicts the next token, which is the one that speaks
            assert packed.labels[0, at + 1] != -100
            word = processor.tokenizer.convert_ids_to_tokens(int(packed.ids[0, at + 1]))
            o = scene.objects[owner]
            if word in BLOCKS.colors:
                assert word == o.color
            elif word in BLOCKS.kinds:
                assert word == o.kind
            elif not word.startswith("<loc"):
                assert word in {"left", "right", "middle", "upper", "lower"}, (word, query)
            spoken.add("loc" if word.startswith("<loc") else word)
            assert torch.equal(target, shares[owner])
    assert {"loc", "red", "block", "ball"} <= spoken


def test_a_box_suffix_reads_back_as_the_box(processor: Any) -> None:
    for scene in random_scenes(5, 8):
        query = list_query("x", range(len(scene.objects)), scene.objects)
        ids = processor.tokenizer(query.suffix, add_special_tokens=False)["input_ids"]
        words = processor.tokenizer.convert_ids_to_tokens(ids)
        assert words.count(";") == min(3, len(scene.objects)) - 1
        order = sorted(scene.objects, key=lambda o: o.center[0])
        codes = [int(word.removeprefix("<loc").removesuffix(">")) for word in words[:4]]
        box = decode_box(codes, 1000, 1000)
        np.testing.assert_allclose(np.array(box.as_list()) / 1000, order[0].box, atol=0.5 / 1023)


def test_maps_look_at_all_that_is_meant_and_everywhere_when_nothing_is(processor: Any) -> None:
    (scene,) = random_scenes(1, 9)
    shares = torch.from_numpy(patch_shares(scene, 8))
    torch.testing.assert_close(shares.sum(1), torch.ones(len(shares)), atol=1e-5, rtol=0)
    queries = [detect_query("the block", (0, 1)), detect_query("the moon", ())]
    packed = pack([(scene, queries)], processor.tokenizer, 8)
    torch.testing.assert_close(packed.maps[0], shares[:2].mean(0))
    torch.testing.assert_close(packed.maps[1], shares.mean(0))
    assert [q.ambiguous for q in queries] == [True, True]
    assert detect_query("the red block", (1,)).ambiguous is False


def test_the_maps_cross_entropy_is_zero_only_at_the_target() -> None:
    target = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    assert float(cross_entropy_sum(target, target)) == pytest.approx(0, abs=2e-4)
    flat = torch.full((2, 3), 1 / 3)
    expected = np.log(1.5) + np.log(3)  # Kullback-Leibler divergences by hand
    assert float(cross_entropy_sum(target, flat)) == pytest.approx(expected, abs=2e-4)
    assert float(cross_entropy_sum(target[:0], flat[:0])) == 0


def test_box_right_by_hand() -> None:
    truth = torch.tensor([0, 0, 100, 100] * 4)
    found = torch.tensor([*(0, 0, 100, 100), *(0, 0, 100, 51), *(0, 0, 100, 49), *(100, 100, 0, 0)])
    assert boxes_right(found, truth).tolist() == [1.0, 1.0, 0.0, 0.0]
