"""The MuJoCo tabletop simulator: random scenes with exact boxes and masks.

`worlds` lists the worlds, `spec` describes one. `objects` (from `meshes`, `textures` and
`user_meshes`) fills it, `physics` lets objects fall, `render` and `optics` draw it. The result is
a `scene`; `shards` stores scenes, `command` is `clue data tabletop`.
"""
