"""Several views of a picture: what a window shows, where its boxes lie, what they agree on."""

from pathlib import Path

import numpy as np
import pytest

from clue_ros.dialogue.types import Box, Dialogue, Grounding
from clue_ros.engine import Clue, Image, View
from clue_ros.errors import ModelError
from clue_ros.images import load_image
from clue_ros.model import policies
from clue_ros.model.backbone import Array
from clue_ros.model.decoding import Generation
from clue_ros.model.location_tokens import Codes, encode_box
from clue_ros.model.multi_view import (
    MAX_VIEWS,
    WINDOWS,
    Window,
    agreed,
    settled,
    window_features,
    windows,
)

ROOT = Path(__file__).parents[2]
WIDTH, HEIGHT = 200, 100
REQUEST = Dialogue("the red block")


def said(box: Box, window: Window, share: float = 0.5, via: tuple[Codes, ...] = ()) -> Generation:
    """What a decoder would say of a box of the picture, seen through a window."""
    moved = Box(
        box.x_min - window.x_min,
        box.y_min - window.y_min,
        box.x_max - window.x_min,
        box.y_max - window.y_min,
    )
    codes = encode_box(moved, window.x_max - window.x_min, window.y_max - window.y_min)
    return Generation((), (share,) * 4, codes, via)


def test_the_first_view_is_the_picture_itself(picture: Image) -> None:
    (first,) = windows(1, 80, 60)
    assert np.array_equal(first.onto(picture), picture)
    assert first.box((0, 0, 1023, 1023)) == Box(0, 0, 80, 60)


def test_a_window_shows_a_part_and_repeats_the_rim(picture: Image) -> None:
    _, closer, down, further, up = windows(5, 80, 60)
    assert np.array_equal(closer.onto(picture), picture[3:57, 4:76])
    far = further.onto(picture)
    assert far.shape == (66, 88, 3)
    assert np.array_equal(far[3:63, 4:84], picture)
    assert (far[:3, 4:84] == picture[0]).all()
    for window in (up, down):
        assert window.onto(picture).shape == picture.shape


@pytest.mark.parametrize(
    ("boxes", "seen"),
    [
        # As large as the smallest zoom, and moved into the picture.
        ([Box(10, 20, 30, 40)], (0, 0, 336, 336)),
        ([Box(600, 440, 640, 480)], (304, 144, 640, 480)),
        # Around all boxes, with a margin of a quarter on each side.
        ([Box(200, 200, 300, 240), Box(400, 100, 440, 160)], (140, 0, 500, 360)),
        # No larger than the picture.
        ([Box(0, 0, 640, 480)], (0, 0, 640, 480)),
    ],
)
def test_a_zoom_is_a_square_around_what_is_attended_to(
    boxes: list[Box], seen: tuple[int, int, int, int]
) -> None:
    through = windows(3, 640, 480, boxes)
    window = through[2]
    assert (window.x_min, window.y_min, window.x_max, window.y_max) == seen
    assert through[:2] == windows(3, 640, 480)[:2]
    assert windows(2, 640, 480, boxes) == windows(2, 640, 480)


@pytest.mark.parametrize(("width", "height"), [(1, 1), (2, 300), (7, 1), (641, 479)])
def test_a_zoom_lies_in_any_picture(width: int, height: int) -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        x, y = np.sort(rng.uniform(0, width, 2)), np.sort(rng.uniform(0, height, 2))
        zoom = windows(3, width, height, [Box(x[0], y[0], x[1], y[1])])[2]
        assert 0 <= zoom.x_min < zoom.x_max <= width
        assert 0 <= zoom.y_min < zoom.y_max <= height


@pytest.mark.parametrize(("width", "height"), [(1, 1), (2, 300), (7, 1), (641, 479)])
def test_every_window_shows_something_of_any_picture(width: int, height: int) -> None:
    image = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    place_values = np.array([2**16, 2**8, 1])
    for window in windows(MAX_VIEWS, width, height):
        shown = window.onto(image)
        assert shown.shape == (window.y_max - window.y_min, window.x_max - window.x_min, 3)
        assert np.isin(shown @ place_values, image @ place_values).all()


@pytest.mark.parametrize("look", range(MAX_VIEWS))
def test_a_box_lies_where_its_pixels_are(look: int) -> None:
    """A white rectangle, found by its colour in each window, is where it was drawn."""
    image = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    drawn = Box(50, 40, 90, 70)
    image[40:70, 50:90] = 255
    window = windows(MAX_VIEWS, WIDTH, HEIGHT)[look]
    shown = window.onto(image)
    rows, columns = np.nonzero(shown[..., 0])
    there = Box(columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
    found = window.box(encode_box(there, shown.shape[1], shown.shape[0]))
    assert found is not None
    assert found.as_list() == pytest.approx(drawn.as_list(), abs=0.15)


@pytest.mark.parametrize(("views", "order"), [(1, "0"), (2, "01"), (3, "021"), (5, "02134")])
def test_the_zoomed_view_may_come_first_of_the_further_ones(views: int, order: str) -> None:
    attended = [Box(20, 20, 60, 40)]
    every = windows(5, WIDTH, HEIGHT, attended)
    through = windows(views, WIDTH, HEIGHT, attended, zoom_first=True)
    assert through == [every[int(place)] for place in order]


def test_a_box_beyond_the_rim_is_cut_or_none() -> None:
    further = windows(4, WIDTH, HEIGHT)[3]
    assert further.box((0, 0, 1023, 1023)) == Box(0, 0, WIDTH, HEIGHT)
    assert further.box((0, 0, 1023, 40)) is None


def test_each_window_is_looked_at_once(picture: Image) -> None:
    looked: list[Image] = []

    def look(*images: Image) -> Array:
        looked.extend(images)
        return np.array([[[image.mean()]] for image in images], np.float32)

    known: dict[Window, Array] = {}
    whole, closer, lower = windows(3, 80, 60)
    first = window_features(picture, [whole, closer], known, look)
    second = window_features(picture, [lower, closer], known, look)
    assert first.shape == second.shape == (2, 1, 1)
    assert [image.shape for image in looked] == [
        w.onto(picture).shape for w in (whole, closer, lower)
    ]
    assert np.array_equal(second[1], first[1])
    assert second[0].item() == pytest.approx(lower.onto(picture).mean())
    assert set(known) == {lower, closer}  # no other window's features are held


def test_each_side_is_the_median_of_those_that_agree() -> None:
    through = windows(3, WIDTH, HEIGHT)
    boxes = [Box(50, 40, 90, 70), Box(52, 40, 92, 71), Box(54, 38, 94, 75)]
    found = agreed([said(b, w) for b, w in zip(boxes, through, strict=True)], through)
    assert found.box.as_list() == pytest.approx([52, 40, 92, 71], abs=0.3)
    assert found.score == pytest.approx(0.5)


def test_the_majority_wins_and_the_score_falls() -> None:
    through = windows(3, WIDTH, HEIGHT)
    wrong, right = Box(150, 10, 190, 40), Box(50, 40, 90, 70)
    via = (encode_box(wrong, 1, 1),)
    replies = [said(wrong, through[0], 0.9, via), *(said(right, w, 0.6) for w in through[1:])]
    found = agreed(replies, through)
    assert found.box.as_list() == pytest.approx(right.as_list(), abs=0.3)
    assert found.score == pytest.approx(0.4)
    assert found.via == (), "those of a view that agrees"


def test_where_none_agree_it_is_the_first_view() -> None:
    through = windows(3, WIDTH, HEIGHT)
    boxes = [Box(0, 0, 40, 40), Box(100, 20, 140, 40), Box(60, 50, 90, 90)]
    found = agreed([said(b, w, 0.9) for b, w in zip(boxes, through, strict=True)], through)
    assert found.box.as_list() == pytest.approx(boxes[0].as_list(), abs=0.3)
    assert found.score == pytest.approx(0.3)


def test_a_view_without_a_box_counts_against() -> None:
    whole, closer, _, further = windows(4, WIDTH, HEIGHT)
    through = [whole, closer, further]
    lost = Generation((), (0.9,) * 4, (0, 0, 1023, 40))
    box = Box(50, 40, 90, 70)
    found = agreed([said(box, through[0], 0.8), said(box, through[1], 0.7), lost], through)
    assert found.score == pytest.approx(0.5)
    with pytest.raises(ValueError, match="no view"):
        agreed([lost], through[2:])


def test_what_lay_on_the_way_is_in_the_pictures_pixels() -> None:
    (first,) = windows(1, WIDTH, HEIGHT)
    past = encode_box(Box(10, 10, 30, 30), WIDTH, HEIGHT)
    found = agreed([said(Box(50, 40, 90, 70), first, 0.5, (past,))], [first])
    assert [box.as_list() for box in found.via] == [pytest.approx([10, 10, 30, 30], abs=0.3)]


def test_views_are_the_models_own_unless_they_are_set(clue: Clue, random_model: Path) -> None:
    assert clue.num_views == clue.checkpoint.ivg.num_views == 1, "the paper's"
    clue.num_views = 4
    assert clue.num_views == 4
    clue.num_views = None
    assert clue.num_views == 1
    for wrong in (0, MAX_VIEWS + 1, True, 2.0, "3"):
        with pytest.raises(ModelError, match="num_views"):
            clue.num_views = wrong  # type: ignore[assignment]
        with pytest.raises(ModelError, match="num_views"):
            Clue.load(random_model, num_views=wrong)
    assert clue.num_views == 1


def test_more_views_change_where_it_points_and_nothing_else(clue: Clue, picture: Image) -> None:
    view = clue.look(picture)
    found = []
    for views in (1, 3, 5, 3, 1):
        clue.num_views = views
        reply = clue.reply(view, REQUEST, force_grounding=True)
        assert isinstance(reply, Grounding)
        assert Box(0, 0, 80, 60).iou(reply.box) > 0
        assert 0 <= reply.score <= 1
        found.append(reply)
    assert [found[3].box, found[4].box] == [found[1].box, found[0].box], "kept views do no harm"
    assert len({reply.ambiguity.probability for reply in found}) == 1


def test_a_view_of_another_clue_is_looked_at_again(
    clue: Clue, random_model: Path, picture: Image
) -> None:
    other = Clue.load(random_model, device="cpu", num_views=3)
    clue.num_views = 3
    foreign, own = other.look(picture), clue.look(picture)
    there, here = (clue.reply(v, REQUEST, force_grounding=True) for v in (foreign, own))
    assert isinstance(there, Grounding)
    assert isinstance(here, Grounding)
    assert there.box == here.box


def test_three_views_of_a_trained_model_agree_on_what_is_plain() -> None:
    clue = Clue.load("household", device="cpu")
    image = load_image(ROOT / "demo" / "yellow_blocks.png")
    view = clue.look(image)
    boxes = []
    for views in (1, 3):
        clue.num_views = views
        reply = clue.reply(view, Dialogue("the yellow block on the left"), force_grounding=True)
        assert isinstance(reply, Grounding)
        boxes.append(reply.box)
    assert boxes[0].iou(boxes[1]) > 0.7


def test_windows_are_what_was_measured() -> None:
    """The first is the whole picture, the others move it by a patch at most, without a zoom."""
    assert WINDOWS[0] == (0, 0, 1, 1)
    for window in WINDOWS[1:]:
        assert window != WINDOWS[0]
        assert np.abs(np.subtract(window, WINDOWS[0])).max() < 0.06


def where(clue: Clue, view: View) -> tuple[Box, float]:
    reply = clue.reply(view, REQUEST, force_grounding=True)
    assert isinstance(reply, Grounding)
    return reply.box, reply.score


@pytest.mark.parametrize("agree", [True, False])
def test_further_views_are_looked_at_only_where_those_before_leave_a_doubt(
    clue: Clue, picture: Image, monkeypatch: pytest.MonkeyPatch, agree: bool
) -> None:
    batches: list[int]
    # That no other test has looked at.
    view, batches = clue.look(picture[::-1] if agree else picture[:, ::-1]), []
    look = clue.checkpoint.look

    def counted(*images: Image) -> object:
        batches.append(len(images))
        return look(*images)

    monkeypatch.setattr(clue.checkpoint, "look", counted)
    monkeypatch.setattr(policies, "settled", lambda _said, _through: agree)
    clue.num_views = 1
    alone = where(clue, view)
    clue.num_views = 2
    clue.doubtful_score = 1.0
    two = where(clue, view)
    assert batches == [1]
    clue.num_views = 4
    clue.doubtful_score = alone[1] - 1e-6
    assert where(clue, view) == alone
    assert batches == [1]
    clue.doubtful_score = alone[1]
    doubted = where(clue, view)
    assert batches == ([1] if agree else [1, 2]), (
        "what was looked at is kept; the rest in one batch"
    )
    clue.doubtful_score = None
    assert clue.doubtful_score == clue.checkpoint.ivg.doubtful_score == 1.0
    every = where(clue, view)
    assert doubted == (two if agree else every), "1 takes all views"
    assert batches == [1, 2]


@pytest.mark.parametrize(("shift", "expected"), [(0, True), (4, True), (5, False), (40, False)])
def test_two_views_settle_a_box_where_they_find_the_same(shift: int, expected: bool) -> None:
    """A box 40 wide: moved by 4 its IoU is 36 / 44 = 0.82, by 5 it is 35 / 45 = 0.78."""
    first, second = windows(2, WIDTH, HEIGHT)
    boxes = Box(20, 10, 60, 40), Box(20 + shift, 10, 60 + shift, 40)
    replies = [said(b, w) for b, w in zip(boxes, (first, second), strict=True)]
    assert settled(replies, [first, second]) is expected
    other = said(Box(0, 0, 10, 10), first)
    assert settled([*replies, other], [first, second, first]) is expected, "the third is not asked"


def test_a_doubtful_score_that_is_none_is_refused(clue: Clue, random_model: Path) -> None:
    for wrong in (-0.1, 1.1, True, "0.5"):
        with pytest.raises(ModelError, match="doubtful_score"):
            clue.doubtful_score = wrong  # type: ignore[assignment]
        with pytest.raises(ModelError, match="doubtful_score"):
            Clue.load(random_model, doubtful_score=wrong)
    assert clue.doubtful_score == 1.0
