"""SAM 2 and EdgeTAM as trackers, on tiny random networks of the real classes."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from safetensors.torch import load_file, save_file  # noqa: E402

from clue_ros.dialogue.types import Box  # noqa: E402
from clue_ros.errors import BadBoxError, BadImageError, ModelError  # noqa: E402
from clue_ros.model import sam2_tracker  # noqa: E402
from clue_ros.model.sam2_tracker import MEAN, STD, Sam2Tracker, VideoNetwork  # noqa: E402
from clue_ros.model.trackers import make_tracker  # noqa: E402
from clue_ros.model.tracking import FlowTracker  # noqa: E402

SIDE, WIDE = 64, 128
KINDS = ("Sam2Video", "EdgeTamVideo")
BOX = Box(10, 12, 40, 44)
Frames = list[npt.NDArray[np.uint8]]


def tiny(kind: str) -> Any:
    """A network of a kind, with random weights, that sees its object in every frame."""
    hiera = transformers.Sam2HieraDetConfig(
        hidden_size=8, num_attention_heads=1, image_size=[SIDE, SIDE],
        blocks_per_stage=[1, 1, 2, 1], embed_dim_per_stage=[8, 16, 32, 64],
        num_attention_heads_per_stage=[1, 1, 2, 2], window_size_per_stage=[4, 4, 4, 4],
        global_attention_blocks=[3], window_positional_embedding_background_size=[4, 4],
    )  # fmt: skip
    vision = transformers.Sam2VisionConfig(
        backbone_config=hiera.to_dict(), backbone_channel_list=[64, 32, 16, 8],
        fpn_hidden_size=WIDE, backbone_feature_sizes=[[16, 16], [8, 8], [4, 4]],
    )  # fmt: skip
    only: dict[str, dict[str, Any]] = {
        "Sam2Video": {"memory_attention_feed_forward_hidden_size": 32},
        "EdgeTamVideo": {
            "memory_attention_mlp_hidden_size": 32, "memory_attention_rope_k_sizes": [2, 2],
            "perceiver_resampler_num_latents": 4, "perceiver_resampler_num_latents_2d": 4,
            "perceiver_resampler_mlp_intermediate_size": 8, "perceiver_resampler_num_layers": 1,
        },
    }  # fmt: skip
    config = getattr(transformers, f"{kind}Config")(
        vision_config=vision.to_dict(), image_size=SIDE,
        prompt_encoder_config={
            "hidden_size": WIDE, "image_size": SIDE, "patch_size": 16, "mask_input_channels": 4,
        },
        mask_decoder_config={
            "hidden_size": WIDE, "mlp_dim": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
            "iou_head_hidden_dim": 16,
        },
        num_maskmem=3, max_object_pointers_in_encoder=4,
        memory_attention_hidden_size=WIDE, memory_attention_num_layers=1,
        memory_attention_rope_feat_sizes=[4, 4], memory_encoder_hidden_size=WIDE,
        mask_downsampler_embed_dim=WIDE, memory_fuser_embed_dim=WIDE,
        memory_fuser_intermediate_dim=32, memory_fuser_num_layers=1, **only[kind],
    )  # fmt: skip
    torch.manual_seed(0)
    model = getattr(transformers, f"{kind}Model")(config).eval()
    for name, weight in model.named_parameters():  # as published: none of them starts at 0
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, std=0.1)
        if name.endswith("pred_obj_score_head.proj_out.bias"):
            torch.nn.init.constant_(weight, 4.0)
    return model


@pytest.fixture(scope="module", params=KINDS)
def network(request: pytest.FixtureRequest) -> VideoNetwork:
    return VideoNetwork(tiny(request.param))


def frames(count: int, seed: int = 0) -> Frames:
    """Pictures of the network's own size: a square moves over a pattern."""
    rng = np.random.default_rng(seed)
    behind = rng.integers(0, 120, (SIDE, SIDE, 3), np.uint8)
    made = []
    for n in range(count):
        frame = behind.copy()
        x = 10 + n % 20
        frame[14:42, x : x + 28] = (220, 60, 90)
        made.append(frame)
    return made


def masks_of(tracker: Sam2Tracker, clip: Frames, box: Box = BOX) -> list[npt.NDArray[np.bool_]]:
    return [tracker.start(clip[0], box), *(tracker.step(frame).mask for frame in clip[1:])]


def test_a_stream_gives_the_masks_of_the_whole_video(network: VideoNetwork) -> None:
    """Neither pruning nor a prompt on the first frame loses anything that the model reads."""
    clip = frames(12)
    mean, std = (torch.tensor(v)[:, None, None] for v in (MEAN, STD))
    video = torch.stack([(torch.from_numpy(f).permute(2, 0, 1) / 255 - mean) / std for f in clip])
    module = sys.modules[type(network.model).__module__]
    session = getattr(module, type(network.model).__name__.replace("Model", "InferenceSession"))(
        video=video, video_height=SIDE, video_width=SIDE, dtype=torch.float32
    )
    corners = torch.tensor([[[[10.0, 12], [40, 44]]]])
    session.add_point_inputs(
        session.obj_id_to_idx(1), 0,
        {"point_coords": corners, "point_labels": torch.tensor([[[2, 3]]], dtype=torch.int32)},
    )  # fmt: skip
    session.obj_with_new_inputs = [1]
    network.model(session, frame_idx=0)
    whole = [
        torch.nn.functional.interpolate(out.pred_masks, (SIDE, SIDE), mode="bilinear")[0, 0] > 0
        for out in network.model.propagate_in_video_iterator(session, start_frame_idx=0)
    ]
    found = masks_of(Sam2Tracker(network), clip)
    assert len(whole) == len(found) == 12
    assert all(np.array_equal(a.numpy(), b) for a, b in zip(whole, found, strict=True))
    assert len({mask.tobytes() for mask in found}) > 6  # the frames do count
    assert not np.array_equal(found[0], Sam2Tracker(network).start(clip[0], Box(40, 2, 60, 20)))


def test_objects_share_a_network_and_do_not_mix(network: VideoNetwork) -> None:
    clip, other = frames(5), Box(2, 30, 30, 60)
    alone = [masks_of(Sam2Tracker(network), clip, box) for box in (BOX, other)]
    first, second = Sam2Tracker(network), Sam2Tracker(network)
    both = [(first.start(clip[0], BOX), second.start(clip[0], other))]
    both += [(first.step(frame).mask, second.step(frame).mask) for frame in clip[1:]]
    assert all(np.array_equal(a, b) for a, (b, _) in zip(alone[0], both, strict=True))
    assert all(np.array_equal(a, b) for a, (_, b) in zip(alone[1], both, strict=True))


def test_a_frame_is_looked_at_once_for_all_objects(network: VideoNetwork) -> None:
    looks: list[int] = []
    hook = network.model.vision_encoder.register_forward_hook(lambda *_: looks.append(1))
    clip = frames(4)
    trackers = [Sam2Tracker(network) for _ in range(3)]
    for tracker in trackers:
        tracker.start(clip[0], BOX)
    for frame in clip[1:]:
        for tracker in trackers:
            tracker.step(frame)
    hook.remove()
    assert len(looks) == len(clip)


def tensor_bytes() -> int:
    """Bytes of all tensors that anything still refers to."""
    gc.collect()
    alive = [o for o in gc.get_objects() if isinstance(o, torch.Tensor)]
    return sum(
        {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in alive}.values()
    )


def test_memory_stays_flat_also_when_sessions_are_renewed(
    network: VideoNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    clip, bytes_after = frames(40), []
    monkeypatch.setattr(sam2_tracker, "RENEWED", 16)
    tracker = Sam2Tracker(network)
    tracker.start(clip[0], BOX)
    for n, frame in enumerate(clip[1:], 1):
        assert not tracker.step(frame).lost
        if n in (8, 15, 24, 31, 39):  # with a full memory
            bytes_after.append(tensor_bytes())
    assert max(bytes_after) - min(bytes_after) < 2000, bytes_after  # a frame has 49,152


def test_a_mask_may_be_given(network: VideoNetwork) -> None:
    frame = frames(1)[0]
    mask = np.zeros((SIDE, SIDE), bool)
    mask[20, 5:9] = True  # thin: it must not vanish where the network reads it
    tracker = Sam2Tracker(network)
    assert np.array_equal(tracker.start(frame, BOX, mask=mask), mask)
    assert not tracker.step(frame).lost


def test_what_the_network_does_not_see_is_lost_and_keeps_its_last_mask() -> None:
    model, clip = tiny("Sam2Video"), frames(3)
    tracker = Sam2Tracker(VideoNetwork(model))
    tracker.start(clip[0], BOX)
    seen = tracker.step(clip[1])
    torch.nn.init.constant_(model.mask_decoder.pred_obj_score_head.proj_out.bias, -9.0)
    lost = tracker.step(clip[2])
    assert (seen.lost, lost.lost) == (False, True)
    assert lost.score < 0.5 < seen.score
    assert np.array_equal(lost.mask, seen.mask)


def test_bad_input_is_said_in_one_line(network: VideoNetwork) -> None:
    frame, tracker = frames(1)[0], Sam2Tracker(network)
    with pytest.raises(BadBoxError, match="outside of this 64x64 frame"):
        tracker.start(frame, Box(90, 10, 120, 40))
    with pytest.raises(BadImageError, match="no pixel of this 64x64 frame"):
        tracker.start(frame, BOX, mask=np.zeros((SIDE, SIDE), bool))
    with pytest.raises(RuntimeError, match="start comes before step"):
        tracker.step(frame)
    tracker.start(frame, BOX)
    with pytest.raises(BadImageError, match="a frame of 32x32 after some of 64x64"):
        tracker.step(frame[::2, ::2].copy())


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_is_loaded_once_by_its_name(kind: str, tmp_path: Path) -> None:
    tiny(kind).save_pretrained(tmp_path)
    clip = frames(4)
    sam2_tracker.load_network.cache_clear()
    first, second = (make_tracker(f"sam2:{tmp_path}", "cpu") for _ in range(2))
    assert isinstance(first, Sam2Tracker)
    assert isinstance(second, Sam2Tracker)
    assert sam2_tracker.load_network.cache_info().misses == 1
    sam2_tracker.load_network.cache_clear()
    own = masks_of(Sam2Tracker(VideoNetwork(tiny(kind))), clip)
    assert all(np.array_equal(a, b) for a, b in zip(masks_of(first, clip), own, strict=True))


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    """A checkpoint with another vision tower than its configuration would run on random weights."""
    tiny("EdgeTamVideo").save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    kept = {k: v for k, v in load_file(weights).items() if "vision_encoder.backbone" not in k}
    save_file(kept, weights, {"format": "pt"})
    with pytest.raises(ModelError, match=r"lacks \d+ weights, such as vision_encoder.backbone"):
        VideoNetwork.load(str(tmp_path), "cpu")


def test_a_name_that_is_no_tracker_is_refused(tmp_path: Path) -> None:
    assert isinstance(make_tracker("flow"), FlowTracker)
    for name in ("sam3", "sam2:"):
        with pytest.raises(ModelError, match="want flow, or sam2:HUB-ID"):
            make_tracker(name)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ModelError, match="a model of type bert, want sam2_video or edgetam_video"):
        make_tracker(f"sam2:{tmp_path}")
    with pytest.raises(ModelError, match="cannot load the tracker"):
        make_tracker(f"sam2:{tmp_path / 'nowhere'}")
