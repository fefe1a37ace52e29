"""Speech recognition, speech synthesis and sound, without ROS. The nodes are in clue_ros.nodes."""
