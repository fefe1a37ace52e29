"""Clue: look, judge, reply. With random weights: what is tested is form, not knowledge."""

import math
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clue_ros.dialogue.types import Box, Dialogue, Grounding, NotFound, Question
from clue_ros.engine import Clue, Image, View
from clue_ros.errors import BadExpressionError, BadImageError, EmptyExpressionError, ModelError
from clue_ros.model import checkpoint, decoding
from clue_ros.model.backbone import IVG
from clue_ros.model.decoding import Generation, Mode
from clue_ros.model.fusion import Fusion
from clue_ros.model.load_options import POLICIES
from clue_ros.model.location_tokens import STEPS, Codes, decode_box
from clue_ros.model.multi_view import windows
from clue_ros.model.prompts import encode_prompts
from clue_ros.model.torch_backbone import TorchBackbone


@pytest.fixture(scope="module")
def clue(random_model: Path) -> Clue:
    return Clue.load(random_model, dtype="float32", policy="detector")


@pytest.fixture
def view(clue: Clue, picture: Image) -> View:
    return clue.look(picture)


@pytest.fixture(autouse=True)
def as_loaded(clue: Clue) -> None:
    """Each test starts with the settings the model was loaded with."""
    clue.policy, clue.threshold, clue.num_views = "detector", 0.5, None


def test_what_is_loaded_says_what_it_is(clue: Clue, random_model: Path) -> None:
    assert clue.model_name == str(random_model)
    assert clue.policy == "detector"
    assert clue.threshold == 0.5
    assert clue.grid == 8
    assert clue.dtype == "float32"
    assert 100_000 < clue.memory_bytes() < 10_000_000


def test_a_view_keeps_the_original(clue: Clue, picture: Image) -> None:
    view = clue.look(picture)
    assert (view.width, view.height) == (80, 60)
    assert np.array_equal(view.image, picture)


def test_an_estimate_has_a_probability_a_map_and_peaks_in_pixels(clue: Clue, view: View) -> None:
    estimate = clue.ambiguity(view, "the red block")
    assert 0 < estimate.probability < 1
    assert estimate.threshold == 0.5
    assert estimate.attention.shape == (8, 8)
    assert estimate.attention.dtype == np.float32
    assert estimate.attention.min() == 0
    assert estimate.attention.max() == pytest.approx(1)
    assert estimate.peaks
    assert estimate.seconds > 0
    for peak in estimate.peaks:
        assert 0 <= peak.box.x_min < peak.box.x_max <= 80
        assert 0 <= peak.box.y_min < peak.box.y_max <= 60


def test_every_peak_has_a_mask_of_the_size_of_the_image(clue: Clue, view: View) -> None:
    estimate = clue.ambiguity(view, "the red block")
    masks = clue.peak_masks(view, estimate)
    assert len(masks) == len(estimate.peaks) > 0
    for mask, peak in zip(masks, estimate.peaks, strict=True):
        assert mask.shape == (60, 80)
        assert mask.dtype == np.dtype(bool)
        ys, xs = np.nonzero(mask)
        x, y = peak.box.center
        # The object may be wider than its peak by 15 % (and the peak's rim), but is not elsewhere.
        assert np.abs(xs + 0.5 - x).max() <= 0.65 * (peak.box.x_max - peak.box.x_min) + 1
        assert np.abs(ys + 0.5 - y).max() <= 0.65 * (peak.box.y_max - peak.box.y_min) + 1


def test_words_and_picture_both_matter(clue: Clue, view: View, picture: Image) -> None:
    first = clue.ambiguity(view, "the red block").attention
    assert not np.allclose(first, clue.ambiguity(view, "the ball on the left").attention)
    assert not np.allclose(
        first, clue.ambiguity(clue.look(255 - picture), "the red block").attention
    )
    assert np.array_equal(first, clue.ambiguity(view, "the red block").attention)


def test_a_dialogue_is_judged_with_everything_said(clue: Clue, view: View) -> None:
    dialogue = Dialogue("the red block")
    alone = clue.ambiguity(view, dialogue)
    assert alone.probability == clue.ambiguity(view, "the red block").probability
    dialogue.add_question("which one?")
    dialogue.add_answer("the left one")
    assert clue.ambiguity(view, dialogue).probability != alone.probability


def test_the_detector_decides(clue: Clue, view: View) -> None:
    dialogue = Dialogue("pick up the red block")
    clue.threshold = 0.0
    question = clue.reply(view, dialogue)
    assert isinstance(question, Question)
    assert question.text
    assert question.candidates == tuple(peak.box for peak in question.ambiguity.peaks)
    clue.threshold = 1.0
    grounding = clue.reply(view, dialogue)
    assert isinstance(grounding, Grounding)
    assert grounding.label == "red block"
    assert 0 <= grounding.score <= 1
    assert 0 <= grounding.box.x_min < grounding.box.x_max <= 80
    assert 0 <= grounding.box.y_min < grounding.box.y_max <= 60


def test_saying_that_there_is_none_is_a_reply_of_its_own(
    clue: Clue, view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "i don't see a block."
    monkeypatch.setattr(clue.checkpoint, "words", lambda _generation: said)
    clue.threshold = 0.0
    reply = clue.reply(view, Dialogue("pick up the block"))
    assert isinstance(reply, NotFound)
    assert isinstance(reply, Question), "whoever knows questions alone asks on"
    assert (reply.text, reply.missing, reply.candidates) == ("I don't see a block.", "a block", ())
    forced = clue.reply(view, Dialogue("pick up the block"), force_grounding=True)
    assert isinstance(forced, Grounding)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("threshold", [0.0, 1.0])
def test_a_reply_and_where_it_points_take_one_reading(
    policy: str, threshold: float, clue: Clue, view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    clue.policy, clue.threshold = policy, threshold
    dialogue, decides = Dialogue("pick up the red block"), clue.decides
    free, forced = (decides.decide(view, dialogue, force_grounding=f) for f in (False, True))
    counted, read = list[str](), clue.checkpoint.judge_and_read

    def counting(features: Any, context: str) -> Any:
        counted.append(context)
        return read(features, context)

    monkeypatch.setattr(clue.checkpoint, "judge_and_read", counting)
    considered = decides.consider(view, dialogue)
    reply, pointed = considered.reply(False), considered.reply(True)
    glanced = considered.glance()
    assert len(counted) <= 1
    assert isinstance(pointed, Grounding)
    assert isinstance(forced, Grounding)
    assert (type(reply), pointed.box) == (type(free), forced.box)
    assert getattr(reply, "text", "") == getattr(free, "text", "")
    monkeypatch.undo()
    if policy != "zero-shot":
        monkeypatch.setattr(clue, "num_views", 1)
    alone = decides.decide(view, dialogue, force_grounding=True)
    assert isinstance(alone, Grounding)
    assert glanced == alone.box


def test_a_reply_does_not_change_the_dialogue(clue: Clue, view: View) -> None:
    dialogue = Dialogue("pick up the red block")
    clue.threshold = 0.0
    clue.reply(view, dialogue)
    assert len(dialogue.turns) == 1


def test_grounding_can_be_forced(clue: Clue, view: View) -> None:
    clue.threshold = 0.0
    for policy in fitted(clue):
        clue.policy = policy
        assert isinstance(clue.reply(view, Dialogue("the block"), force_grounding=True), Grounding)


def test_what_a_reply_leads_past_is_told_in_pixels(
    clue: Clue, view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Boxes in turn, the last one the grounding; none before it unless the adapter may say them."""
    plain = clue.reply(view, Dialogue("the block"), force_grounding=True)
    assert isinstance(plain, Grounding)
    assert plain.intermediate_boxes == ()
    monkeypatch.setattr(clue.checkpoint.ivg, "max_boxes", 3)
    codes: list[Codes] = [(0, 0, 1023, 1023), (0, 0, 512, 512), (256, 128, 768, 1023)]
    said = Generation((), (0.5,) * 12, codes[-1], tuple(codes[:-1]))
    monkeypatch.setattr(clue.checkpoint, "speak", lambda *_: said)
    reply = clue.reply(view, Dialogue("the third block"), force_grounding=True)
    assert isinstance(reply, Grounding)
    found = [decode_box(c, 80, 60) for c in codes]
    assert (*reply.intermediate_boxes, reply.box) == tuple(found)
    assert found[0] == Box(0, 0, 80, 60)
    assert reply.score == pytest.approx(0.5)


def test_with_the_decoder_policy_the_threshold_decides_nothing(clue: Clue, view: View) -> None:
    clue.policy = "decoder"
    replies = []
    for threshold in (0.0, 1.0):
        clue.threshold = threshold
        replies.append(clue.reply(view, Dialogue("the block")))
    assert type(replies[0]) is type(replies[1])


def fitted(clue: Clue) -> tuple[str, ...]:
    """All policies, after a fit of equal weights for policy "both"."""
    clue.checkpoint.fusion = Fusion()
    return POLICIES


def test_both_put_their_probabilities_together(clue: Clue, view: View) -> None:
    fitted(clue)
    context = "pick up the block"
    alone = clue.ambiguity(view, context).probability
    clue.policy = "decoder"
    assert clue.ambiguity(view, context).probability == alone, "reported, and decides nothing"
    clue.policy = "both"
    features = clue.checkpoint.look(view.image)
    own, _ = clue.checkpoint.second_opinion(features, context)
    found = clue.ambiguity(view, context)
    odds = [math.log(p / (1 - p)) for p in (alone, own, found.probability)]
    assert odds[2] == pytest.approx((odds[0] + odds[1]) / 2, abs=1e-4)
    for threshold, kind in ((0.0, Question), (1.0, Grounding)):
        clue.threshold = threshold
        assert isinstance(clue.reply(view, Dialogue(context)), kind)


def test_the_second_opinion_is_the_share_of_openings_that_are_no_location(
    clue: Clue, view: View
) -> None:
    """Against transformers' own logits of the same prompt."""
    features = clue.checkpoint.look(view.image)
    parts = clue.checkpoint
    theirs = checkpoint.load_checkpoint(clue.model_name, backend="torch", device="cpu").backbone
    assert isinstance(theirs, TorchBackbone)
    theirs.peft.use(IVG)
    for context in ("pick up the block", "the red one on the left"):
        found, _ = parts.second_opinion(features, context)
        prompts = encode_prompts(parts.processor, parts.ivg.instruction, [context]).to("cpu")
        pixels = parts.processor.image_processor([view.image], return_tensors="pt")
        logits = theirs.model.model(
            input_ids=prompts.input_ids,
            pixel_values=pixels["pixel_values"],
            attention_mask=prompts.attention_mask,
            token_type_ids=prompts.token_type_ids,
        ).logits[0, -1]
        first = parts.vocabulary.first_location
        share = float(logits.softmax(-1)[first : first + STEPS].sum())
        assert found == pytest.approx(1 - share, abs=1e-4)


def test_what_was_read_for_the_second_opinion_is_replied_to(
    clue: Clue, view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, context = clue.checkpoint, "pick up the block"
    features = parts.look(view.image)
    modes: tuple[Mode, ...] = ("question", "grounding", "free")
    for mode in modes:
        _, prefill = parts.second_opinion(features, context)
        assert parts.speak(features, context, mode, prefill) == parts.speak(features, context, mode)
    fitted(clue)
    clue.policy = "both"
    count = []

    def counted(*args: Any) -> decoding.Prefill:
        count.append(args)
        return decoding.read_prompts(*args)

    monkeypatch.setattr(checkpoint, "read_prompts", counted)
    clue.reply(view, Dialogue(context))
    assert len(count) == 1


def test_further_views_decide_too_where_the_first_is_not_sure(
    clue: Clue, view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, context = clue.checkpoint, "pick up the block"
    count = []

    def counted(*args: Any) -> decoding.Prefill:
        count.append(len(args[1]))
        return decoding.read_prompts(*args)

    monkeypatch.setattr(checkpoint, "read_prompts", counted)
    attended = [peak.box for peak in clue.ambiguity(view, context).peaks]
    through = windows(3, view.width, view.height, attended)
    features = parts.look(*(window.onto(view.image) for window in through))
    opinions, _ = parts.opinions(features, context)
    for sure, asked in ((0.5, 1), (1.0, 3)):
        parts.fusion = Fusion(sure=sure)
        clue.policy, clue.num_views = "both", 3
        count.clear()
        found = clue.ambiguity(view, context).probability
        assert sum(count) == asked
        assert found == pytest.approx(parts.fusion.agreed(opinions[:asked]), abs=1e-5)
    clue.threshold = 1.0
    count.clear()
    assert isinstance(clue.reply(view, Dialogue(context)), Grounding)
    assert count == [1, 1, 1], "each view is read once, for the decision and for the box"
    clue.num_views = 1
    count.clear()
    clue.ambiguity(view, context)
    assert count == [1]


def test_no_further_view_is_asked_once_they_are_sure(
    clue: Clue, view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, thought = clue.checkpoint, [(0.9, 0.9), (0.9, 0.9), (0.1, 0.1)]
    _, prefill = parts.second_opinion(view.features, "pick up the block")
    monkeypatch.setattr(parts, "judge_and_read", lambda *_: (0.5, np.ones((4, 4)), prefill))
    monkeypatch.setattr(parts, "question_share", lambda _: 0.5)
    monkeypatch.setattr(parts, "opinions", lambda *_: ([thought.pop(0)], prefill))
    parts.fusion = Fusion(sure=0.7)  # the first has odds of 0, two have half of 2.2
    clue.policy, clue.num_views = "both", 5
    assert clue.ambiguity(view, "pick up the block").probability == pytest.approx(0.75)
    assert len(thought) == 2


def test_what_views_think_is_what_each_thinks_alone(clue: Clue, view: View) -> None:
    parts, context = clue.checkpoint, "the red one on the left"
    through = windows(3, view.width, view.height)
    features = parts.look(*(window.onto(view.image) for window in through))
    opinions, prefill = parts.opinions(features, context)
    assert len(opinions) == 3
    for row, (detector, decoder) in zip(features[:, None], opinions, strict=True):
        assert detector == pytest.approx(parts.judge(row, context)[0], abs=1e-5)
        assert decoder == pytest.approx(parts.second_opinion(row, context)[0], abs=1e-5)
    said = parts.point(features, context)
    for again, first in zip(parts.point(features, context, prefill), said, strict=True):
        assert again.codes == first.codes


def test_a_question_that_says_the_same_twice_is_not_asked(
    clue: Clue, view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    clue.threshold = 0.0
    monkeypatch.setattr(clue.checkpoint, "words", lambda _said: "the red one or the red one?")
    reply = clue.reply(view, Dialogue("the block"))
    assert isinstance(reply, Question)
    assert (reply.text, reply.suggested_answers) == ("Do you mean this one?", ("yes", "no"))


def test_special_tokens_in_the_text_are_words(clue: Clue, view: View) -> None:
    for text in ("<loc0000>", "the <image> block", "<bos> <eos> cup"):
        assert isinstance(clue.reply(view, Dialogue(text)), (Question, Grounding))
        clue.ambiguity(view, text)


@pytest.mark.parametrize(
    ("text", "error"),
    [("", EmptyExpressionError), ("🙂", BadExpressionError), ("a" * 10_000, BadExpressionError)],
)
def test_bad_text_is_refused_and_the_next_request_works(
    clue: Clue, view: View, text: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        clue.ambiguity(view, text)
    assert clue.ambiguity(view, "the block").probability > 0


@pytest.mark.parametrize(
    "image",
    [
        np.zeros((60, 80), np.uint8),
        np.zeros((60, 80, 4), np.uint8),
        np.zeros((60, 80, 3), np.float32),
        np.zeros((0, 80, 3), np.uint8),
        np.zeros((60, 0, 3), np.uint8),
        np.broadcast_to(np.zeros((1, 1, 3), np.uint8), (9000, 9000, 3)),
        None,
        "image.png",
    ],
    ids=["grey", "alpha", "float", "no rows", "no columns", "81 megapixels", "none", "text"],
)
def test_bad_images_are_refused(clue: Clue, image: object) -> None:
    with pytest.raises(BadImageError):
        clue.look(image)  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(1, 1, 3), (1, 2000, 3), (3648, 5472, 3)])
def test_odd_sizes_work(clue: Clue, shape: tuple[int, int, int]) -> None:
    view = clue.look(np.zeros(shape, np.uint8))
    reply = clue.reply(view, Dialogue("the block"), force_grounding=True)
    assert isinstance(reply, Grounding)
    box = reply.box
    assert 0 <= box.x_min < box.x_max <= shape[1]
    assert 0 <= box.y_min < box.y_max <= shape[0]


def test_views_of_a_larger_array_work(clue: Clue, picture: Image) -> None:
    turned = picture[::-1, ::2]
    assert not turned.flags.c_contiguous
    view = clue.look(turned)
    again = clue.look(turned.copy())
    one, two = (clue.ambiguity(v, "the block").attention for v in (view, again))
    assert np.array_equal(one, two)


def test_a_view_of_another_model_is_looked_at_again(
    clue: Clue, random_model: Path, picture: Image
) -> None:
    other = Clue.load(random_model)
    theirs, ours = other.look(picture), clue.look(picture)
    assert np.array_equal(
        clue.ambiguity(theirs, "the block").attention, clue.ambiguity(ours, "the block").attention
    )


@pytest.mark.parametrize("backend", ["openvino", "torch"])
def test_calls_from_two_threads_do_not_mix_the_adapters(
    random_model: Path, picture: Image, backend: str
) -> None:
    """Peft has one active adapter for all threads: each reply is the one of a thread alone."""
    clue = Clue.load(random_model, backend=backend, device="cpu", policy="detector", threshold=0.0)
    view = clue.look(picture)
    dialogues = [Dialogue(f"pick up the {color} block") for color in ("red", "blue")]

    def reply(dialogue: Dialogue) -> tuple[str, float, bytes]:
        found = clue.reply(view, dialogue)
        assert isinstance(found, Question)
        return found.text, found.ambiguity.probability, found.ambiguity.attention.tobytes()

    expected = [reply(dialogue) for dialogue in dialogues]
    assert expected[0] != expected[1]
    start = threading.Barrier(2)

    def work(dialogue: Dialogue) -> list[tuple[str, float, bytes]]:
        start.wait()
        return [reply(dialogue) for _ in range(6)]

    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(work, dialogues))
    assert found == [[each] * 6 for each in expected]


@pytest.mark.parametrize(
    "settings",
    [
        {"policy": "guess"},
        {"threshold": 1.5},
        {"threshold": -0.1},
        {"threshold": float("nan")},
        {"device": "toaster"},
        {"device": "cuda:99"},
        {"dtype": "int3"},
        {"model": "no_such_model"},
        {"backend": "tensorflow"},
        {"backend": "openvino", "device": "cuda"},
        {"backend": "openvino", "dtype": "float16"},
    ],
)
def test_bad_settings_are_refused(random_model: Path, settings: dict[str, Any]) -> None:
    with pytest.raises(ModelError) as caught:
        Clue.load(**{"model": random_model, **settings})
    assert "\n" not in str(caught.value)


def test_settings_can_change_while_running(clue: Clue) -> None:
    with pytest.raises(ModelError):
        clue.policy = "guess"
    with pytest.raises(ModelError):
        clue.threshold = 2
    assert clue.policy == "detector"
    assert clue.threshold == 0.5


@pytest.mark.parametrize(("backend", "dtype"), [("openvino", "mixed"), ("torch", "bfloat16")])
def test_half_precision_gives_nearly_the_same_map(
    clue: Clue, random_model: Path, picture: Image, backend: str, dtype: str
) -> None:
    half = Clue.load(
        random_model, backend=backend, device="cpu", dtype="bfloat16", policy="detector"
    )
    assert half.dtype == dtype
    one = clue.ambiguity(clue.look(picture), "the block").attention
    two = half.ambiguity(half.look(picture), "the block").attention
    assert np.abs(one - two).max() < 0.25
    assert isinstance(half.reply(half.look(picture), Dialogue("the block")), (Question, Grounding))


def test_a_threshold_given_at_loading_wins(random_model: Path) -> None:
    assert Clue.load(random_model, threshold=0.7).threshold == 0.7


def test_the_same_pixels_are_encoded_once_and_changed_ones_again(
    clue: Clue, picture: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = np.ascontiguousarray(picture[::-1])  # that no other test has looked at
    seen: list[int] = []
    look = clue.checkpoint.look

    def counted(*images: Image) -> object:
        seen.append(len(images))
        return look(*images)

    monkeypatch.setattr(clue.checkpoint, "look", counted)
    buffer = picture.copy()
    first = clue.look(buffer)
    same = clue.look(picture)
    assert len(seen) == 1
    assert same.features is first.features
    assert same.image is picture, "the caller's own pixels"
    buffer[0, 0, 0] ^= 255  # a camera that reuses its buffer
    changed = clue.look(buffer)
    assert len(seen) == 2
    assert not np.array_equal(changed.features, first.features)
    height, width = picture.shape[:2]
    assert height != width
    clue.look(buffer.reshape(width, height, 3))
    assert len(seen) == 3, "the same bytes in another shape are another image"


@pytest.mark.parametrize("views", [1, 3])
def test_a_warm_up_asks_and_points_in_all_views(
    clue: Clue, monkeypatch: pytest.MonkeyPatch, views: int
) -> None:
    said: list[tuple[str, int]] = []
    speak, point = clue.checkpoint.speak, clue.checkpoint.point

    def spoken(features: Any, context: str, mode: Mode, *prefill: Any) -> Generation:
        said.append((mode, len(features)))
        return speak(features, context, mode, *prefill)

    def pointed(features: Any, *rest: Any) -> list[Generation]:
        said.append(("grounding", len(features)))
        return point(features, *rest)

    monkeypatch.setattr(clue.checkpoint, "speak", spoken)
    monkeypatch.setattr(clue.checkpoint, "point", pointed)
    monkeypatch.setattr(clue, "num_views", views)
    monkeypatch.setattr(clue, "doubtful_score", 0.0)  # no doubt: the first view alone replies
    clue.warm_up()
    assert said == [("grounding", 1), ("question", 1), ("grounding", 2)][: 2 + (views > 1)]


def test_a_warm_up_leaves_no_trace_in_replies(clue: Clue, picture: Image) -> None:
    request = Dialogue("pick up the block")
    before = clue.reply(clue.look(picture), request, force_grounding=True)
    clue.warm_up()
    after = clue.reply(clue.look(picture), request, force_grounding=True)
    assert isinstance(before, Grounding)
    assert isinstance(after, Grounding)
    assert (after.box, after.score) == (before.box, before.score)
    assert after.ambiguity.probability == before.ambiguity.probability
