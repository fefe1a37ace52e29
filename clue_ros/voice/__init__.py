"""Voice without ROS: hearing, speaking, and what lies between. The nodes are in clue_ros.nodes."""
