"""The MuJoCo tabletop simulator: random scenes with exact boxes and masks.

`worlds` lists the worlds and `spec` describes one. `objects` fills it (from `meshes`, `textures`
and `user_meshes`), `physics` lets objects fall, `render` and `optics` draw it. The result is a
`scene`; `shards` stores scenes, and `command` is `clue data tabletop`.
"""
