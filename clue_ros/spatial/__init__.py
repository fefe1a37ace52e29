"""Where a box of the image is in space: geometry of one depth image, numpy only, no ROS."""
