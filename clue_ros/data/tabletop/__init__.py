"""MuJoCo tabletops: random scenes with exact boxes and masks, in worlds that are specifications.

`scene` is the data (no MuJoCo); `spec` what makes a world, `blocks` the default one, `novel` one
that training never has, `worlds` both by name; `world` draws scenes, `shards` keeps them on disk,
`command` is `clue data tabletop`. Language about scenes lives in `clue_ros.data.language`.
"""
