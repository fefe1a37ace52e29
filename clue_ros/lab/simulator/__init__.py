"""The MuJoCo tabletop simulator: random scenes with exact boxes and masks.

`scene` holds the result, `spec` describes a world and `worlds` names the worlds. `objects`,
`meshes` and `textures` fill them, `physics` and `render` draw them, `shards` keeps them on disk.
"""
