"""The objects of public scan collections, with their kinds and looks.

`OBJECTS` has each object's kind, colours, material and parts, written down from its texture. The
other nouns of a kind are in `clue_ros.dialogue.object_names`, the names of things that no
collection holds in `clue_ros.lab.language`.
"""

from __future__ import annotations

from dataclasses import dataclass

from clue_ros.dialogue.object_names import comma_separated

COLORS: tuple[str, ...] = (
    "red", "orange", "yellow", "green", "blue", "purple", "pink", "brown", "beige", "black",
    "white", "gray", "silver", "multicolored",
)  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One object. kind "": clutter, which has no name here.

    names: nouns for this object beyond those of its kind, such as a brand. colors: as seen, the
    dominant one first.
    """

    kind: str
    colors: tuple[str, ...] = ()
    material: str = ""
    parts: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


def _entry(
    kind: str, colors: str = "", material: str = "", parts: str = "", names: str = ""
) -> Entry:
    """An entry from words between commas."""
    split = comma_separated
    return Entry(kind, split(colors), material, split(parts), split(names))


OBJECTS: dict[str, Entry] = {
    # YCB Object and Model Set.
    "ycb/a_colored_wood_blocks": _entry("toy blocks", "multicolored", "wood"),
    "ycb/b_colored_wood_blocks": _entry("toy block", "blue", "wood"),
    "ycb/a_cups": _entry("cup", "orange", "plastic"),
    "ycb/b_cups": _entry("cup", "blue", "plastic"),
    "ycb/c_cups": _entry("cup", "green", "plastic"),
    "ycb/d_cups": _entry("cup", "yellow", "plastic"),
    "ycb/e_cups": _entry("cup", "red", "plastic"),
    "ycb/f_cups": _entry("cup", "purple", "plastic"),
    "ycb/g_cups": _entry("cup", "orange", "plastic"),
    "ycb/h_cups": _entry("cup", "blue", "plastic"),
    "ycb/i_cups": _entry("cup", "green", "plastic"),
    "ycb/j_cups": _entry("cup", "yellow", "plastic"),
    "ycb/a_lego_duplo": _entry("toy brick", "green", "plastic"),
    "ycb/b_lego_duplo": _entry("toy brick", "purple", "plastic"),
    "ycb/c_lego_duplo": _entry("toy brick", "pink", "plastic"),
    "ycb/d_lego_duplo": _entry("toy brick", "yellow", "plastic", "eyes"),
    "ycb/e_lego_duplo": _entry("toy brick", "blue", "plastic"),
    "ycb/f_lego_duplo": _entry("toy brick", "yellow", "plastic", "red stars"),
    "ycb/g_lego_duplo": _entry("toy brick", "yellow,multicolored", "plastic"),
    "ycb/a_marbles": _entry("marbles", "multicolored", "glass"),
    "ycb/b_marbles": _entry("marble", "red,yellow", "glass"),
    "ycb/a_toy_airplane": _entry("toy airplane", "green,yellow", "plastic", "red wheels"),
    "ycb/b_toy_airplane": _entry("", "red", "plastic"),
    "ycb/c_toy_airplane": _entry("", "blue", "plastic"),
    "ycb/d_toy_airplane": _entry("", "blue", "plastic"),
    "ycb/e_toy_airplane": _entry("", "blue", "plastic"),
    "ycb/adjustable_wrench": _entry("wrench", "silver", "metal"),
    "ycb/apple": _entry("apple", "red"),
    "ycb/banana": _entry("banana", "yellow"),
    "ycb/baseball": _entry("baseball", "white", "leather", "red stitches"),
    "ycb/bleach_cleanser": _entry(
        "bleach bottle", "white", "plastic", "blue label,white cap", "soft scrub"
    ),
    "ycb/bowl": _entry("bowl", "red", "metal"),
    "ycb/chain": _entry("chain", "yellow", "plastic"),
    "ycb/cracker_box": _entry("cracker box", "red", "cardboard", "", "cheez-it,cheez-it box"),
    "ycb/dice": _entry("dice", "white", "plastic", "black dots"),
    "ycb/extra_large_clamp": _entry("clamp", "black", "plastic", "orange tips"),
    "ycb/large_clamp": _entry("clamp", "black", "plastic", "orange tips"),
    "ycb/medium_clamp": _entry("clamp", "black", "plastic", "orange tips"),
    "ycb/flat_screwdriver": _entry("screwdriver", "red,black", "metal", "red handle"),
    "ycb/phillips_screwdriver": _entry("screwdriver", "blue,black", "metal", "blue handle"),
    "ycb/foam_brick": _entry("foam brick", "red", "foam"),
    "ycb/fork": _entry("fork", "red,silver", "metal", "red handle"),
    "ycb/knife": _entry("knife", "red,silver", "metal", "red handle"),
    "ycb/spoon": _entry("spoon", "red,silver", "metal", "red handle"),
    "ycb/gelatin_box": _entry("gelatin box", "red", "cardboard", "", "jello,jello box"),
    "ycb/pudding_box": _entry("pudding box", "brown", "cardboard", "", "jello,chocolate pudding"),
    "ycb/golf_ball": _entry("golf ball", "white", "plastic"),
    "ycb/hammer": _entry("hammer", "brown,silver", "wood", "wooden handle,metal head"),
    "ycb/large_marker": _entry("marker", "white,black", "plastic", "black cap", "expo marker"),
    "ycb/lemon": _entry("lemon", "yellow"),
    "ycb/master_chef_can": _entry("coffee can", "blue", "metal", "", "master chef"),
    "ycb/mini_soccer_ball": _entry("soccer ball", "white,purple", "rubber", "purple stripes"),
    "ycb/mug": _entry("mug", "red", "ceramic"),
    "ycb/mustard_bottle": _entry("mustard bottle", "yellow", "plastic", "yellow cap", "french's"),
    "ycb/nine_hole_peg_test": _entry("peg board", "beige", "wood"),
    "ycb/orange": _entry("orange", "orange"),
    "ycb/padlock": _entry("padlock", "silver,blue", "metal", "blue stripe"),
    "ycb/peach": _entry("peach", "yellow,red"),
    "ycb/pear": _entry("pear", "green"),
    "ycb/pitcher_base": _entry("pitcher", "blue", "plastic"),
    "ycb/plate": _entry("plate", "red", "metal"),
    "ycb/plum": _entry("plum", "purple"),
    "ycb/potted_meat_can": _entry("meat can", "blue,yellow", "metal", "", "spam,can of spam"),
    "ycb/power_drill": _entry("drill", "orange,black", "plastic", "orange handle"),
    "ycb/racquetball": _entry("racquetball", "blue", "rubber"),
    "ycb/rubiks_cube": _entry("puzzle cube", "multicolored", "plastic"),
    "ycb/scissors": _entry("scissors", "gray,orange", "metal", "orange handles"),
    "ycb/skillet_lid": _entry("lid", "gray,silver", "glass", "black knob"),
    "ycb/softball": _entry("softball", "yellow", "leather", "red stitches"),
    "ycb/spatula": _entry("spatula", "black", "plastic"),
    "ycb/sponge": _entry("sponge", "yellow", "foam"),
    "ycb/strawberry": _entry("strawberry", "red", "", "green leaves"),
    "ycb/sugar_box": _entry("sugar box", "yellow,white", "cardboard", "", "domino sugar"),
    "ycb/tennis_ball": _entry("tennis ball", "yellow", "rubber"),
    "ycb/tomato_soup_can": _entry(
        "soup can", "red,white", "metal", "", "campbell's,campbell's soup"
    ),
    "ycb/tuna_fish_can": _entry("tuna can", "blue,silver", "metal", "blue label", "starkist"),
    "ycb/windex_bottle": _entry(
        "spray bottle", "blue", "plastic", "red nozzle",
        "windex,glass cleaner,window cleaner,cleaner",
    ),
    "ycb/wood_block": _entry("wood block", "beige", "wood"),
    # Google Scanned Objects.
    "gso/Air_Hogs_Wind_Flyers_Set_Airplane_Red": _entry("toy airplane", "red", "foam"),
    "gso/Android_Figure_Chrome": _entry("toy robot", "silver", "plastic"),
    "gso/Android_Figure_Orange": _entry("toy robot", "orange", "plastic"),
    "gso/Android_Figure_Panda": _entry("toy robot", "black,white", "plastic", "", "panda"),
    "gso/Android_Lego": _entry("toy robot", "green", "plastic"),
    "gso/Animal_Planet_Foam_2Headed_Dragon": _entry("toy dragon", "blue", "foam", "two heads"),
    "gso/BUNNY_RACER": _entry("toy car", "green,brown", "wood", "green wheels", "bunny"),
    "gso/Breyer_Horse_Of_The_Year_2015": _entry("toy horse", "brown", "plastic"),
    "gso/Cole_Hardware_Hammer_Black": _entry("hammer", "black,yellow", "metal", "yellow handle"),
    "gso/Cole_Hardware_School_Bell_Solid_Brass_38": _entry(
        "bell", "beige,brown", "metal", "wooden handle"
    ),
    "gso/Craftsman_Grip_Screwdriver_Phillips_Cushion": _entry(
        "screwdriver", "black,silver", "metal", "black handle"
    ),
    "gso/Crayola_Crayons_24_count": _entry(
        "crayon box", "yellow,green", "cardboard", "", "crayola"
    ),
    "gso/Diamond_Visions_Scissors_Red": _entry("scissors", "red,silver", "metal", "red handles"),
    "gso/Dino_3": _entry("toy dinosaur", "gray", "rubber"),
    "gso/Dino_4": _entry("toy dinosaur", "brown", "rubber"),
    "gso/Dino_5": _entry("toy dinosaur", "gray", "rubber"),
    "gso/Kong_Puppy_Teething_Rubber_Small_Pink": _entry("dog toy", "pink", "rubber", "", "kong"),
    "gso/Nescafe_Momento_Mocha_Specialty_Coffee_Mix_8_ct": _entry(
        "coffee box", "brown", "cardboard", "", "nescafe"
    ),
    "gso/Nickelodeon_Teenage_Mutant_Ninja_Turtles_Raphael": _entry(
        "action figure", "green,red", "plastic", "", "ninja turtle,turtle"
    ),
    "gso/Nintendo_Mario_Action_Figure": _entry(
        "action figure", "red,blue", "plastic", "red cap", "mario"
    ),
    "gso/Nintendo_Yoshi_Action_Figure": _entry(
        "action figure", "green,white", "plastic", "", "yoshi,dinosaur"
    ),
    "gso/Now_Designs_Bowl_Akita_Black": _entry("bowl", "white,black", "ceramic", "black dots"),
    "gso/Olive_Kids_Dinosaur_Land_Lunch_Box": _entry("lunch box", "blue,green", "fabric"),
    "gso/Room_Essentials_Mug_White_Yellow": _entry(
        "mug", "white,yellow", "ceramic", "yellow handle"
    ),
    "gso/Room_Essentials_Salad_Plate_Turquoise": _entry("plate", "blue", "ceramic"),
    "gso/SCHOOL_BUS": _entry("toy bus", "yellow", "plastic"),
    "gso/Schleich_African_Black_Rhino": _entry("toy rhino", "gray", "rubber"),
    "gso/Schleich_Bald_Eagle": _entry("toy eagle", "black,white", "rubber", "white head"),
    "gso/Schleich_Hereford_Bull": _entry("toy bull", "brown,white", "rubber", "white head"),
    "gso/Schleich_Lion_Action_Figure": _entry("toy lion", "brown", "rubber"),
    "gso/Schleich_S_Bayala_Unicorn_70432": _entry("toy unicorn", "white,beige", "rubber"),
    "gso/Schleich_Spinosaurus_Action_Figure": _entry("toy dinosaur", "brown", "rubber"),
    "gso/Schleich_Therizinosaurus_ln9cruulPqc": _entry("toy dinosaur", "blue,orange", "rubber"),
    "gso/Sonny_School_Bus": _entry("toy bus", "yellow", "plastic"),
    "gso/Sootheze_Toasty_Orca": _entry("plush whale", "black,white", "fabric"),
    "gso/Sperry_TopSider_pSUFPWQXPp3": _entry("boot", "brown", "leather"),
    "gso/SpiderMan_Titan_Hero_12Inch_Action_Figure_oo1qph4wwiW": _entry(
        "action figure", "red,blue", "plastic", "", "spiderman,spider man"
    ),
    "gso/TURBOPROP_AIRPLANE_WITH_PILOT": _entry("toy airplane", "red,beige", "wood"),
    "gso/TZX_Runner": _entry("sneaker", "purple,white", "fabric", "white sole"),
    "gso/Teenage_Mutant_Ninja_Turtles_Rahzar_Action_Figure": _entry(
        "action figure", "gray", "plastic", "", "wolf"
    ),
    "gso/Thomas_Friends_Wooden_Railway_Ascending_Track_Riser_Pack": _entry(
        "train track", "beige", "wood"
    ),
    "gso/Thomas_Friends_Wooden_Railway_Porter_5JzRhMm3a9o": _entry(
        "toy train", "green,black", "wood"
    ),
    "gso/Wishbone_Pencil_Case": _entry("pencil case", "purple,white", "fabric"),
    "gso/Womens_Bluefish_2Eye_Boat_Shoe_in_Tan": _entry(
        "shoe", "brown", "leather", "", "boat shoe"
    ),
    "gso/Womens_Multi_13": _entry("pill bottle", "white,red", "plastic", "white cap"),
    # Sweet Home 3D: four catalogues of small models.
    "sh3f/BlendSwap-CC-0/basketball": _entry("basketball", "orange,black", "rubber"),
    "sh3f/BlendSwap-CC-0/bread": _entry("bread", "brown"),
    "sh3f/BlendSwap-CC-0/butter": _entry("butter", "yellow,white"),
    "sh3f/BlendSwap-CC-0/cactus": _entry("cactus", "green,black", "", "black pot"),
    "sh3f/BlendSwap-CC-0/caffe_final": _entry("coffee cup", "white", "ceramic", "saucer"),
    "sh3f/BlendSwap-CC-0/cartoon_biplane": _entry(
        "toy airplane", "yellow,red", "plastic", "", "biplane"
    ),
    "sh3f/BlendSwap-CC-0/cissors_swap": _entry(
        "scissors", "orange,silver", "metal", "orange handles"
    ),
    "sh3f/BlendSwap-CC-0/comb": _entry("comb", "blue", "plastic"),
    "sh3f/BlendSwap-CC-0/cosmeticsPot": _entry("cream jar", "white", "plastic"),
    "sh3f/BlendSwap-CC-0/cupcake": _entry("cupcake", "white,blue", "", "red cherry"),
    "sh3f/BlendSwap-CC-0/deer": _entry("deer statue", "silver", "metal"),
    "sh3f/BlendSwap-CC-0/flacon": _entry("perfume bottle", "black", "glass"),
    "sh3f/BlendSwap-CC-0/handbag": _entry("handbag", "beige", "leather"),
    "sh3f/BlendSwap-CC-0/headphones": _entry("headphones", "black", "plastic"),
    "sh3f/BlendSwap-CC-0/hotDog": _entry("hot dog", "brown,yellow"),
    "sh3f/BlendSwap-CC-0/housePuzzle": _entry("puzzle", "orange", "wood"),
    "sh3f/BlendSwap-CC-0/iphone": _entry("phone", "black", "plastic"),
    "sh3f/BlendSwap-CC-0/kalender": _entry("calendar", "white", "paper"),
    "sh3f/BlendSwap-CC-0/littlePlant": _entry("potted plant", "green,brown", "", "clay pot"),
    "sh3f/BlendSwap-CC-0/mamadeira": _entry("baby bottle", "gray,blue", "plastic", "blue ring"),
    "sh3f/BlendSwap-CC-0/plasticCup": _entry("cup", "blue,white", "plastic"),
    "sh3f/BlendSwap-CC-0/ruler": _entry("ruler", "blue", "plastic"),
    "sh3f/BlendSwap-CC-0/teddyBear": _entry("teddy bear", "brown", "fabric"),
    "sh3f/BlendSwap-CC-0/tetrapak": _entry("milk carton", "white", "cardboard", "blue cap"),
    "sh3f/BlendSwap-CC-0/textMarker": _entry("highlighter", "yellow,black", "plastic", "black cap"),
    "sh3f/BlendSwap-CC-0/woodToy": _entry("wooden doll", "beige,brown", "wood"),
    "sh3f/BlendSwap-CC-0/yogurtBottle": _entry("yogurt bottle", "white", "plastic", "blue cap"),
    "sh3f/BlendSwap-CC-BY/ballonFoot": _entry("soccer ball", "white,black", "leather"),
    "sh3f/BlendSwap-CC-BY/beer_bottle": _entry("beer bottle", "brown", "glass", "white label"),
    "sh3f/BlendSwap-CC-BY/boiler": _entry("kettle", "green,black", "metal", "black handle"),
    "sh3f/BlendSwap-CC-BY/book": _entry("book", "white,black", "paper"),
    "sh3f/BlendSwap-CC-BY/carrito-de-madera": _entry("toy car", "brown", "wood"),
    "sh3f/BlendSwap-CC-BY/clock": _entry("alarm clock", "white", "plastic"),
    "sh3f/BlendSwap-CC-BY/coffee_cup": _entry("paper cup", "beige,white", "cardboard", "white lid"),
    "sh3f/BlendSwap-CC-BY/espressokettle": _entry(
        "moka pot", "silver,black", "metal", "black handle"
    ),
    "sh3f/BlendSwap-CC-BY/fork": _entry("fork", "silver", "metal"),
    "sh3f/BlendSwap-CC-BY/gift": _entry("gift", "blue", "cardboard", "blue ribbon"),
    "sh3f/BlendSwap-CC-BY/hamburger": _entry("hamburger", "brown,yellow"),
    "sh3f/BlendSwap-CC-BY/kitchenKnife": _entry(
        "knife", "silver,black", "metal", "black handle", "kitchen knife"
    ),
    "sh3f/BlendSwap-CC-BY/kitchenScale": _entry("kitchen scale", "green,gray", "metal"),
    "sh3f/BlendSwap-CC-BY/knife": _entry("knife", "silver", "metal"),
    "sh3f/BlendSwap-CC-BY/largePan": _entry(
        "cooking pot", "silver,black", "metal", "black handles"
    ),
    "sh3f/BlendSwap-CC-BY/lipStick": _entry("lipstick", "black,brown"),
    "sh3f/BlendSwap-CC-BY/mobile": _entry("phone", "black", "plastic"),
    "sh3f/BlendSwap-CC-BY/radio": _entry("radio", "beige,gray", "plastic"),
    "sh3f/BlendSwap-CC-BY/rubix2": _entry("puzzle cube", "multicolored", "plastic"),
    "sh3f/BlendSwap-CC-BY/saltShaker": _entry("salt shaker", "white", "ceramic"),
    "sh3f/BlendSwap-CC-BY/spoon": _entry("spoon", "silver", "metal"),
    "sh3f/BlendSwap-CC-BY/succulentPlant": _entry("potted plant", "green,black", "", "black pot"),
    "sh3f/BlendSwap-CC-BY/sunglasses": _entry("sunglasses", "black", "plastic"),
    "sh3f/BlendSwap-CC-BY/tableTennisBat": _entry(
        "ping pong paddle", "red,beige", "wood", "wooden handle"
    ),
    "sh3f/BlendSwap-CC-BY/thermometer": _entry("thermometer", "gray", "plastic"),
    "sh3f/BlendSwap-CC-BY/toyTrain": _entry("toy train", "multicolored", "wood", "red wheels"),
    "sh3f/BlendSwap-CC-BY/wirelessOfficePhone3": _entry(
        "desk phone", "black", "plastic", "", "cordless phone"
    ),
    "sh3f/KatorLegaz/bread-plate": _entry("plate", "white", "ceramic"),
    "sh3f/KatorLegaz/coffee-mug": _entry("mug", "white", "ceramic"),
    "sh3f/KatorLegaz/dinner-plate": _entry("plate", "white", "ceramic"),
    "sh3f/KatorLegaz/flashlight": _entry("flashlight", "orange,black", "plastic", "black head"),
    "sh3f/KatorLegaz/newspaper": _entry("newspaper", "white,gray", "paper"),
    "sh3f/KatorLegaz/red-wine-bottle-01": _entry("wine bottle", "green", "glass", "white label"),
    "sh3f/KatorLegaz/spray-bottle": _entry(
        "spray bottle", "green,white", "plastic", "white nozzle"
    ),
    "sh3f/KatorLegaz/tape-measure": _entry(
        "tape measure", "black,yellow", "plastic", "yellow tape"
    ),
    "sh3f/Scopia/CCTV": _entry("security camera", "white,gray", "plastic"),
    "sh3f/Scopia/bague": _entry("ring", "silver", "metal"),
    "sh3f/Scopia/basic_camera": _entry("camera", "black", "plastic"),
    "sh3f/Scopia/reflex_camera": _entry("camera", "black", "plastic", "long lens"),
    "sh3f/Scopia/billet-10-euros": _entry("banknote", "pink", "paper", "", "ten euros"),
    "sh3f/Scopia/billet-20-euros": _entry("banknote", "blue", "paper", "", "twenty euros"),
    "sh3f/Scopia/billet-50-euros": _entry("banknote", "orange", "paper", "", "fifty euros"),
    "sh3f/Scopia/birthday_cake": _entry("cake", "brown,yellow", "", "candles"),
    "sh3f/Scopia/bowlWithSalad": _entry("salad bowl", "brown,green", "wood"),
    "sh3f/Scopia/casquette": _entry("cap", "blue,red", "fabric", "red visor"),
    "sh3f/Scopia/cendrier": _entry("ashtray", "gray", "metal"),
    "sh3f/Scopia/chaussette": _entry("sock", "pink,blue", "fabric", "blue stripes"),
    "sh3f/Scopia/com_bath": _entry("shampoo bottle", "beige,gray", "plastic"),
    "sh3f/Scopia/com_bath2_cepillo": _entry("hairbrush", "beige,black", "wood", "black bristles"),
    "sh3f/Scopia/com_bath2_esponja": _entry("sponge", "beige", "foam", "", "bath sponge"),
    "sh3f/Scopia/com_bath2_jabon_pijo": _entry("shampoo bottle", "gray", "metal"),
    "sh3f/Scopia/com_bath2_peineta": _entry("comb", "blue", "plastic"),
    "sh3f/Scopia/com_bath2_soap": _entry("soap dispenser", "white,blue", "plastic"),
    "sh3f/Scopia/com_bath3_toalla": _entry("towel", "blue", "fabric"),
    "sh3f/Scopia/creamer": _entry("creamer", "yellow", "ceramic", "flowers"),
    "sh3f/Scopia/cup": _entry("coffee cup", "yellow", "ceramic", "saucer"),
    "sh3f/Scopia/doll": _entry("doll", "pink,white", "plastic"),
    "sh3f/Scopia/electronicScale": _entry("kitchen scale", "white,gray", "plastic"),
    "sh3f/Scopia/frame1": _entry("picture frame", "brown", "wood"),
    "sh3f/Scopia/frame2": _entry("picture frame", "brown", "wood"),
    "sh3f/Scopia/gant-textured": _entry("glove", "red,gray", "leather"),
    "sh3f/Scopia/glasses": _entry("glasses", "black", "plastic"),
    "sh3f/Scopia/keys": _entry("keys", "yellow", "metal"),
    "sh3f/Scopia/kitchenKnifeStandSet": _entry(
        "knife block", "beige,black", "wood", "black handles"
    ),
    "sh3f/Scopia/marteau": _entry("hammer", "red,gray", "wood", "red handle"),
    "sh3f/Scopia/medicoscopia_bottle": _entry(
        "medicine bottle", "yellow,black", "plastic", "black cap"
    ),
    "sh3f/Scopia/medicoscopia_bottle2": _entry(
        "medicine bottle", "white,blue", "plastic", "blue cap"
    ),
    "sh3f/Scopia/medicoscopia_box": _entry("medicine box", "white,green", "cardboard"),
    "sh3f/Scopia/montre": _entry("watch", "brown,black", "leather", "brown strap"),
    "sh3f/Scopia/montre-with-pose": _entry("watch", "brown,black", "leather", "brown strap"),
    "sh3f/Scopia/old_jar": _entry("clay jug", "brown", "ceramic"),
    "sh3f/Scopia/paperTowelHolder": _entry("paper towel roll", "white", "paper"),
    "sh3f/Scopia/penbox": _entry("pen holder", "black", "plastic"),
    "sh3f/Scopia/pencil1": _entry("pen", "gray,blue", "plastic"),
    "sh3f/Scopia/pencil2": _entry("pencil", "blue", "wood"),
    "sh3f/Scopia/perceuse-electrique": _entry("drill", "green,gray", "plastic", "green handle"),
    "sh3f/Scopia/phone": _entry("desk phone", "black", "plastic"),
    "sh3f/Scopia/playstation4": _entry("game console", "black", "plastic", "", "playstation"),
    "sh3f/Scopia/pottery": _entry("ceramic jar", "blue,yellow", "ceramic", "yellow rim"),
    "sh3f/Scopia/ps4-joystick": _entry("game controller", "black", "plastic"),
    "sh3f/Scopia/roasted-chicken": _entry("roast chicken", "orange"),
    "sh3f/Scopia/rouleau-de-ruban-adhesif": _entry("tape", "beige", "plastic"),
    "sh3f/Scopia/smoke-detector": _entry("smoke detector", "white", "plastic", "red light"),
    "sh3f/Scopia/squeezer": _entry("lemon squeezer", "blue,white", "plastic"),
    "sh3f/Scopia/steak": _entry("steak", "brown"),
    "sh3f/Scopia/sugar": _entry("sugar bowl", "yellow", "ceramic", "flowers"),
    "sh3f/Scopia/tablet": _entry("tablet", "black", "plastic"),
    "sh3f/Scopia/teapot": _entry("teapot", "yellow", "ceramic", "flowers"),
    "sh3f/Scopia/toaster": _entry("toaster", "orange,white", "metal"),
    "sh3f/Scopia/tournevis": _entry("screwdriver", "red,silver", "metal", "red handle"),
    "sh3f/Scopia/tv-remote-control": _entry("remote", "black", "plastic", "", "tv remote control"),
    "sh3f/Scopia/vase1": _entry("vase", "yellow", "ceramic"),
    "sh3f/Scopia/vase2": _entry("vase", "gray", "ceramic"),
    "sh3f/Scopia/wine_bottle": _entry("wine bottle", "black,white", "glass", "white label"),
}  # fmt: skip
