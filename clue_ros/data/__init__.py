"""Data sets, one module each, and the tabletop simulator. Nothing here imports torch or ROS."""
