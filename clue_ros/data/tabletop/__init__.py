"""A MuJoCo tabletop: random scenes of coloured blocks, cylinders and balls, exact boxes and masks.

`scene` is the data (no MuJoCo), `world` draws scenes, `shards` keeps them on disk, `command` is
`clue data tabletop`. Language about scenes lives in `clue_ros.data.language`.
"""
