"""The programs of the nodes: `ros2 run clue_ros NAME_node` calls `executables.NAME`.

setup.py reads this file by its path, without the package: it imports nothing.
"""

PROGRAMS = ("grasp_example", "image_source", "perception", "speech", "tts")
